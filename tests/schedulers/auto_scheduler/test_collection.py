"""Made-up measurements; ``tests/tuning/test_collect.py`` collects real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm.auto_scheduler.measure import MeasureResult

from tests.schedulers.auto_scheduler.small_tasks import broken_state
from tvm_gnn_cost.datasets.tenset import parse_record
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.card import today
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.schedulers.auto_scheduler import collection as module
from tvm_gnn_cost.schedulers.auto_scheduler.collection import TensetCollection
from tvm_gnn_cost.schedulers.auto_scheduler.measure import outcome_of
from tvm_gnn_cost.schedulers.auto_scheduler.networks import tasks_of_workload
from tvm_gnn_cost.schedulers.auto_scheduler.records import read_tenset
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import sample_states
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import load_pickle
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Task

PLAN = CollectPlan(("softmax/0", "pooling/1"), random=3, guided=2, turns=1)
TARGET = local_target("here")


@pytest.fixture(scope="module")
def operators() -> list[tuple[str, list[Task]]]:
    return [(name, tasks_of_workload(name, TARGET)) for name in PLAN.workloads]


@pytest.fixture(scope="module")
def softmax(operators: list[tuple[str, list[Task]]]) -> Task:
    return operators[0][1][0]


def opened(folder: Path, workloads: Sequence[tuple[str, Sequence[Task]]], plan: CollectPlan = PLAN) -> TensetCollection:
    collection = TensetCollection(folder, plan, "here", TARGET, describe_machine())
    collection.open()
    collection.add_tasks(workloads)
    return collection


def made_up(count: int, failed: int = 0) -> list[Outcome]:
    """Outcomes, as if the last ones had failed."""
    results = [MeasureResult([0.123456789 / (1 + i), 0.5], 0, "", 0.1, 7) for i in range(count - failed)]
    return [outcome_of(one) for one in [*results, *[MeasureResult([1e10], 7, "too slow", 0.1, 7)] * failed]]


def fill(collection: TensetCollection, task: Task, phase: Any = "random", failed: int = 0) -> list[Any]:
    ((of, states),) = collection.sample(phase, [(task, collection.missing(task, phase))])
    assert of is task
    collection.append(phase, task, states, made_up(len(states), failed))
    return states


def test_tasks_and_card_are_in_tensets_layout(
    tmp_path: Path, operators: list[tuple[str, list[Task]]], tasks: list[Task]
) -> None:
    opened(tmp_path, [*operators, ("mlp-1", tasks)])
    info = tmp_path / "network_info"
    assert sorted(path.name for path in info.iterdir()) == ["((mlp_1,[]),llvm).task.pkl", "all_tasks.pkl"]
    found, weights = load_pickle(info / "((mlp_1,[]),llvm).task.pkl")
    assert [str(task.workload_key) for task in found] == [task.key for task in tasks]
    assert weights == [task.weight for task in tasks]
    keys = [task.key for _, some in operators for task in some] + [task.key for task in tasks]
    assert {str(task.workload_key) for task in load_pickle(info / "all_tasks.pkl")} == set(keys)
    assert json.loads((tmp_path / "here.card.json").read_text()) == {
        "machine": describe_machine(),
        "target": str(TARGET),
        "runs": [
            {
                "date": today(),
                "workloads": ["softmax/0", "pooling/1"],
                "random": 3,
                "guided": 2,
                "seed": 0,
                "repeats": 4,
                "turns": 1,
                "space": "package",
                "guide": "xgb",
            }
        ],
    }


def test_others_tasks_stay(tmp_path: Path, operators: list[tuple[str, list[Task]]], tasks: list[Task]) -> None:
    opened(tmp_path, operators[:1])
    opened(tmp_path, operators[1:])
    assert len(load_pickle(tmp_path / "network_info" / "all_tasks.pkl")) == 2
    opened(tmp_path, [("net", tasks)], replace(PLAN, workloads=("net", "softmax/0")))
    assert len(load_pickle(tmp_path / "network_info" / "all_tasks.pkl")) == 6
    card = json.loads((tmp_path / "here.card.json").read_text())
    assert [run["workloads"] for run in card["runs"]] == [["softmax/0", "pooling/1"], ["net", "softmax/0"]]


def test_a_file_of_records_is_named_after_its_task(tmp_path: Path, softmax: Task) -> None:
    collection = opened(tmp_path, [("softmax/0", [softmax])])
    fill(collection, softmax)
    (file,) = (tmp_path / "measure_records" / "here").iterdir()
    key = "".join(character for character in softmax.key if character not in " '\"")
    assert file.name == f"({key},llvm).json"
    records = [parse_record(line) for line in read_tenset(tmp_path).lines()]
    assert [record.workload_key for record in records] == [softmax.key] * 3
    assert [record.target for record in records] == [str(TARGET)] * 3
    assert [record.run_secs for record in records] == [(0.123457, 0.5), (0.0617284, 0.5), (0.0411523, 0.5)]


def test_what_was_measured_is_found_again_and_not_sampled_again(tmp_path: Path, softmax: Task) -> None:
    first = opened(tmp_path, [("softmax/0", [softmax])])
    assert [first.missing(softmax, "random"), first.missing(softmax, "guided")] == [3, 5]
    fill(first, softmax, failed=1)
    assert [first.missing(softmax, "random"), first.missing(softmax, "guided")] == [0, 2]
    again = opened(tmp_path, [("softmax/0", [softmax])])
    assert [again.missing(softmax, "random"), again.missing(softmax, "guided")] == [0, 2]
    assert first.count() == again.count() == (3, 1)
    # The same programs come next as if nothing had interrupted it.
    ((_, states),) = again.sample("guided", [(softmax, 2)])
    assert list(map(str, states)) == list(map(str, first.sample("guided", [(softmax, 2)])[0][1]))
    again.append("guided", softmax, states, made_up(2))
    lines = [line.text for line in read_tenset(tmp_path).lines()]
    assert len({json.dumps(json.loads(text)["i"][1]) for text in lines}) == len(lines) == 5


def test_a_line_that_is_no_record_is_named_and_left_out(tmp_path: Path, softmax: Task) -> None:
    states = fill(opened(tmp_path, [("softmax/0", [softmax])]), softmax)
    (file,) = (tmp_path / "measure_records" / "here").iterdir()
    whole = file.read_text()
    file.write_text("no record\n" + whole + whole[:30])
    # The same task twice is read once.
    again = opened(tmp_path, [("softmax/0", [softmax]), ("other", [softmax])])
    (problem,) = again.problems
    assert str(problem).startswith(f"{file}:1: not JSON")
    assert file.read_text() == "no record\n" + whole
    assert again.count() == (3, 0)
    again.append("guided", softmax, states[:1], made_up(1))
    assert len(again.problems) == 1


def test_a_guide_learns_from_programs_that_ran(tmp_path: Path, softmax: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, bool, int]] = []

    def states(task: Any, count: int, seed: int, guide: Any, known: Sequence[str]) -> list[Any]:
        asked.append((count, seed, guide is not None, len(known)))
        return sample_states(task, count, 1 + len(asked), None, known)

    monkeypatch.setattr(module, "sample_states", states)
    plan = replace(PLAN, seed=10)
    collection = opened(tmp_path, [("softmax/0", [softmax])], plan)
    fill(collection, softmax, failed=3)
    fill(collection, softmax, "guided")
    # Interrupted before all random programs were there: guided ones take their place.
    more = opened(tmp_path, [("softmax/0", [softmax])], replace(plan, random=6))
    assert (more.missing(softmax, "random"), more.missing(softmax, "guided")) == (1, 3)
    fill(more, softmax, "guided")
    assert more.missing(softmax, "guided") == 0
    assert asked == [(3, 10, False, 0), (2, 13, False, 3), (3, 15, True, 5)]


def test_another_machines_records_are_refused(tmp_path: Path, softmax: Task) -> None:
    fill(opened(tmp_path, [("softmax/0", [softmax])]), softmax)
    card = tmp_path / "here.card.json"
    whole = card.read_text()

    def open_again() -> None:
        TensetCollection(tmp_path, PLAN, "here", TARGET, describe_machine())

    card.write_text(whole.replace('"target": "llvm', '"target": "cuda'))
    with pytest.raises(InputError, match=r"here\.card\.json: measured with the target cuda.*choose another"):
        open_again()
    card.write_text(whole.replace('"processor": "', '"processor": "An older '))
    with pytest.raises(InputError, match=r"here\.card\.json: measured with the processor An older .*choose another"):
        open_again()
    for text in ("no JSON", "[]", '{"machine": {}}'):
        card.write_text(text)
        with pytest.raises(InputError, match=r"here\.card\.json is not a card of measurements"):
            open_again()
    card.unlink()
    with pytest.raises(
        InputError, match=r"here has records, but here\.card\.json with their machine is missing.*another hardware name"
    ):
        open_again()
    TensetCollection(tmp_path, PLAN, "there", TARGET, describe_machine())


def test_a_pickle_that_holds_no_tasks_is_named(tmp_path: Path, softmax: Task) -> None:
    opened(tmp_path, [("softmax/0", [softmax])])
    (tmp_path / "network_info" / "all_tasks.pkl").write_bytes(b"cos\nsystem\n.")
    with pytest.raises(InputError, match=r"all_tasks\.pkl is rejected: it uses os\.system"):
        opened(tmp_path, [("softmax/0", [softmax])])


def test_a_state_that_failed_to_build_is_recorded_too(tmp_path: Path, softmax: Task) -> None:
    collection = opened(tmp_path, [("softmax/0", [softmax])])
    failed = outcome_of(MeasureResult([1e10], 1, "no such stage", 0.1, 7))
    collection.append("random", softmax, [broken_state(softmax.workload)], [failed])
    assert collection.count() == (1, 1)
    assert opened(tmp_path, [("softmax/0", [softmax])]).count() == (1, 1)
