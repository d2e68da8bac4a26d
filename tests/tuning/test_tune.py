"""A real search: four tasks of a perceptron, built, run and compared with PyTorch."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from tvm_gnn_cost.tuning.records import RECORDS
from tvm_gnn_cost.tuning.result import FILE_NAME, PHASES, TuneResult, load_result
from tvm_gnn_cost.tuning.tune import make_cost_model, tune


class Log:
    def __init__(self):
        self.statuses = []
        self.batches = []
        self.events = []

    def status(self, text):
        self.statuses.append(text)
        self.events.append(text.split(":")[0])

    def note(self, text):
        raise AssertionError(text)

    def measured(self, result, task):
        self.batches.append((result.trials, task))
        self.events.append("measured")


def search(work_dir: Path, trials: int, **changes) -> tuple[TuneResult, Log]:
    log = Log()
    settings = {"network": "perceptron", "cost_model": "random", "batch": 2, "population": 8} | changes
    return tune(trials=trials, work_dir=work_dir, progress=log, **settings), log


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> tuple[Path, TuneResult, Log]:
    work_dir = tmp_path_factory.mktemp("tune") / "work"
    return work_dir, *search(work_dir, 8)


def records(work_dir: Path) -> list[str]:
    return (work_dir / RECORDS).read_text().splitlines()


def test_every_task_is_measured_and_the_curve_falls(tuned):
    work_dir, result, log = tuned
    assert len(result.tasks) == 4
    assert all(task.untuned > 0 and task.weight == 1 for task in result.tasks)
    assert result.trials == 8 == len(records(work_dir))
    assert [task.trials for task in result.tasks] == [2, 2, 2, 2]
    latencies = [point.latency for point in result.curve]
    assert latencies == sorted(latencies, reverse=True)
    # Any schedule of the two large products beats TVM's plain loops by far.
    assert latencies[-1] < 0.7 * latencies[0] == pytest.approx(0.7 * result.untuned_latency)
    assert latencies[-1] == pytest.approx(result.latency)
    assert [point.trials for point in result.curve] == [0, 2, 4, 6, 8] == [trials for trials, _ in log.batches]
    seconds = [point.seconds for point in result.curve]
    assert seconds == sorted(seconds)


def test_the_tuned_network_is_right_and_faster(tuned):
    _, result, _ = tuned
    assert result.end_to_end is not None
    assert result.end_to_end.tuned_difference < 1e-5
    assert result.end_to_end.untuned_difference < 1e-5
    assert min(result.end_to_end.tuned) < min(result.end_to_end.untuned)


def test_the_time_is_accounted_for(tuned):
    _, result, _ = tuned
    assert set(result.seconds) <= set(PHASES)
    for phase in ("preparation", "mutation", "building", "running", "verification"):
        assert result.seconds[phase] > 0
    outside = ("preparation", "verification")
    inside = sum(seconds for phase, seconds in result.seconds.items() if phase not in outside)
    assert inside >= result.curve[-1].seconds


def test_the_steps_are_told(tuned):
    _, result, log = tuned
    for step in ("searching: ", "building: ", "running: "):
        assert any(status.startswith(step) for status in log.statuses)
    assert {task for _, task in log.batches if task} == {task.name for task in result.tasks}


def test_a_batch_is_known_before_the_next_one_is_built(tuned):
    _, _, log = tuned
    steps = [event for event in log.events if event in ("building", "measured")]
    # First of all comes what an earlier run measured: nothing here.
    assert steps == ["measured"] + ["building", "measured"] * 4


def test_a_finished_run_measures_nothing_again(tuned):
    work_dir, result, _ = tuned
    again, log = search(work_dir, 8)
    assert again == result == load_result(work_dir)
    assert log.statuses == log.batches == []


def test_more_trials_go_on_from_the_database(tuned, tmp_path):
    before, result, _ = tuned
    work_dir = tmp_path / "work"
    shutil.copytree(before, work_dir)
    # As a kill in the middle of a write leaves it.
    with (work_dir / RECORDS).open("a") as file:
        file.write('[0, [["half')
    more, log = search(work_dir, 10)
    assert more.trials == 10
    assert records(work_dir)[:8] == records(before)
    assert len(records(work_dir)) == len(set(records(work_dir))) == 10
    assert more.curve[: len(result.curve)] == result.curve
    assert [point.trials for point in more.curve] == [0, 2, 4, 6, 8, 10]
    assert log.batches[0] == (8, "")
    assert [task.untuned for task in more.tasks] == [task.untuned for task in result.tasks]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"network": "dcgan"}, "was tuned with network perceptron, not dcgan"),
        ({"cost_model": "xgb"}, "was tuned with cost model random, not xgb"),
        ({"seed": 1}, "was tuned with seed 0, not 1"),
    ],
)
def test_a_work_directory_of_other_settings_is_refused(tuned, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        search(tuned[0], 8, **change)


def test_a_foreign_database_is_refused(tmp_path):
    (tmp_path / RECORDS).write_text("")
    with pytest.raises(ValueError, match="choose another directory"):
        search(tmp_path, 8)


def test_a_damaged_result_is_named(tuned, tmp_path):
    whole = json.loads((tuned[0] / FILE_NAME).read_text())
    for damaged in ("{", "[]", json.dumps(whole | {"settings": {}}), json.dumps(whole | {"tasks": [{"weight": 1}]})):
        (tmp_path / FILE_NAME).write_text(damaged)
        with pytest.raises(ValueError, match="is not a tuning result"):
            load_result(tmp_path)


def test_unknown_names_leave_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="unknown workload 'nosuch'"):
        search(tmp_path / "work", 8, network="nosuch")
    with pytest.raises(ValueError, match="neither gnn, xgb or random"):
        search(tmp_path / "work", 8, cost_model="nosuch")
    assert not (tmp_path / "work").exists()


def test_xgb_is_tvms_own():
    assert type(make_cost_model("xgb", 0)).__name__ == "XGBModel"
