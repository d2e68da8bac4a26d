"""A real search of the installed TVM's scheduler: four tasks of a perceptron, built, run and compared."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.onnx_files import perceptron, write_perceptron
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.progress import Event, Note, Stage, TrialsMeasured
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.report import write_report
from tvm_gnn_cost.tuning.result import FILE_NAME, PHASES, Settings, TuneResult, load_result
from tvm_gnn_cost.tuning.tune import default_work_dir, tune

pytestmark = pytest.mark.needs("tvm")

TASKS = 4
#: A perceptron of four tasks, and another network.
NETWORKS = {"meta-schedule": ("perceptron", "dcgan"), "auto-scheduler": ("mlp", "dqn")}


def search(work_dir: Path, trials: int | None, cost_model: Any, **changes: Any) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    settings = {"network": NETWORKS[scheduler().name][0], "batch_size": 2, "population_size": 16, "compare": False}
    settings |= {"progress": events.append} | changes
    result = tune(trials=trials, cost_model=cost_model, work_dir=work_dir, **settings)
    return result, events


def batches(events: list[Event]) -> list[TrialsMeasured]:
    return [event for event in events if isinstance(event, TrialsMeasured)]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, checkpoint: str) -> tuple[Path, TuneResult, list[Event]]:
    work_dir = tmp_path_factory.mktemp("tune") / "work"
    return work_dir, *search(work_dir, 2 * TASKS, Path(checkpoint))


@pytest.fixture
def copied(tuned: tuple[Path, TuneResult, list[Event]], tmp_path: Path) -> Path:
    """A copy of the work directory, for a test that changes it."""
    return Path(shutil.copytree(tuned[0], tmp_path / "work"))


def records(work_dir: Path) -> list[str]:
    return (work_dir / scheduler().records_file).read_text().splitlines()


def test_the_tasks_that_matter_are_measured_and_the_curve_falls(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    work_dir, result, _ = tuned
    assert len(result.tasks) == TASKS
    assert all(task.untuned is not None and task.untuned > 0 and task.weight == 1 for task in result.tasks)
    # The last batch is measured whole.
    assert 2 * TASKS <= result.trials == len(records(work_dir)) <= 2 * TASKS + 1
    untuned = sum(task.untuned or 0.0 for task in result.tasks)
    heaviest = max(result.tasks, key=lambda task: task.untuned or 0.0)
    assert heaviest.trials >= 1
    latencies = [point.latency for point in result.curve]
    assert latencies == sorted(latencies, reverse=True)
    # On a busy machine no schedule may be measured faster than plain loops.
    assert latencies[-1] <= untuned
    assert latencies[-1] == pytest.approx(result.latency)
    seconds = [point.seconds for point in result.curve]
    assert seconds == sorted(seconds)
    assert result.settings.scheduler == scheduler().name
    assert load_result(work_dir) == result


def test_the_library_is_profiled_by_task(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    _, result, _ = tuned
    assert result.copies
    assert all(task.bytes > 0 for task in result.tasks)
    assert (result.profile is None) == (scheduler().name == "auto-scheduler")
    if result.profile is not None:
        kernels = [kernel for kernel in result.profile.kernels if kernel.name in result.kernels]
        calls = Counter(place for kernel in kernels for place in result.kernels[kernel.name] * kernel.calls)
        assert calls == dict.fromkeys(range(TASKS), 1)


def test_every_batch_is_reported_with_its_task(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    _, result, events = tuned
    found = batches(events)
    assert [event.trials for event in found] == [point.trials for point in result.curve]
    assert {event.task for event in found} == {task.name for task in result.tasks if task.trials}
    assert {event.budget for event in found} == {2 * TASKS}
    assert found[-1].latency == pytest.approx(result.latency)
    assert {Stage("searching")} <= {event for event in events if isinstance(event, Stage)}
    assert not [event for event in events if isinstance(event, Note)]


# What has to do with one scheduler alone needs both environments; one is enough for the rest of what takes so long.
@pytest.mark.needs("s_tir")
def test_without_trials_the_models_own_choices_are_compiled(tmp_path: Path, checkpoint: str) -> None:
    result, events = search(tmp_path / "work", 0, CostModel.load(checkpoint))
    assert result.settings.cost_model == checkpoint
    assert result.model_failures is None
    assert result.trials == 0
    assert result.curve == []
    assert not batches(events)
    assert Stage("choosing schedules with the cost model") in events
    assert result.end_to_end is not None
    assert all((one.difference or 0.0) < 1e-5 for one in result.end_to_end.networks)
    assert load_result(tmp_path / "work") == result
    # The same folder can be searched afterwards.
    more, _ = search(tmp_path / "work", 2, checkpoint)
    assert more.trials >= 2


@pytest.mark.needs("s_tir")
def test_a_network_that_computes_something_else_is_not_passed_on(
    copied: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / load_result(copied).library).unlink()
    monkeypatch.setattr("tvm_gnn_cost.tuning.end_to_end.relative_difference", lambda *_: 0.25)
    with pytest.raises(WorkError, match=r"in another process: an output differs by 25% .*; do not use it"):
        search(copied, 2 * TASKS, checkpoint)


@pytest.mark.needs("s_tir")
def test_a_wrong_schedule_is_struck_off_and_the_library_is_right(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # TVM's own packing of all constants keeps four rows of this table for one index.
    from tvm import relax

    free = relax.transform.AttachAttrLayoutFreeBuffers()
    monkeypatch.setattr("tvm_gnn_cost.lowering.layouts.free_weights", free)
    table, index = nn.Embedding(148, 256).eval(), torch.tensor([77])
    result, events = search(tmp_path / "work", 0, checkpoint, network=table, example_inputs=(index,))
    assert result.struck
    assert all("computes a wrong output" in one.reason for one in result.struck)
    assert "transform_layout" in result.struck[0].trace
    assert any(isinstance(one, Note) and "is struck off: it computes a wrong output" in one.text for one in events)
    assert load_result(tmp_path / "work").struck == result.struck
    for row in (77, 3):
        found = result.run(np.array([row]))
        np.testing.assert_array_equal(found, table(torch.tensor([row])).detach().numpy())


@pytest.mark.needs("s_tir")
def test_a_search_ends_in_time_and_more_minutes_go_on(
    tuned: tuple[Path, TuneResult, list[Event]], copied: Path, checkpoint: str
) -> None:
    result, events = search(copied, None, checkpoint, minutes=1e-3)
    # The search before took longer.
    assert result.trials == tuned[1].trials
    assert Stage("searching") not in events
    assert result.end_to_end is not None
    for seconds in (5, 60):  # a busy machine may take longer to get ready
        more, events = search(copied, None, checkpoint, minutes=(result.searching_seconds + seconds) / 60)
        if more.trials > result.trials:
            break
    assert more.trials > result.trials
    assert Stage("searching") in events
    assert more.searching_seconds < result.searching_seconds + 120


def test_the_networks_outputs_agree(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    compared = tuned[1].end_to_end
    assert compared is not None
    assert [one.name for one in compared.networks] == ["tuned", "untuned"]
    for one in compared.networks:
        assert one.difference is not None
        assert 0 <= one.difference < 1e-5
        assert min(one.seconds) > 0


@pytest.mark.needs("s_tir")
def test_the_tuned_network_is_faster_than_todays_default(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    assert tuned[1].end_to_end is not None
    fast, slow = tuned[1].end_to_end.networks
    assert min(fast.seconds) < min(slow.seconds)


@pytest.mark.slow_with("auto_scheduler")
def test_the_tuned_network_can_be_run_and_taken_away(
    tuned: tuple[Path, TuneResult, list[Event]], copied: Path, checkpoint: str
) -> None:
    work_dir, result, _ = tuned
    name = NETWORKS[scheduler().name][0]
    assert result.library == f"{name}.so"
    assert {f"{name}.so", f"{name}.json", "run.py"} <= {path.name for path in work_dir.iterdir()}
    network = scheduler().network(name)
    expected = (network.expected or scheduler().compile(network, scheduler().target()).run(network.inputs))[0]
    np.testing.assert_allclose(result.run(*network.inputs.values()), expected, atol=1e-5)
    np.testing.assert_allclose(load_result(work_dir).run(network.inputs), expected, atol=1e-5)
    # A library that is gone is written again, without any search.
    (copied / result.library).unlink()
    again, events = search(copied, 2 * TASKS, checkpoint)
    assert (copied / result.library).exists()
    assert [task.trials for task in again.tasks] == [task.trials for task in result.tasks]
    assert Stage("searching") not in events
    assert len(records(copied)) == result.trials


def test_the_time_is_accounted_for(tuned: tuple[Path, TuneResult, list[Event]]) -> None:
    result = tuned[1]
    assert set(result.seconds) <= set(PHASES)
    used = {phase for phase, seconds in result.seconds.items() if seconds > 0}
    assert used >= set(PHASES) - {"initial population", "other"}
    assert result.searching_seconds >= 0.99 * result.curve[-1].seconds


# With auto_scheduler, collect's test and those of its runner do the same.
@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_other_machines_run_the_programs_and_the_network_and_one_may_die(tmp_path: Path, checkpoint: str) -> None:
    from tests.schedulers.rack import KEY, Rack

    # Built as for another kind of machine: linked where it runs.
    text = '{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2}'
    killed = []

    with Rack(2) as rack:

        def follow(event: Event) -> None:
            if isinstance(event, TrialsMeasured) and not killed:
                rack.kill(1)
                killed.append(event)

        there = {"tracker": str(rack.tracker), "key": KEY, "target": text}
        result, _ = search(tmp_path / "work", 2 * TASKS, checkpoint, compare=True, progress=follow, **there)
        again, events = search(tmp_path / "work", 2 * TASKS, checkpoint, compare=True, **there)
    assert killed
    assert result.trials >= 2 * TASKS
    assert sum(task.failed for task in result.tasks) == 0
    assert result.machine == {"processor": f"machines '{KEY}' of an RPC tracker"}
    assert (result.profile, result.copies) == (None, [])
    assert result.end_to_end is not None
    assert [one.name for one in result.end_to_end.networks] == ["tuned", "untuned"]
    assert all((one.difference or 0.0) < 1e-5 and min(one.seconds) > 0 for one in result.end_to_end.networks)
    assert (result.end_to_end.peers, result.end_to_end.matrix_product) == (False, None)
    assert result.library == f"{NETWORKS[scheduler().name][0]}.tar"
    assert again == result
    assert Stage("searching") not in events
    # The archive is linked by whoever loads it.
    done = subprocess.run([sys.executable, tmp_path / "work" / "run.py"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    with pytest.raises(WorkError, match="no RPC tracker answers"):
        search(tmp_path / "other", 2, checkpoint, **there)
    assert not (tmp_path / "other").exists()


def test_a_finished_run_measures_nothing_again(tuned: tuple[Path, TuneResult, list[Event]], checkpoint: str) -> None:
    again, events = search(tuned[0], 2 * TASKS, checkpoint)
    assert again == tuned[1] == load_result(tuned[0])
    assert events == [Stage("loading the network")]


@pytest.mark.slow_with("auto_scheduler")
def test_more_trials_go_on_from_the_records(
    tuned: tuple[Path, TuneResult, list[Event]], copied: Path, checkpoint: str
) -> None:
    before, result, _ = tuned
    work_dir = copied
    # As a kill in the middle of a write leaves it.
    with (work_dir / scheduler().records_file).open("a") as file:
        file.write(records(before)[0][:100])
    more, events = search(work_dir, 2 * TASKS + 2, checkpoint)
    lines = records(work_dir)
    assert lines[: result.trials] == records(before)
    assert more.trials == len(lines) == len(set(lines)) >= 2 * TASKS + 2
    assert more.curve[: len(result.curve)] == result.curve
    assert batches(events)[0].trials == result.trials
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
    with pytest.raises(InputError, match="neither gnn, xgb, random or mlp"):
        search(tmp_path / "work", 8, "nosuch")
    with pytest.raises(InputError, match="unknown scheduler 'nosuch'; one of: meta-schedule, auto-scheduler"):
        search(tmp_path / "work", 8, "random", scheduler="nosuch")
    assert not (tmp_path / "work").exists()


def test_the_scheduler_that_is_not_installed_is_named(tmp_path: Path) -> None:
    here = scheduler().name
    other = next(name for name in NETWORKS if name != here)
    with pytest.raises(WorkError, match=r"this needs .*TVM.*; found"):
        search(tmp_path / "work", 8, "random", scheduler=other)
    assert not list(tmp_path.iterdir())


@pytest.mark.needs("s_tir")
def test_a_cost_model_that_fails_stops_nothing_and_keeps_its_traceback(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of the model")

    monkeypatch.setattr("tvm_gnn_cost.scoring.cost_model.CostModel.predict", broken)
    result, events = search(tmp_path / "work", TASKS, checkpoint, batch_size=1)
    assert result.trials >= TASKS
    assert result.end_to_end is not None
    note, warning = dict.fromkeys(event.text for event in events if isinstance(event, Note))
    assert note.endswith("could not score candidates: a bug of the model")
    assert "Traceback" not in note
    failures = result.model_failures
    assert failures is not None
    assert 0 < failures.failed < failures.batches  # it can still learn
    said = f"the cost model failed for {failures.failed} of {failures.batches} batches: could not score candidates"
    assert warning == f"warning: {failures}"
    assert str(failures).startswith(said)
    assert load_result(tmp_path / "work").model_failures == failures
    assert said in write_report(tmp_path / "work").read_text()
    log = (tmp_path / "work" / "logs" / "cost-model.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "ZeroDivisionError: a bug of the model" in log
    assert not [type(handler) for handler in logging.getLogger("tvm_gnn_cost").handlers]


def test_a_strict_cost_model_that_fails_ends_the_search(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of the model")

    from tvm_gnn_cost import GNNCostModel

    monkeypatch.setattr("tvm_gnn_cost.scoring.cost_model.CostModel.predict", broken)
    with pytest.raises(Exception, match="a bug of the model"):
        search(tmp_path / "work", TASKS, GNNCostModel(checkpoint, strict=True), batch_size=1)


def test_the_default_work_directory_names_scheduler_network_and_model() -> None:
    assert default_work_dir("a/b", "models/best.safetensors", "auto-scheduler") == Path("work/auto-scheduler-a-b-best")
    assert default_work_dir(Path("models/mine.onnx"), "gnn", "meta-schedule") == Path("work/mine-gnn")
    assert default_work_dir("models.mine:small", "xgb", "meta-schedule") == Path("work/small-xgb")


def test_another_network_of_the_same_name_is_refused(tmp_path: Path) -> None:
    path = write_perceptron(tmp_path / "mine.onnx", perceptron())
    loaded, target = scheduler().network(path, shapes={"x": (16, 784)}), str(scheduler().target())
    settings = Settings("mine", 8, None, "random", 0, target, 2, 16, scheduler().name, loaded.digest)
    TuneResult(settings, {}, {}, "").save(tmp_path)
    weights = write_perceptron(tmp_path / "other" / "mine.onnx", perceptron(seed=1))
    for network, rows in ((weights, 16), (path, 8)):
        with pytest.raises(InputError, match="was tuned with another network 'mine', with other weights or operators"):
            search(tmp_path, 8, "random", network=network, shapes={"x": (rows, 784)})


def test_a_damaged_result_is_named(tuned: tuple[Path, TuneResult, list[Event]], tmp_path: Path) -> None:
    whole = json.loads((tuned[0] / FILE_NAME).read_text())
    for damaged in ("{", "[]", json.dumps(whole | {"settings": {}}), json.dumps(whole | {"tasks": [{"weight": 1}]})):
        (tmp_path / FILE_NAME).write_text(damaged)
        with pytest.raises(InputError, match="is not a tuning result"):
            load_result(tmp_path)


@pytest.mark.needs("s_tir")
@pytest.mark.parametrize("trials", [0, 4])
def test_a_network_without_tasks_is_compiled_as_it_is(tmp_path: Path, trials: int) -> None:
    x = torch.randn(2, 3)
    result = tune(nn.Identity(), (x,), trials, work_dir=tmp_path, compare=False)
    assert result.tasks == []
    np.testing.assert_array_equal(result.run(x), x.numpy())
