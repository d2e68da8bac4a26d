"""Tunes a whole network with either scheduler and any cost model, resumably."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.progress import Note, Progress, Stage, ignore
from tvm_gnn_cost.schedulers import scheduler as scheduler_named
from tvm_gnn_cost.schedulers.scheduler import Scheduler, SearchSettings
from tvm_gnn_cost.training.checkpoint import checkpoint_named
from tvm_gnn_cost.tuning.end_to_end import compare_end_to_end
from tvm_gnn_cost.tuning.interrupt import interruptible
from tvm_gnn_cost.tuning.listener import ResultListener, trials_measured
from tvm_gnn_cost.tuning.result import CurvePoint, Settings, TaskResult, TuneResult, resume


def tune(
    network: str = "resnet-18",
    trials: int = 576,
    cost_model: str = "gnn",
    work_dir: Path | str | None = None,
    *,
    scheduler: str | None = None,
    seed: int = 0,
    batch: int = 16,
    population: int = 128,
    progress: Progress = ignore,
) -> TuneResult:
    """Tunes a network on this machine and compares it end to end with the untuned one.

    Call it again with the same ``work_dir`` after an interruption, or with more ``trials``, to go on: programs in its
    records count and are not measured again. A finished result is returned as it is.

    Args:
        network: A name in the scheduler's catalogue.
        trials: Programs to measure in all; the last batch is measured whole, so it may be a few more.
        cost_model: ``gnn`` (the checkpoint that ships), ``xgb``, ``random``, or a checkpoint's path.
        work_dir: Where the records, the result (``tuning.json``) and TVM's logs are kept; by default
            :func:`default_work_dir`.
        scheduler: ``meta-schedule`` or ``auto-scheduler``; by default the one that the installed TVM has.
        seed: Of the search.
        batch: Programs measured at a time.
        population: Candidates that the evolutionary search keeps.
        progress: Receives events.

    Raises:
        InputError: an argument is wrong, or ``work_dir`` belongs to other settings.
        WorkError: the network's default schedules can't be built or run.
        WrongTVM: the installed TVM does not have the scheduler.
        KeyboardInterrupt: Ctrl-C was pressed; everything measured so far is saved.
    """
    chosen = scheduler_named(scheduler)
    if cost_model not in ("xgb", "random"):
        checkpoint_named(cost_model)  # a misspelt path is found out now and not when the network is loaded
    folder = Path(work_dir) if work_dir is not None else default_work_dir(network, cost_model, chosen.name)
    target = chosen.target()
    settings = Settings(network, trials, cost_model, seed, str(target), batch, population, chosen.name)
    result = resume(settings, folder, chosen.records_file, chosen.packages)
    result.versions |= chosen.versions()
    if not result.finished:
        with interruptible() as interrupted, _cost_model_log(folder, progress):
            _run(chosen, target, result, folder, progress, interrupted)
    return result


def default_work_dir(network: str, cost_model: str, scheduler: str) -> Path:
    """``work/NETWORK-COST_MODEL``, with the scheduler before it for ``auto-scheduler``.

    >>> default_work_dir("resnet-18", "gnn", "meta-schedule").as_posix()
    'work/resnet-18-gnn'
    """
    prefix = "" if scheduler == "meta-schedule" else f"{scheduler}-"
    return Path("work") / f"{prefix}{network}-{Path(cost_model).stem}".replace("/", "-")


def _run(
    scheduler: Scheduler,
    target: Any,
    result: TuneResult,
    work_dir: Path,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    """Does whatever ``result`` still lacks."""
    start = time.perf_counter()
    settings = result.settings
    progress(Stage("loading the network and the cost model"))
    network = scheduler.network(settings.network)
    tasks = scheduler.tasks(network, target)
    batch = scheduler.batch_size(len(tasks), settings.trials, settings.batch)
    model = scheduler.cost_model(settings.cost_model, settings.seed, len(tasks), batch)
    work_dir.mkdir(parents=True, exist_ok=True)
    if not result.tasks:
        progress(Stage(f"measuring the default schedules of {len(tasks)} tasks"))
        for task, outcome in zip(tasks, scheduler.measure_untuned(tasks, target, work_dir), strict=True):
            if outcome.failure is not None:
                said = outcome.message[-300:]
                raise WorkError(f"the default schedule of task {task.name} failed ({outcome.failure}): {said}")
            result.tasks.append(TaskResult(task.name, task.weight, outcome.latency))
        result.curve = [CurvePoint(0, 0.0, result.untuned_latency)]
        result.save(work_dir)
    result.recount_trials(scheduler.latencies(tasks, work_dir))
    result.spend("preparation", time.perf_counter() - start)
    progress(trials_measured(result, ""))
    if result.trials < settings.trials and result.searched < settings.trials:
        # What was compared before is not what the search will have found.
        result.end_to_end = None
        result.save(work_dir)
        missing = settings.trials - result.trials
        search = SearchSettings(missing, result.trials, batch, settings.population, settings.seed)
        try:
            scheduler.search(tasks, model, work_dir, search, ResultListener(result, work_dir, progress, interrupted))
        finally:
            result.save(work_dir)
    result.searched = settings.trials
    result.save(work_dir)
    start = time.perf_counter()
    progress(Stage("compiling the network with and without the tuned schedules, and timing both"))
    improved = [task for task, found in zip(tasks, result.tasks, strict=True) if found.improved]
    untuned = scheduler.compile(network, target)
    tuned = scheduler.compile(network, target, work_dir, improved)
    result.end_to_end = compare_end_to_end(network, untuned, tuned)
    result.spend("verification", time.perf_counter() - start)
    result.save(work_dir)


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
