from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.bandwidth import CopySpeed
from tvm_gnn_cost.schedulers.scheduler import Kernel, Profile
from tvm_gnn_cost.tuning.result import (
    FILE_NAME,
    CurvePoint,
    EndToEnd,
    NetworkTimes,
    Settings,
    TaskResult,
    TuneResult,
    load_result,
    resume,
)

SETTINGS = Settings("net", 8, None, "gnn", 0, "{}", 2, 16, "meta-schedule")

END_TO_END = EndToEnd(
    [
        NetworkTimes("tuned", [0.5], 2e-7),
        NetworkTimes("PyTorch", [], failure="it is not installed"),
        NetworkTimes("untuned", [1.0], 1e-7),
    ],
    matrix_product=1e10,
    reference="PyTorch",
    peers=True,
)
PROFILE = Profile([Kernel("a", 2, 0.25), Kernel("vm.builtin.alloc_tensor", 3, 1e-6)], 0.5, 0.6)

#: What a version before the peers saved.
OLD_END_TO_END = {"untuned": [1.0], "tuned": [0.5], "untuned_difference": 1e-7, "tuned_difference": 2e-7}


def result() -> TuneResult:
    return TuneResult(
        SETTINGS,
        {"processor": "p"},
        {"torch": "1"},
        "2026-01-01",
        tasks=[TaskResult("a", 2, 4.0, flops=6e9), TaskResult("b", 1, 1.0, flops=4e9)],
        curve=[CurvePoint(0, 0.0, 9.0)],
    )


def test_measured_programs_are_counted() -> None:
    task = TaskResult("a", 1, 4.0)
    task.add([math.inf])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (1, 1, None, False, 4.0)
    task.add([5.0, math.inf])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (3, 2, 5.0, False, 4.0)
    task.add([3.0, 3.5])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (5, 2, 3.0, True, 3.0)


def test_the_records_decide_what_was_measured() -> None:
    found = result()
    found.tasks[0].add([0.5])
    found.recount_trials([[2.0, math.inf], []])
    assert [(task.trials, task.failed, task.best) for task in found.tasks] == [(2, 1, 2.0), (0, 0, None)]
    assert (found.trials, found.latency) == (2, 5.0)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = result()
    found.end_to_end = END_TO_END
    found.copies, found.profile, found.kernels = [CopySpeed(1024, 1e10)], PROFILE, {"a": [0, 1]}
    found.spend("mutation", 1.0)
    found.spend("mutation", 2.0)
    found.save(tmp_path)
    again = load_result(tmp_path)
    assert again == found
    assert again.work_dir == tmp_path
    assert str(tmp_path) not in (tmp_path / FILE_NAME).read_text()
    assert found.seconds == {"mutation": 3.0}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_run_is_finished_when_its_budget_is_used_and_it_was_compared() -> None:
    found = result()
    assert not found.finished
    found.searched = True
    assert not found.finished
    found.end_to_end = END_TO_END
    assert found.finished


def test_speeds_follow_from_operations_and_seconds() -> None:
    found = result()
    found.tasks[0].add([2.0])
    assert found.flops == 2 * 6e9 + 4e9
    assert found.share_of_matrix_product(6e9, 2.0) is None
    assert "of_matrix_product" in found.as_json()["tasks"][0]
    found.end_to_end = END_TO_END
    assert found.share_of_matrix_product(6e9, 2.0) == 0.3
    assert found.share_of_matrix_product(0.0, 2.0) is None
    data = found.as_json()
    assert [(task["gflops"], task["of_matrix_product"]) for task in data["tasks"]] == [(3.0, 0.3), (4.0, 0.4)]
    assert [(one["name"], one["gflops"]) for one in data["end_to_end"]["networks"]] == [
        *(("tuned", 32.0), ("PyTorch", None), ("untuned", 16.0)),
    ]
    assert json.dumps(data)


def test_the_roofline_is_the_slower_of_operations_and_bytes() -> None:
    found = result()
    task = replace(found.tasks[1], flops=4e9, bytes=1e9)
    assert found.share_of_roofline(task) is None
    found.copies = [CopySpeed(10**6, 1e10), CopySpeed(10**8, 2e9)]
    assert found.share_of_roofline(task) == pytest.approx(0.5)
    found.end_to_end = END_TO_END
    # Operations for 0.4 s, and bytes for 0.5 s.
    assert found.share_of_roofline(task) == pytest.approx(0.5)
    assert found.share_of_roofline(replace(task, bytes=0.0)) == pytest.approx(0.4)
    assert found.share_of_roofline(replace(task, untuned=None)) is None
    assert [one["of_roofline"] for one in found.as_json()["tasks"]] == pytest.approx([0.15, 0.4])


def test_a_task_faster_than_the_matrix_product_is_the_roofline_itself() -> None:
    found = result()
    found.end_to_end = replace(END_TO_END, matrix_product=2e9)
    assert found.share_of_matrix_product(4e9, 1.0) == 2
    assert [one["of_roofline"] for one in found.as_json()["tasks"]] == pytest.approx([0.375, 1.0])


def test_of_two_tasks_that_compute_the_same_the_faster_one_is_used() -> None:
    found = result()
    found.tasks += [TaskResult("c", 2, None, flops=1e9, instead_of=0)]
    assert found.rivals == {0: 2, 2: 0}
    # Not measured, it is no part of the network, and its operations never count.
    assert (found.used, found.latency) == ([True, True, False], 9.0)
    found.tasks[2].add([3.0])
    assert (found.used, found.latency) == ([False, True, True], 7.0)
    assert found.flops == 2 * 6e9 + 4e9
    assert [task["used"] for task in found.as_json()["tasks"]] == [False, True, True]
    found.tasks[0].add([2.0])
    assert (found.used, found.latency) == ([True, True, False], 5.0)
    # Where nothing is measured, the one that computes less replaces the other.
    found.tasks[0] = TaskResult("a", 2, None)
    found.tasks[2] = TaskResult("c", 2, None, instead_of=0)
    assert found.used == [False, True, True]


def test_the_latency_of_repeats_is_their_median() -> None:
    assert NetworkTimes("tuned", [3.0, 1.0, 2.0]).latency == 2.0
    assert NetworkTimes("PyTorch", [], failure="no").latency == math.inf
    assert END_TO_END.tuned.seconds == [0.5]


def test_an_unfinished_tuning_has_no_library_to_run(tmp_path: Path) -> None:
    found = result()
    found.save(tmp_path)
    with pytest.raises(InputError, match="has no library, tuning is not finished; tune again to resume"):
        load_result(tmp_path).run(1.0)
    found.library = "net.so"
    found.save(tmp_path)
    with pytest.raises(InputError, match=r"net\.so does not exist; tune in "):
        load_result(tmp_path).run(1.0)


def test_a_work_directory_is_resumed_with_more_trials_and_no_other_change(tmp_path: Path) -> None:
    assert resume(SETTINGS, tmp_path, "records.json", {"torch": "2"}, {}).tasks == []
    result().save(tmp_path)
    more = Settings("net", 16, None, "gnn", 0, "{}", 2, 16, "meta-schedule")
    assert resume(more, tmp_path, "records.json", {"torch": "2"}, {}).settings == more
    with pytest.raises(InputError, match="was tuned with batch size 2, not 4"):
        resume(
            Settings("net", 8, None, "gnn", 0, "{}", 4, 16, "meta-schedule"),
            tmp_path,
            "records.json",
            {"torch": "2"},
            {},
        )


def test_another_budget_goes_on_unless_it_is_covered(tmp_path: Path) -> None:
    found = result()
    found.tasks[0].trials, found.searched, found.seconds = 8, True, {"building": 90.0}
    found.stopped = "stopped early"
    found.save(tmp_path)

    def searched(trials: int | None, minutes: float | None) -> bool:
        return resume(replace(SETTINGS, trials=trials, minutes=minutes), tmp_path, "r", {"torch": "2"}, {}).searched

    assert searched(8, None)
    assert searched(4, None)
    assert not searched(9, None)
    assert searched(None, 1.0)
    assert not searched(None, 2.0)
    assert resume(replace(SETTINGS, trials=9), tmp_path, "r", {"torch": "2"}, {}).stopped == ""
    assert resume(SETTINGS, tmp_path, "r", {"torch": "2"}, {}).stopped == "stopped early"
    assert searched(9, 1.0)


def test_a_task_without_measurement_has_no_latency() -> None:
    assert TaskResult("a", 1, None).latency == math.inf
    assert not TaskResult("a", 1, None).improved
    assert TaskResult("a", 1, None, best=1.0).improved


def task(**changes: object) -> dict[str, object]:
    return {"tasks": [{"name": "a", "weight": 1, "untuned": None, **changes}]}


def networks(*found: dict[str, object], **changes: object) -> dict[str, object]:
    whole = {"networks": list(found), "matrix_product": None, "reference": "PyTorch", "peers": True, **changes}
    return {"end_to_end": whole}


def profile(**changes: object) -> dict[str, object]:
    kernel = {"name": "a", "calls": 1, "seconds": 1.0, **changes}
    return {"profile": {"kernels": [kernel], "seconds": 1.0, "profiled": 1.0}}


TUNED: dict[str, object] = {"name": "tuned", "seconds": [0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": {"mutation": "30"}}, "the field 'seconds.mutation' has the wrong value '30'"),
        ({"seconds": {"mutation": -1}}, "the seconds of phase 'mutation' must be between 0 and 1e[+]12, not -1"),
        ({"seconds": {"mutation": math.nan}}, "the field 'seconds.mutation' has the wrong value nan"),
        ({"seconds": {"mutation": math.inf}}, "the seconds of phase 'mutation' must be between 0 and "),
        (task(name="\ud800"), "a lone surrogate"),
        (task(name=3), r"the field 'tasks\[0\].name' has the wrong value 3"),
        (task(weight=0), "the weight of task 0 must be between 1 and "),
        (task(weight=1 << 62), "the weight of task 0 must be between 1 and "),
        (task(untuned=0), "a latency of task 0 must be between 1e-12 and "),
        (task(best=0.0), "a latency of task 0 must be between 1e-12 and "),
        (task(best="1"), r"the field 'tasks\[0\].best' has the wrong value '1'"),
        (task(best=math.inf), "a latency of task 0 must be between 1e-12 and "),
        (task(flops=-1), "the operations of task 0 must be between 0 and "),
        (task(bytes=-1), "the bytes of task 0 must be between 0 and "),
        ({"copies": [{"size": 0, "speed": 1e9}]}, "the size of a copy must be between 1 and "),
        ({"copies": [{"size": 1, "speed": 0.0}]}, "the speed of a copy must be between 1 and "),
        ({"kernels": {"a": [0, 2]}}, "the task of kernel 'a' must be between 0 and 1, not 2"),
        (profile(calls=0), "the calls of kernel 'a' must be between 1 and "),
        (profile(seconds=-1.0), "the seconds of kernel 'a' must be between 0 and "),
        ({"profile": {"kernels": [], "seconds": 0.0, "profiled": 1.0}}, "the seconds of a profiled run must be"),
        (task(failed=1), "the failed programs of task 0 must be between 0 and 0, not 1"),
        (task(instead_of=1), "the rival of task 0 must be between 0 and 0, not 1"),
        (task(instead_of=0), "task 0 replaces itself"),
        (task(new=0), r"the field 'tasks\[0\].new' is unknown"),
        ({"curve": [{"trials": 1, "seconds": 1, "latency": 0}]}, "the latency of a point of the curve must be between"),
        (
            {"curve": [{"trials": 1, "seconds": "1", "latency": 1}]},
            r"the field 'curve\[0\].seconds' has the wrong value",
        ),
        ({"versions": {"torch": 1}}, "the field 'versions.torch' has the wrong value 1"),
        ({"machine": 3}, "the field 'machine' has the wrong value 3"),
        ({"work_dir": "/"}, "the field 'work_dir' has the wrong value '/'"),
        ({"new": 1}, "the field 'new' is unknown"),
        (networks(), "the number of networks must be between 1 and 100, not 0"),
        (networks({"name": "a", "seconds": [1]}), "lacks the tuned network"),
        (networks({"name": "tuned", "seconds": []}), "lacks the tuned network"),
        (networks({"name": "tuned", "seconds": [0.0]}), "a latency of 'tuned' must be between"),
        (networks({"name": "tuned", "seconds": ["1"]}), r"the field 'end_to_end.networks\[0\].seconds\[0\]' has"),
        (networks(TUNED, matrix_product=0), "the speed of a matrix product must be between"),
        (networks({**TUNED, "difference": -1}), "the difference of 'tuned' must be between"),
        (
            {"settings": {**asdict(SETTINGS), "population_size": 10**14}},
            "population_size must be between 8 and 100000, not 1000",
        ),
    ],
)
def test_what_no_tuning_measures_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    result().save(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=f"is not a tuning result of this version .*{message}"):
        load_result(tmp_path)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"^population_size must be between 8 and 100000, not 1000000000000$"):
        replace(SETTINGS, population_size=10**12)


def test_records_without_a_result_and_a_missing_result_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no network was tuned in"):
        load_result(tmp_path)
    (tmp_path / "records.json").write_text("")
    with pytest.raises(InputError, match=r"has records\.json but no tuning\.json"):
        resume(SETTINGS, tmp_path, "records.json", {"torch": "2"}, {})


@pytest.mark.parametrize(
    "change", [{"settings": {}}, {"tasks": [{"weight": 1}]}, {"end_to_end": 3}, {"end_to_end": OLD_END_TO_END}]
)
def test_a_damaged_result_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    result().save(tmp_path)
    whole = json.loads((tmp_path / FILE_NAME).read_text())
    (tmp_path / FILE_NAME).write_text(json.dumps(whole | change))
    with pytest.raises(InputError, match=r"is not a tuning result of this version \(.*remove it"):
        load_result(tmp_path)
