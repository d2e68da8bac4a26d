from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.schedulers.conftest import QUICK
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome

pytestmark = pytest.mark.needs("tvm")


def test_a_program_that_is_not_there_has_failed() -> None:
    from tvm_gnn_cost.schedulers.turn_runner import turn_runner

    (outcome,) = turn_runner(QUICK).run([("none.so", (("TENSOR", "float32", (4,)),))])
    assert (outcome.failure, outcome.seconds) == (Failure.RUN_ERROR, ())
    assert "none.so" in outcome.message


def test_no_other_process_measures_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_gnn_cost.schedulers import turn_runner

    held = []

    @contextmanager
    def lock() -> Iterator[None]:
        held.append("taken")
        yield
        held.append("released")

    monkeypatch.setattr(turn_runner, "machine_to_itself", lock)
    turn_runner.turn_runner(QUICK).run([("none.so", ())])
    assert held == ["taken", "released"]
    assert turn_runner.turn_runner(QUICK).run([]) == []
    assert held == ["taken", "released"]


@pytest.mark.parametrize(("patience", "runs"), [(0.0, 1), (60.0, 3)])
def test_a_batch_is_measured_again_while_others_are_busy(
    monkeypatch: pytest.MonkeyPatch, patience: float, runs: int
) -> None:
    from tvm_gnn_cost.schedulers import turn_runner

    others = iter([1.5, 0.5, 0.0])
    measured = []

    class Load:
        def __init__(self) -> None:
            measured.append("begun")

        def cores(self) -> float:
            return next(others)

    monkeypatch.setattr(turn_runner, "OtherLoad", Load)
    turn_runner.TurnRunner(MeasureSettings(patience_s=patience)).run([("none.so", ())])
    assert len(measured) == runs


def test_a_batch_is_spread_over_the_machines_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_gnn_cost.schedulers.turn_runner import TurnRunner

    batches = []

    def run(_: TurnRunner, programs: Sequence[tuple[str, tuple[object, ...]]]) -> list[Outcome]:
        batches.append([int(name) for name, _ in programs])
        return [Outcome((float(name),)) for name, _ in programs]

    monkeypatch.setattr(TurnRunner, "run", run)
    for machines, count, expected in (
        (1, 3, [[0, 1, 2]]),
        (2, 5, [[0, 2, 4], [1, 3]]),
        (3, 2, [[0], [1]]),
        (2, 0, [[]]),
    ):
        monkeypatch.setattr(TurnRunner, "machines", lambda _, machines=machines: machines)
        outcomes = TurnRunner(QUICK).spread([(str(number), ()) for number in range(count)])
        assert [outcome.latency for outcome in outcomes] == list(range(count))
        assert sorted(batches) == expected
        batches.clear()


def test_equal_settings_share_a_worker() -> None:
    from tvm_gnn_cost.schedulers.turn_runner import turn_runner

    assert turn_runner(QUICK) is turn_runner(MeasureSettings(repeats=2))
