from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.schedulers.conftest import QUICK
from tests.schedulers.rack import Rack, free_port
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.machines import count_machines
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task
from tvm_gnn_cost.schedulers.turn_runner import TurnRunner

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with Rack(2) as found:
        yield found


def measure(rack: Rack, groups: list[tuple[Task, list[Any]]], target: Any) -> list[list[Outcome]]:
    settings = replace(QUICK, tracker=rack.tracker)
    return [outcomes for _, outcomes in scheduler().measure(groups, target, settings)]


def test_programs_run_on_the_count_machines_a_tracker(
    rack: Rack, task: Task, candidates: list[Any], target: Any
) -> None:
    assert TurnRunner(replace(QUICK, tracker=rack.tracker)).machines() == 2
    for outcomes in measure(rack, [(task, candidates)] * 3, target):
        assert len(outcomes) == len(candidates)
        assert all(len(one.seconds) == QUICK.repeats and 0 < one.latency < 1 for one in outcomes)


def test_what_fails_on_a_machine_has_failed(rack: Rack) -> None:
    runner = TurnRunner(replace(QUICK, tracker=rack.tracker))
    outcomes = runner.run([("none.so", (("TENSOR", "float32", (4,)),))] * 2)
    assert [(one.failure, one.seconds) for one in outcomes] == [(Failure.RUN_ERROR, ())] * 2


# The last test of the rack: it leaves nothing of it.
@pytest.mark.slow_with("auto_scheduler")
def test_a_machine_that_dies_costs_nothing(rack: Rack, task: Task, candidates: list[Any], target: Any) -> None:
    measure(rack, [(task, candidates[:1])], target)  # starts the workers

    def kill() -> None:
        time.sleep(1)
        rack.kill(1)

    killer = threading.Thread(target=kill)
    killer.start()
    found = measure(rack, [(task, candidates)] * 6, target)
    killer.join()
    assert [len(outcomes) for outcomes in found] == [len(candidates)] * 6
    assert all(outcome.failure is None for outcomes in found for outcome in outcomes)
    assert rack.registered() == 1
    rack.kill(2)
    with pytest.raises(WorkError, match=r"^no machine with the key 'board' is registered at the tracker 127\.0\.0\.1:"):
        measure(rack, [(task, candidates[:1])], target)


def test_a_tracker_that_is_not_there_is_named() -> None:
    tracker = Tracker("127.0.0.1", free_port(), "board")
    with pytest.raises(WorkError, match=rf"^no RPC tracker answers at 127\.0\.0\.1:{tracker.port}"):
        count_machines(tracker)
