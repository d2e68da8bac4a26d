"""A real search of the installed TVM's scheduler: four tasks of a perceptron, built, run and compared."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.progress import Event, Note, Stage, TrialsMeasured
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.result import FILE_NAME, PHASES, TuneResult, load_result
from tvm_gnn_cost.tuning.tune import default_work_dir, tune

pytestmark = pytest.mark.needs("tvm")

TASKS = 4
#: A perceptron of four tasks, and another network.
NETWORKS = {"meta-schedule": ("perceptron", "dcgan"), "auto-scheduler": ("mlp", "dqn")}


def search(work_dir: Path, trials: int, cost_model: str, **changes: Any) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    settings = {"network": NETWORKS[scheduler().name][0], "batch": 2, "population": 16} | changes
    result = tune(trials=trials, cost_model=cost_model, work_dir=work_dir, progress=events.append, **settings)
    return result, events


def batches(events: list[Event]) -> list[TrialsMeasured]:
    return [event for event in events if isinstance(event, TrialsMeasured)]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, checkpoint: str) -> tuple[Path, TuneResult, list[Event]]:
    work_dir = tmp_path_factory.mktemp("tune") / "work"
    return work_dir, *search(work_dir, 2 * TASKS, checkpoint)


def records(work_dir: Path) -> list[str]:
    return (work_dir / scheduler().records_file).read_text().splitlines()


def test_every_task_is_measured_and_the_curve_falls(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    work_dir, result, _ = tuned
    assert len(result.tasks) == TASKS
    assert all(task.untuned > 0 and task.weight == 1 for task in result.tasks)
    assert [task.trials for task in result.tasks] == [2] * TASKS
    assert result.trials == len(records(work_dir)) == 2 * TASKS
    latencies = [point.latency for point in result.curve]
    assert latencies == sorted(latencies, reverse=True)
    # Any schedule of the large products beats plain loops by far.
    assert latencies[-1] < 0.7 * latencies[0] == pytest.approx(0.7 * result.untuned_latency)
    assert latencies[-1] == pytest.approx(result.latency)
    seconds = [point.seconds for point in result.curve]
    assert seconds == sorted(seconds)
    assert result.settings.scheduler == scheduler().name
    assert load_result(work_dir) == result


def test_every_batch_is_reported_with_its_task(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    _, result, events = tuned
    found = batches(events)
    assert [event.trials for event in found] == [0, 2, 4, 6, 8] == [point.trials for point in result.curve]
    assert found[0].task == ""
    assert {event.task for event in found[1:]} == {task.name for task in result.tasks}
    assert {event.budget for event in found} == {2 * TASKS}
    assert found[-1].latency == pytest.approx(result.latency)
    assert {Stage("searching")} <= {event for event in events if isinstance(event, Stage)}
    assert not [event for event in events if isinstance(event, Note)]


def test_the_networks_outputs_agree(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    compared = tuned[1].end_to_end
    assert compared is not None
    assert 0 <= compared.tuned_difference < 1e-5
    assert 0 <= compared.untuned_difference < 1e-5
    assert min(compared.untuned + compared.tuned) > 0


@pytest.mark.needs("s_tir")
def test_the_tuned_network_is_faster_than_todays_default(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    compared = tuned[1].end_to_end
    assert compared is not None
    assert min(compared.tuned) < min(compared.untuned)


def test_the_time_is_accounted_for(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    result = tuned[1]
    assert set(result.seconds) <= set(PHASES)
    used = {phase for phase, seconds in result.seconds.items() if seconds > 0}
    assert used >= {
        *("preparation", "mutation", "prediction", "model update", "building", "running", "verification"),
    }
    outside = ("preparation", "verification")
    inside = sum(seconds for phase, seconds in result.seconds.items() if phase not in outside)
    assert inside >= 0.99 * result.curve[-1].seconds


def test_a_finished_run_measures_nothing_again(tuned: tuple[Path, TuneResult, list[Event]], checkpoint: str) -> None:
    again, events = search(tuned[0], 2 * TASKS, checkpoint)
    assert again == tuned[1] == load_result(tuned[0])
    assert events == []


def test_more_trials_go_on_from_the_records(
    tuned: tuple[Path, TuneResult, list[Event]], tmp_path: Path, checkpoint: str
) -> None:
    before, result, _ = tuned
    work_dir = Path(shutil.copytree(before, tmp_path / "work"))
    # As a kill in the middle of a write leaves it.
    with (work_dir / scheduler().records_file).open("a") as file:
        file.write(records(before)[0][:100])
    more, events = search(work_dir, 2 * TASKS + 2, checkpoint)
    lines = records(work_dir)
    assert lines[: 2 * TASKS] == records(before)
    # auto_scheduler gives every task a round first.
    assert more.trials == len(lines) == len(set(lines)) >= 2 * TASKS + 2
    assert more.curve[: len(result.curve)] == result.curve
    assert batches(events)[0].trials == 2 * TASKS
    assert [task.untuned for task in more.tasks] == [task.untuned for task in result.tasks]
    # TVM writes a record's seconds with six digits.
    assert more.latency <= result.latency * (1 + 1e-5)


def test_a_work_directory_of_other_settings_is_refused(
    tuned: tuple[Path, TuneResult, list[Event]], checkpoint: str
) -> None:
    network, other = NETWORKS[scheduler().name]
    with pytest.raises(InputError, match=f"was tuned with network {network}, not {other}"):
        search(tuned[0], 8, checkpoint, network=other)
    with pytest.raises(InputError, match=r"was tuned with cost model .*, not random"):
        search(tuned[0], 8, "random")
    with pytest.raises(InputError, match="was tuned with seed 0, not 1"):
        search(tuned[0], 8, checkpoint, seed=1)


def test_records_without_a_result_are_refused(tmp_path: Path) -> None:
    (tmp_path / scheduler().records_file).write_text("")
    with pytest.raises(InputError, match="choose another directory"):
        search(tmp_path, 8, "random")


def test_unknown_names_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown .*'nosuch'"):
        search(tmp_path / "work", 8, "random", network="nosuch")
    with pytest.raises(InputError, match="neither gnn, xgb or random"):
        search(tmp_path / "work", 8, "nosuch")
    with pytest.raises(InputError, match="unknown scheduler 'nosuch'; one of: meta-schedule, auto-scheduler"):
        search(tmp_path / "work", 8, "random", scheduler="nosuch")
    assert not (tmp_path / "work").exists()


@pytest.mark.needs("auto_scheduler")
def test_ansor_wants_a_trial_for_each_task(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are 4 tasks; --trials 3 is less than one each"):
        search(tmp_path / "few", 3, "random")
    assert not list(tmp_path.iterdir())


def test_the_scheduler_that_is_not_installed_is_named(tmp_path: Path) -> None:
    here = scheduler().name
    other = next(name for name in NETWORKS if name != here)
    with pytest.raises(WorkError, match=r"this needs .*TVM.*; found"):
        search(tmp_path / "work", 8, "random", scheduler=other)
    assert not list(tmp_path.iterdir())


def test_a_cost_model_that_fails_stops_nothing_and_keeps_its_traceback(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug of the model")

    monkeypatch.setattr("tvm_gnn_cost.training.online.OnlineModel.score", broken)
    result, events = search(tmp_path / "work", TASKS, checkpoint, batch=1)
    assert result.trials == TASKS
    assert result.end_to_end is not None
    (note,) = {event.text for event in events if isinstance(event, Note)}
    assert note.endswith("could not score candidates: a bug of the model")
    assert "Traceback" not in note
    log = (tmp_path / "work" / "logs" / "cost-model.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "ZeroDivisionError: a bug of the model" in log
    assert not [type(handler) for handler in logging.getLogger("tvm_gnn_cost").handlers]


def test_the_default_work_directory_names_scheduler_network_and_model() -> None:
    assert default_work_dir("a/b", "models/best.safetensors", "auto-scheduler") == Path("work/auto-scheduler-a-b-best")


def test_a_damaged_result_is_named(tuned: tuple[Path, TuneResult, list[Event]], tmp_path: Path) -> None:
    whole = json.loads((tuned[0] / FILE_NAME).read_text())
    for damaged in ("{", "[]", json.dumps(whole | {"settings": {}}), json.dumps(whole | {"tasks": [{"weight": 1}]})):
        (tmp_path / FILE_NAME).write_text(damaged)
        with pytest.raises(InputError, match="is not a tuning result"):
            load_result(tmp_path)
