from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput, MeasureResult

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.measure import outcome_of
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import (
    RECORDS,
    UNTUNED,
    latencies,
    read_records,
    save_untuned,
    schedules,
)
from tvm_gnn_cost.schedulers.scheduler import Task


def result(seconds: float, code: int = 0) -> MeasureResult:
    return MeasureResult([seconds, 3 * seconds, seconds / 2], code, "", 0.1, 7)


@pytest.fixture
def work_dir(tmp_path: Path, tasks: list[Task]) -> Path:
    """Two records of the first task, of which one failed, and one of the third."""
    states = [task.workload.compute_dag.get_init_state() for task in tasks]
    for number, seconds, code in ((0, 0.5, 0), (2, 0.25, 0), (0, 1e10, 7)):
        measured = MeasureInput(tasks[number].workload, states[number])
        auto_scheduler.save_records(str(tmp_path / RECORDS), [measured], [result(seconds, code)])
    return tmp_path


def test_latencies_are_the_medians_of_the_repeats_by_task(work_dir: Path, tasks: list[Task]) -> None:
    assert latencies(tasks, work_dir) == [[0.5, float("inf")], [], [0.25], []]
    # Another network's records count for none.
    assert latencies(tasks[1:2], work_dir) == [[]]


def test_half_a_last_line_is_cut_off(work_dir: Path, tasks: list[Task]) -> None:
    whole = (work_dir / RECORDS).read_text()
    (work_dir / RECORDS).write_text(whole + whole[:50])
    assert len(read_records(work_dir / RECORDS)) == 3
    assert (work_dir / RECORDS).read_text() == whole
    assert latencies(tasks, work_dir)[0] == [0.5, float("inf")]


@pytest.mark.parametrize("damaged", ["no record", "{}", "[]", '{"i": [["x"', "null"])
def test_a_damaged_record_is_named(work_dir: Path, tasks: list[Task], damaged: str) -> None:
    with (work_dir / RECORDS).open("a") as file:
        file.write(damaged + "\n")
    with pytest.raises(InputError, match=rf"{work_dir / RECORDS} is damaged, choose another folder"):
        latencies(tasks, work_dir)


def test_no_file_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / RECORDS) == []


def test_tasks_are_compiled_with_the_records_of_the_tuned_ones_alone(work_dir: Path, tasks: list[Task]) -> None:
    states: list[Any] = [task.workload.compute_dag.get_init_state() for task in tasks]
    for seconds in (4.0, 8.0):  # a second measurement replaces the first
        save_untuned(tasks, states, [outcome_of(result(seconds)) for _ in tasks], work_dir)
    assert len((work_dir / UNTUNED).read_text().splitlines()) == 4

    def found(tuned: list[Task]) -> list[tuple[int, float]]:
        keys = [task.key for task in tasks]
        pairs = schedules(tuned, work_dir)
        return [(keys.index(str(one.task.workload_key)), float(cost.costs[0])) for one, cost in pairs]

    untuned = [(number, 8.0) for number in range(4)]
    assert found([]) == untuned
    assert found([tasks[2]]) == [*untuned, (2, 0.25)]
    assert found(tasks) == [*untuned, (0, 0.5), (2, 0.25), (0, 1e10)]
