"""Tunes a whole network with either scheduler and any cost model, resumably."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.importing.names import check_network, name_of
from tvm_gnn_cost.installed import require_compiler
from tvm_gnn_cost.measuring.bandwidth import copy_speeds
from tvm_gnn_cost.measuring.machine import Tracker, describe_measuring, timed, tracker_at
from tvm_gnn_cost.progress import Note, Progress, Stage, ignore
from tvm_gnn_cost.schedulers import NAMES
from tvm_gnn_cost.schedulers import scheduler as scheduler_named
from tvm_gnn_cost.schedulers.machines import count_machines, machine_of
from tvm_gnn_cost.schedulers.scheduler import Machine, Network, Profile, Scheduler, Task
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.arguments import check_cost_model, check_settings
from tvm_gnn_cost.tuning.choosing import Chooser
from tvm_gnn_cost.tuning.compiling import Compiler, run_once
from tvm_gnn_cost.tuning.end_to_end import compare_elsewhere, compare_end_to_end
from tvm_gnn_cost.tuning.library import write_library
from tvm_gnn_cost.tuning.models import name_of_model, resolved
from tvm_gnn_cost.tuning.profiling import profile_library
from tvm_gnn_cost.tuning.result import ModelFailures, Settings, TaskResult, TuneResult, resume
from tvm_gnn_cost.tuning.search import ResultListener, Screening, interruptible, numbers_of_samples, search

#: Floating point operations of a task up to which its default schedule is measured too.
_SMALL = 2e7

#: Seconds for which a machine of a tracker runs the network, loading it included.
_NETWORK_S = 900.0

#: How long a search takes that nobody limits.
_MINUTES = 5.0


def tune(
    network: Any,
    example_inputs: Any = None,
    trials: int | None = None,
    cost_model: Any = "gnn",
    work_dir: str | os.PathLike[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    trusted: bool = False,
    scheduler: str | None = None,
    seed: int = 0,
    minutes: float | None = None,
    batch_size: int = 8,
    population_size: int = 64,
    compare: bool = True,
    tracker: str = "",
    key: str = "",
    target: str = "",
    progress: Progress = ignore,
) -> TuneResult:
    """Tunes a network, writes it as a library, and compares it end to end with its peers.

    Call it again with the same ``work_dir`` after an interruption, or with more ``trials``, to resume: programs in its
    records count and are not measured again. A finished result is returned as it is.

    Args:
        network: A name in the scheduler's catalogue, the path of an ``.onnx`` or ``.pt2`` file,
            ``package.module:function``, an ``nn.Module``, a ``torch.export.ExportedProgram``, an ``onnx.ModelProto``,
            or a Relax or Relay module.
        example_inputs: Of the network: a tuple of tensors or arrays in its order, or a dict of them by name. An
            ``nn.Module`` needs them; others are drawn where they are missing.
        trials: Programs to measure in all; the last batch is measured whole, so it may be a few more. No limit if None.
            With 0, nothing is measured: the cost model's first choice of each task is compiled.
        cost_model: A :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, a ``GNNCostModel``, a cost model of TVM's
            interface, a checkpoint's path, or a name: ``gnn`` (the checkpoint that ships), ``xgb``, ``random`` or, with
            MetaSchedule, ``mlp``. A model that is given learns in the search.
        work_dir: Where the records, the result (``tuning.json``) and TVM's logs are kept; by default
            :func:`default_work_dir`.
        shapes: The shapes of inputs whose sizes the network leaves open, by name.
        trusted: Whether the network's file may run code while it is read, as a ``.pt2`` file can.
        scheduler: ``meta-schedule`` or ``auto-scheduler``; by default the one that the installed TVM has.
        seed: Of the search.
        minutes: Minutes until the search ends, in all runs in ``work_dir``; loading the network counts, compiling and
            comparing it come on top. Without a limit of trials, MetaSchedule's search ends earlier if no task is
            expected to gain 0.05% of the network in a batch. No limit if None; 5 if there is no limit of trials either.
        batch_size: Programs measured at a time.
        population_size: Candidates that the evolutionary search keeps.
        compare: Whether to time the installed peers (PyTorch, torch.compile, ExecuTorch, ONNX Runtime, OpenVINO, MNN)
            beside the tuned and the untuned network; they are not timed on a tracker's machines.
        tracker: ``HOST:PORT`` of TVM's RPC tracker, whose machines run the programs and the network; both are built
            here. By default this machine runs them.
        key: The key of these machines; they should be alike.
        target: TVM's target of these machines, by default this machine's: JSON or a tag for ``meta-schedule``, such as
            ``{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4}``, a text for ``auto-scheduler``.
        progress: Receives events.

    Raises:
        InputError: an argument is wrong, or ``work_dir`` belongs to other settings.
        WorkError: the network can't be imported, its default schedules can't be built or run, the tuned network
            computes something else, or the tracker does not answer or has no such machine.
        WrongTVMError: the installed TVM does not have the scheduler.
        KeyboardInterrupt: Ctrl-C was pressed; everything measured so far is saved.

    An exception of a cost model that is not this package's passes through; everything measured so far is saved.

    >>> import torch
    >>> result = tune(torch.nn.Linear(8, 4), (torch.ones(3, 8),), trials=0, work_dir=work / "linear", compare=False)
    >>> result.run(torch.ones(3, 8)).shape
    (3, 4)
    """
    # What is misspelt or out of range is found out now and not when the network is loaded.
    check_settings(trials, minutes, seed, batch_size, population_size)
    check_network(network)
    chosen = scheduler_named(scheduler)
    if isinstance(cost_model, str | os.PathLike):
        check_cost_model(cost_model)
    model, model_name = resolved(cost_model), name_of_model(cost_model)
    if isinstance(model, CostModel):
        model.check_scheduler(chosen.name)
    folder = Path(work_dir) if work_dir is not None else default_work_dir(network, model_name, chosen.name)
    check_folder(folder)
    machines, built_for = tracker_at(tracker, key), chosen.target("", target)
    if machines is not None:
        count_machines(machines)
    else:
        require_compiler()
    if trials is None and minutes is None:
        minutes = _MINUTES
    start = time.perf_counter()
    progress(Stage("loading the network"))
    loaded = chosen.network(network, example_inputs, shapes, trusted)
    settings = Settings(
        loaded.name,
        trials,
        minutes,
        model_name,
        seed,
        str(built_for),
        batch_size,
        population_size,
        chosen.name,
        loaded.digest,
    )
    result = resume(settings, folder, chosen.records_file, chosen.versions(), describe_measuring(machines))
    compare = compare and machines is None
    if compare and result.end_to_end is not None and not result.end_to_end.peers:
        result.end_to_end = None
    if not result.finished or not (folder / result.library).is_file():
        with interruptible() as interrupted, _cost_model_log(folder, progress):
            result.spend("preparation", time.perf_counter() - start)
            # A GNNCostModel stays what it is: it may be strict.
            searching = cost_model if hasattr(cost_model, "search") else model
            _run(chosen, built_for, machines, loaded, searching, result, folder, compare, progress, interrupted)
    return result


def default_work_dir(network: Any, cost_model: str, scheduler: str) -> Path:
    """``work/NETWORK-COST_MODEL``, with the scheduler's name before NETWORK if it is not the first of ``NAMES``.

    NETWORK is the network's name, of a file without its suffix.

    >>> default_work_dir("resnet-18", "gnn", "meta-schedule").as_posix()
    'work/resnet-18-gnn'
    """
    prefix = "" if scheduler == NAMES[0] else f"{scheduler}-"
    return Path("work") / f"{prefix}{name_of(network)}-{Path(cost_model).stem}".replace("/", "-")


def _run(
    scheduler: Scheduler,
    target: Any,
    tracker: Tracker | None,
    network: Network,
    cost_model: Any,
    result: TuneResult,
    work_dir: Path,
    compare: bool,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    """Does whatever ``result`` still lacks."""
    start = time.perf_counter()
    settings = result.settings
    progress(Stage("loading the cost model"))
    tasks = scheduler.tasks(network, target)
    model = scheduler.cost_model(cost_model, settings.seed, len(tasks), settings.batch_size)
    failures = _FailureCount(model, result)
    work_dir.mkdir(parents=True, exist_ok=True)
    listener = ResultListener(result, work_dir, progress, interrupted)
    if not result.tasks:
        places = {task.key: i for i, task in enumerate(tasks)}
        result.tasks = [
            TaskResult(
                *(task.name, task.weight, None),
                flops=scheduler.flops(task),
                bytes=scheduler.traffic(task),
                instead_of=places[task.instead_of] if task.instead_of else None,
            )
            for task in tasks
        ]
        if tracker is None:
            result.copies = copy_speeds()
        if settings.trials != 0:
            progress(Stage("measuring the default schedules of the small tasks"))
            _measure_untuned(scheduler, tasks, target, tracker, result, work_dir)
        result.save(work_dir)
    samples = numbers_of_samples(tasks, result.tasks, measured=settings.trials != 0)
    screening = Screening(scheduler, model, target, samples, settings.seed, tracker)
    result.recount_trials(scheduler.latencies(tasks, work_dir))
    result.spend("preparation", time.perf_counter() - start)
    if not result.searched and settings.trials != 0:
        # What was compared before is not what the search will have found.
        result.end_to_end = None
        result.save(work_dir)
        try:
            search(scheduler, tasks, model, screening, listener)
        finally:
            failures.update(result)
            result.save(work_dir)
    result.searched = True
    result.save(work_dir)
    start, before = time.perf_counter(), dict(screening.seconds)
    chooser = Chooser(screening, tasks, result, work_dir, progress)
    chooser.choose()
    failures.update(result)
    if result.model_failures is not None:
        progress(Note(f"warning: {result.model_failures}"))
    for phase, seconds in screening.seconds.items():
        result.spend(phase, seconds - before[phase])
    drawing = sum(screening.seconds.values()) - sum(before.values())
    result.spend("verification", max(0.0, time.perf_counter() - start - drawing))
    progress(Stage("compiling the network with and without the tuned schedules"))
    about = {
        "tuned": {"cost_model": settings.cost_model, "trials": result.trials, "date": result.date},
        "machine": result.machine,
        "versions": result.versions,
    }
    with _elsewhere(tracker) as machine:
        run = partial(run_once, scheduler, machine)
        compiler = Compiler(scheduler, network, tasks, target, work_dir, run, progress)
        with timed(result.seconds, "compilation"):
            tuned = compiler.compile(chooser)
            library = write_library(tuned, network, scheduler, settings.target, work_dir, about, machine)
        result.library = library.name
        with timed(result.seconds, "comparison"):
            untuned = compiler.untuned
            following: Any = {"progress": progress, "interrupted": interrupted}
            if machine is not None:
                compared = compare_elsewhere(network, scheduler, library, untuned, machine, **following)
            else:
                logs = work_dir / "logs"
                compared = compare_end_to_end(
                    *(network, scheduler.name, library, untuned, logs),
                    peers=compare,
                    allowed=compiler.allowed,
                    **following,
                )
            if machine is None:
                places = {task.key: i for i, task in enumerate(tasks)}
                result.kernels = {
                    name: [places[key] for key in keys if key in places] for name, keys in tuned.tasks.items()
                }
                result.profile = _profile(scheduler.name, library, network, progress)
    result.end_to_end = compared
    result.save(work_dir)
    difference = result.end_to_end.tuned.difference
    if difference is not None and difference > compiler.allowed:
        raise WorkError(
            f"{library} differs from {result.end_to_end.reference} in another process: an output "
            f"differs by {100 * difference:.2g}% of its largest value, more than rounding explains; do not use it"
        )


def _profile(scheduler: str, library: Path, network: Network, progress: Progress) -> Profile | None:
    """The time of the tuned library by kernel; None with a note if it cannot be had."""
    progress(Stage("timing the kernels of the tuned network"))
    try:
        return profile_library(scheduler, library, network.inputs)
    except WorkError as error:
        progress(Note(str(error)))
        return None


@contextmanager
def _elsewhere(tracker: Tracker | None) -> Iterator[Machine | None]:
    """A machine of the tracker to run the network on; None for this one.

    Raises:
        WorkError: the tracker has none, or it is gone.
    """
    if tracker is None:
        yield None
        return
    try:
        with machine_of(tracker, _NETWORK_S) as machine:
            yield machine
    except ConnectionError as error:
        raise WorkError(f"{error}; run it again to use another machine") from error


def _measure_untuned(
    scheduler: Scheduler,
    tasks: Sequence[Task],
    target: Any,
    tracker: Tracker | None,
    result: TuneResult,
    work_dir: Path,
) -> None:
    """Measures the default schedules of the tasks that may need no other; those of the others are slow to run."""
    small = [i for i, task in enumerate(result.tasks) if task.flops < _SMALL and task.instead_of is None]
    outcomes = scheduler.measure_untuned([tasks[i] for i in small], target, work_dir, tracker)
    for i, outcome in zip(small, outcomes, strict=True):
        if outcome.failure is not None:
            said = outcome.message[-300:]
            raise WorkError(f"the default schedule of task {tasks[i].name} failed ({outcome.failure}): {said}")
        result.tasks[i].untuned = outcome.latency


class _FailureCount:
    """Counts for a result what the cost model failed for in this run, beside what it failed for in earlier ones."""

    def __init__(self, model: Any, result: TuneResult) -> None:
        #: Of a cost model of TVM nothing is counted: its errors end the search.
        self.guard = getattr(model, "search", None)
        self.earlier = result.model_failures or ModelFailures(0, 0, "")
        self.before = (self.guard.failed, self.guard.batches) if self.guard is not None else (0, 0)

    def update(self, result: TuneResult) -> None:
        """Sets the result's failures."""
        if self.guard is None:
            return
        failed = self.earlier.failed + self.guard.failed - self.before[0]
        batches = self.earlier.batches + self.guard.batches - self.before[1]
        if failed:
            result.model_failures = ModelFailures(failed, batches, self.earlier.reason or self.guard.reason)


class _Notes(logging.Handler):
    """Passes the cost model's warnings on as notes."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Passes one on; its traceback goes to the log file alone."""
        self.progress(Note(record.getMessage()))


@contextmanager
def _cost_model_log(work_dir: Path, progress: Progress) -> Iterator[None]:
    """Shows the cost model's warnings, and keeps them with their tracebacks in ``logs/cost-model.log``."""
    path = work_dir / "logs" / "cost-model.log"
    handlers = [_Notes(progress), _LogFile(path)]
    logger = logging.getLogger("tvm_gnn_cost")
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _LogFile(logging.FileHandler):
    """A log file whose folder is made with its first line: a run that logs nothing leaves nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))

    def _open(self) -> Any:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return super()._open()
