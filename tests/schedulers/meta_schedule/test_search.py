from __future__ import annotations

from pathlib import Path

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.progress import Step
from tvm_gnn_cost.schedulers.meta_schedule.search import phase_seconds
from tvm_gnn_cost.schedulers.scheduler import Task


def test_the_timers_of_each_phase_are_added() -> None:
    timers = {
        "InitializeTask": 1.0,
        "EvoSearch/SampleInitPopulation": 2.0,
        "EvoSearch/PickBestFromDatabase": 4.0,
        "EvoSearch/Evolve/Mutation": 8.0,
        "EvoSearch/Evolve/PredictNormalizedScore": 16.0,
        "MeasureCallback/UpdateCostModel": 32.0,
        "SendToBuilder": 64.0,
        "SendToRunner": 128.0,
        "JoinRunnerFutures": 256.0,
        # Holds others.
        "EvoSearch/Evolve": 1e6,
    }
    assert phase_seconds(timers) == {
        "initial population": 7.0,
        "mutation": 8.0,
        "prediction": 16.0,
        "model update": 32.0,
        "building": 64.0,
        "running": 384.0,
    }
    assert set(phase_seconds({}).values()) == {0.0}


def test_every_phase_is_timed(searched: tuple[Path, Listener]) -> None:
    _, listener = searched
    assert list(listener.seconds) == list(phase_seconds({}))
    assert all(seconds >= 0 for seconds in listener.seconds.values())
    for phase in ("initial population", "mutation", "building", "running"):
        assert listener.seconds[phase] > 0


def test_each_task_is_measured_before_the_next_one_is_searched(
    searched: tuple[Path, Listener], tasks: list[Task]
) -> None:
    _, listener = searched
    assert listener.events == [
        *(Step(f"{step}: {task.name}") for task in tasks[:2] for step in ("searching", "building", "running")),
    ]
    assert [number for number, _ in listener.batches] == [0, 1]


def test_tvms_output_is_in_the_work_directory(searched: tuple[Path, Listener]) -> None:
    work_dir, _ = searched
    assert (work_dir / "logs" / "stderr.log").is_file()
    (log,) = (work_dir / "logs").glob("*task_scheduler.log")
    assert "Sending 2 sample(s) to builder" in log.read_text()
