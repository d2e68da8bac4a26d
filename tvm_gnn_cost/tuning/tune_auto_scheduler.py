"""Tunes a whole network with Ansor and any cost model, resumably; talks to a TVM up to 0.19."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import auto_scheduler, relay
from tvm.auto_scheduler.measure import MeasureInput, PythonBasedMeasureCallback
from tvm.contrib import graph_executor

from tvm_gnn_cost.datasets.records import drop_broken_last_line
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.networks.relay import RelayNetwork, extract_relay_tasks, load_relay_network, local_target
from tvm_gnn_cost.tuning.auto_scheduler import GNNCostModel, make_policies
from tvm_gnn_cost.tuning.interrupt import interruptible
from tvm_gnn_cost.tuning.result import CurvePoint, EndToEnd, Settings, TaskResult, TuneResult, resume
from tvm_gnn_cost.tuning.search_model import checkpoint_named

if TYPE_CHECKING:
    from tvm_gnn_cost.tuning.progress import Progress

#: The files of measure records in a work directory: the search's, and those of the unscheduled programs.
RECORDS = "records.json"
UNTUNED = "untuned.json"

_PACKAGES = ("tvm-gnn-cost", "torch", "xgboost")


def tune(
    network: str,
    trials: int,
    cost_model: str,
    work_dir: Path,
    *,
    seed: int = 0,
    batch: int = 16,
    population: int = 128,
    progress: Progress,
) -> TuneResult:
    """Tunes a network of ``relay.testing`` on this machine and compares it end to end with the untuned one.

    Call it again with the same ``work_dir`` after an interruption, or with more ``trials``, to go on: programs in
    its records count and are not measured again. A finished result is returned as it is.

    Args:
        network: A name in ``networks.relay.NETWORKS``.
        trials: Programs to measure in all, at least one a task; the last batch is measured whole.
        cost_model: ``gnn`` (the checkpoint of the package), ``xgb``, ``random``, or a checkpoint's path.
        work_dir: For the records and the result (``tuning.json``).
        seed: Of the search.
        batch: Programs measured at a time.
        population: Candidates that the evolutionary search keeps.
        progress: Is told of every step.

    Raises:
        ValueError: an argument is wrong, or ``work_dir`` belongs to other settings.
        RuntimeError: an unscheduled program can't be built or run.
        KeyboardInterrupt: Ctrl-C; everything measured so far is saved.
    """
    target = local_target()
    settings = Settings(network, trials, cost_model, seed, str(target), batch, population, "auto-scheduler")
    result = resume(settings, work_dir, RECORDS, _PACKAGES)
    result.versions["tvm"] = tvm.__version__
    if result.finished:
        return result
    with interruptible() as interrupted:
        _run(result, work_dir, target, progress, interrupted)
    return result


def make_cost_model(name: str, warm_up: int) -> Any:
    """``auto_scheduler``'s cost model of that name: ``gnn``, ``xgb``, ``random`` or a checkpoint's path.

    Args:
        name: Its name.
        warm_up: Programs that XGBoost wants to have seen before it ranks.

    Raises:
        ValueError: there is no such model or file.
    """
    if name == "random":
        return auto_scheduler.RandomModel()
    if name == "xgb":
        return auto_scheduler.XGBModel(num_warmup_sample=warm_up, verbose_eval=0)
    return GNNCostModel(checkpoint_named(name))


def _run(
    result: TuneResult,
    work_dir: Path,
    target: tvm.target.Target,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    """Does whatever ``result`` still lacks."""
    start = time.perf_counter()
    settings = result.settings
    progress.status("loading the network")
    loaded = load_relay_network(settings.network)
    tasks, weights = extract_relay_tasks(loaded, target)
    if settings.trials < len(tasks):
        raise ValueError(f"{settings.network} has {len(tasks)} tasks; --trials {settings.trials} is less than one each")
    batch = min(settings.batch, settings.trials // len(tasks))
    model = make_cost_model(settings.cost_model, len(tasks) * batch)
    work_dir.mkdir(parents=True, exist_ok=True)
    if not result.tasks:
        progress.status(f"measuring the unscheduled programs of {len(tasks)} tasks")
        result.tasks = _measure_untuned(tasks, weights, work_dir / UNTUNED)
        result.curve = [CurvePoint(0, 0.0, result.untuned_latency)]
        result.save(work_dir)
    drop_broken_last_line(work_dir / RECORDS)
    _count(result, tasks, work_dir / RECORDS)
    result.spend("preparation", time.perf_counter() - start)
    progress.measured(result, "")
    if result.trials < settings.trials and result.searched < settings.trials:
        # What was compared before is not what the search will have found.
        result.end_to_end = None
        result.save(work_dir)
        _search(result, tasks, weights, model, batch, work_dir, progress, interrupted)
    result.searched = settings.trials
    result.save(work_dir)
    start = time.perf_counter()
    progress.status("compiling the network with and without the tuned schedules, and timing both")
    result.end_to_end = compare_end_to_end(loaded, target, [work_dir / UNTUNED, work_dir / RECORDS])
    result.spend("verification", time.perf_counter() - start)
    result.save(work_dir)


def _runner(timeout_s: int = 20) -> auto_scheduler.LocalRunner:
    return auto_scheduler.LocalRunner(timeout=timeout_s, number=1, repeat=3, min_repeat_ms=30)


def _measure_untuned(
    tasks: Sequence[auto_scheduler.SearchTask], weights: Sequence[int], records: Path
) -> list[TaskResult]:
    """Builds and runs each task's program as it is before any schedule; a slower one must not replace it."""
    inputs = [MeasureInput(task, task.compute_dag.get_init_state()) for task in tasks]
    built = auto_scheduler.LocalBuilder().build(inputs, 0)
    with machine_to_itself():
        ran = _runner(timeout_s=120).run(inputs, built, 0)
    results = []
    for task, weight, one in zip(tasks, weights, ran, strict=True):
        if one.error_no != 0:
            raise RuntimeError(f"the unscheduled program of task {task.desc} does not run: {one.error_msg[-300:]}")
        results.append(TaskResult(str(task.desc), weight, _mean(one.costs)))
    records.unlink(missing_ok=True)
    auto_scheduler.save_records(str(records), inputs, ran)
    return results


def _mean(costs: Sequence[Any]) -> float:
    return float(np.mean([float(cost) for cost in costs]))


def _count(result: TuneResult, tasks: Sequence[auto_scheduler.SearchTask], records: Path) -> None:
    """Takes what is in the records over into the result: it is what a kill can't leave behind the times."""
    by_key = {str(task.workload_key): entry for task, entry in zip(tasks, result.tasks, strict=True)}
    for entry in result.tasks:
        entry.trials, entry.failed, entry.best = 0, 0, None
    if records.exists():
        for measured, outcome in auto_scheduler.RecordReader(str(records)):
            if str(measured.task.workload_key) in by_key:
                _add(by_key[str(measured.task.workload_key)], outcome)


def _add(entry: TaskResult, outcome: Any) -> None:
    entry.trials += 1
    if outcome.error_no != 0:
        entry.failed += 1
    else:
        latency = _mean(outcome.costs)
        entry.best = latency if entry.best is None else min(entry.best, latency)


class _Follower(PythonBasedMeasureCallback):  # type: ignore[misc]
    """Counts a measured batch, adds a point to the curve, saves the result, and ends an interrupted search."""

    def __init__(
        self,
        result: TuneResult,
        tasks: Sequence[auto_scheduler.SearchTask],
        work_dir: Path,
        progress: Progress,
        interrupted: Callable[[], bool],
        account: Callable[[float], None],
    ) -> None:
        super().__init__()
        self.result, self.work_dir, self.progress, self.interrupted = result, work_dir, progress, interrupted
        self.by_key = {str(task.workload_key): entry for task, entry in zip(tasks, result.tasks, strict=True)}
        self.account = account
        self.start, self.before = time.perf_counter(), result.curve[-1].seconds

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:  # noqa: ARG002
        """Called by ``auto_scheduler`` after each batch, once it is in the records."""
        for measured, outcome in zip(inputs, results, strict=True):
            _add(self.by_key[str(measured.task.workload_key)], outcome)
        elapsed = time.perf_counter() - self.start
        self.result.curve.append(CurvePoint(self.result.trials, self.before + elapsed, self.result.latency))
        self.account(elapsed)
        self.result.save(self.work_dir)
        self.progress.measured(self.result, str(inputs[0].task.desc) if inputs else "")
        if self.interrupted():
            raise RuntimeError("interrupted")


def _search(
    result: TuneResult,
    tasks: Sequence[auto_scheduler.SearchTask],
    weights: Sequence[int],
    model: Any,
    batch: int,
    work_dir: Path,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    settings = result.settings
    records = str(work_dir / RECORDS)
    seen = records if result.trials else None
    callbacks = [auto_scheduler.PreloadMeasuredStates(records)] if seen else None
    if seen and hasattr(model, "update_from_file"):
        progress.status(f"learning from the {result.trials} programs measured before")
        model.update_from_file(records)
    policies = make_policies(
        tasks,
        model,
        params={"evolutionary_search_population": settings.population},
        # A resumed search must not draw the same random programs again.
        seed=settings.seed + result.trials,
        verbose=0,
        init_search_callbacks=callbacks,
    )
    spent = dict(result.seconds)
    with _timed_measurement() as measuring:

        def account(elapsed: float) -> None:
            now = _model_seconds(model) | measuring
            now["mutation"] = max(0.0, elapsed - sum(now.values()))
            for phase, seconds in now.items():
                result.seconds[phase] = spent.get(phase, 0.0) + seconds

        follower = _Follower(result, tasks, work_dir, progress, interrupted, account)
        scheduler = auto_scheduler.TaskScheduler(list(tasks), list(weights), load_log_file=seen, callbacks=[])
        options = auto_scheduler.TuningOptions(
            num_measure_trials=max(settings.trials - result.trials, len(tasks)),
            num_measures_per_round=batch,
            builder=auto_scheduler.LocalBuilder(),
            runner=_runner(),
            measure_callbacks=[auto_scheduler.RecordToFile(records), follower],
            verbose=0,
        )
        progress.status("searching")
        scheduler.tune(options, search_policy=policies)


def _model_seconds(model: Any) -> dict[str, float]:
    """What a GNN has taken; the others' time is counted as mutation."""
    if not isinstance(model, GNNCostModel):
        return {}
    timings = model.search.timings
    return {"prediction": timings["extraction"] + timings["prediction"], "model update": timings["update"]}


@contextmanager
def _timed_measurement() -> Iterator[dict[str, float]]:
    """Counts the seconds of ``auto_scheduler``'s local builder and runner, and keeps the machine to the runner."""
    seconds = {"building": 0.0, "running": 0.0}
    names = {"building": "auto_scheduler.local_builder.build", "running": "auto_scheduler.local_runner.run"}
    originals = {phase: tvm.get_global_func(name) for phase, name in names.items()}

    def timed(phase: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                if phase == "building":
                    return originals[phase](*arguments)
                with machine_to_itself():
                    return originals[phase](*arguments)
            finally:
                seconds[phase] += time.perf_counter() - start

        return call

    try:
        for phase, name in names.items():
            tvm.register_func(name, timed(phase), override=True)
        yield seconds
    finally:
        for phase, name in names.items():
            tvm.register_func(name, originals[phase], override=True)


def compare_end_to_end(
    network: RelayNetwork, target: tvm.target.Target, records: Sequence[Path], repeats: int = 5
) -> EndToEnd:
    """Times the network with TVM's default schedules and with the best of the records, in turn.

    The difference is that of the tuned network's output from the untuned one's, relative to its largest value.
    """
    with tvm.transform.PassContext(opt_level=3):
        untuned = relay.build(network.mod, target=target, params=network.params)
    # Records are of programs with plain weights: the pass would compile others.
    config = {"relay.backend.use_auto_scheduler": True}
    with (
        auto_scheduler.ApplyHistoryBest([str(path) for path in records]),
        tvm.transform.PassContext(opt_level=3, config=config, disabled_pass=["AutoSchedulerLayoutRewrite"]),
    ):
        tuned = relay.build(network.mod, target=target, params=network.params)
    device = tvm.cpu()
    modules = [graph_executor.GraphModule(library["default"](device)) for library in (untuned, tuned)]
    outputs = []
    for module in modules:
        module.set_input("data", network.example)
        module.run()  # these warm up too
        outputs.append(module.get_output(0).numpy())
    scale = np.abs(outputs[0]).max()
    seconds: tuple[list[float], list[float]] = ([], [])
    with machine_to_itself():
        for _ in range(repeats):
            for module, times in zip(modules, seconds, strict=True):
                times.append(float(module.module.time_evaluator("run", device, number=1, min_repeat_ms=50)().mean))
    return EndToEnd(*seconds, 0.0, float(np.abs(outputs[1] - outputs[0]).max() / scale))
