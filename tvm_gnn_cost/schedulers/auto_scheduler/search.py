"""Searches schedules with ``auto_scheduler``, and reports each measured batch and the time by phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import PythonBasedMeasureCallback

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.machine import PROCESS_WIDE, timed
from tvm_gnn_cost.schedulers.auto_scheduler.builder import build_states
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel, make_policies
from tvm_gnn_cost.schedulers.auto_scheduler.measure import outcome_of, run_built
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import policy_seed
from tvm_gnn_cost.schedulers.auto_scheduler.verification import TaskVerifier
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import RECORDS
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, SearchListener, SearchSettings, Task
from tvm_gnn_cost.schedulers.turn_runner import turn_runner

#: More programs than any search measures, because the listener ends the search.
_UNLIMITED = 2**24


def search(
    tasks: Sequence[Task],
    model: Any,
    verifier: TaskVerifier,
    work_dir: Path,
    settings: SearchSettings,
    on: SearchListener,
) -> None:
    """Searches schedules of all tasks; each batch is recorded in the work directory as soon as it is measured.

    Args:
        tasks: The tasks.
        model: A cost model of ``auto_scheduler``.
        verifier: Verifies states; its pool builds them.
        work_dir: The folder of the records.
        settings: How the search runs.
        on: Receives events.

    Raises:
        WorkError: the search was interrupted.
    """
    records = str(work_dir / RECORDS)
    seen = records if settings.measured else None
    callbacks = [auto_scheduler.PreloadMeasuredStates(records)] if seen else None
    # TVM measures every task at least once, so tasks that are not searched are excluded.
    wanted = [task for task, latency in zip(tasks, settings.latencies, strict=True) if latency > 0]
    search_tasks = [task.workload for task in wanted]
    policies = make_policies(
        search_tasks,
        model,
        params={"evolutionary_search_population": settings.population_size},
        # A resumed search must not draw the same random programs again.
        seed=policy_seed(settings.seed + settings.measured),
        verbose=0,
        init_search_callbacks=callbacks,
    )
    earlier = _model_seconds(model)
    with PROCESS_WIDE, _measurement(MeasureSettings(tracker=settings.tracker), verifier) as measuring:

        def seconds(elapsed: float) -> dict[str, float]:
            known = {phase: spent - earlier[phase] for phase, spent in _model_seconds(model).items()} | measuring
            return known | {"mutation": max(0.0, elapsed - sum(known.values()))}

        weights = [task.weight for task in wanted]
        scheduler = auto_scheduler.TaskScheduler(search_tasks, weights, load_log_file=seen, callbacks=[])
        options = auto_scheduler.TuningOptions(
            num_measure_trials=_UNLIMITED,
            num_measures_per_round=settings.batch_size,
            # These two call the replacements of _measurement().
            builder=auto_scheduler.LocalBuilder(),
            runner=auto_scheduler.LocalRunner(),
            measure_callbacks=[auto_scheduler.RecordToFile(records), _Follower(tasks, on, seconds, scheduler)],
            verbose=0,
        )
        scheduler.tune(options, search_policy=policies)


class _Follower(PythonBasedMeasureCallback):  # type: ignore[misc]
    """Reports a measured batch, then ends a search that is interrupted or whose budget is spent."""

    def __init__(
        self,
        tasks: Sequence[Task],
        on: SearchListener,
        seconds: Callable[[float], dict[str, float]],
        scheduler: auto_scheduler.TaskScheduler,
    ) -> None:
        super().__init__()
        self.on, self.seconds, self.scheduler = on, seconds, scheduler
        self.places = {task.key: i for i, task in enumerate(tasks)}
        self.start = time.perf_counter()

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:  # noqa: ARG002
        """Reports a batch; ``auto_scheduler`` calls this after each one, once it is in the records."""
        self.on.spent(self.seconds(time.perf_counter() - self.start))
        if inputs:
            place = self.places[str(inputs[0].task.workload_key)]
            self.on.measured(place, [outcome_of(result).latency for result in results])
        if self.on.interrupted():
            raise WorkError("interrupted")
        if self.on.finished():
            self.scheduler.ct = _UNLIMITED


def _model_seconds(model: Any) -> dict[str, float]:
    """Seconds of a GNN so far; the time of other models counts as mutation."""
    if not isinstance(model, GNNCostModel):
        return {}
    timings = model.search.timings
    return {"prediction": timings["extraction"] + timings["prediction"], "model update": timings["update"]}


@contextmanager
def _measurement(settings: MeasureSettings, verifier: TaskVerifier) -> Iterator[dict[str, float]]:
    """Replaces ``auto_scheduler``'s builder and runner by ours, and yields the seconds of each."""
    seconds = {"building": 0.0, "running": 0.0}
    names = {"building": "auto_scheduler.local_builder.build", "running": "auto_scheduler.local_runner.run"}
    originals = {phase: tvm.get_global_func(name) for phase, name in names.items()}

    def build(inputs: Sequence[Any], *_settings: Any) -> Any:
        with timed(seconds, "building"):
            return build_states(verifier.pool, inputs, verifier)

    def run(inputs: Sequence[Any], built: Sequence[Any], *_settings: Any) -> Any:
        with timed(seconds, "running"):
            return run_built(inputs, built, turn_runner(settings).spread)

    try:
        tvm.register_func(names["building"], build, override=True)
        tvm.register_func(names["running"], run, override=True)
        yield seconds
    finally:
        for phase, name in names.items():
            tvm.register_func(name, originals[phase], override=True)
