"""What every scheduler must do, through the protocol, with the one of the installed TVM."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.progress import Stage
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import (
    SAMPLING_PHASES,
    Chunk,
    CollectPlan,
    MeasureSettings,
    Network,
    Outcome,
    SearchSettings,
    Task,
)
from tvm_gnn_cost.tuning import result as tuning_result

pytestmark = pytest.mark.needs("tvm")


def text(candidate: Any) -> str:
    """The program of a candidate."""
    return str(candidate.sch.mod) if hasattr(candidate, "sch") else str(candidate)


def test_the_attributes() -> None:
    chosen = scheduler()
    assert chosen.checkpoint.is_file()
    assert all(version(package) for package in chosen.packages)
    assert "tvm-gnn-cost" in chosen.packages
    assert any("tvm" in name for name in (*chosen.packages[1:], *chosen.versions()))
    assert Path(chosen.records_file).name == chosen.records_file


def test_the_target_is_this_machines(target: Any) -> None:
    assert "llvm" in str(target)
    assert str(scheduler().target()) == str(target)


def test_the_tasks_of_a_network(network: Network, tasks: list[Task]) -> None:
    assert len(tasks) == len({task.key for task in tasks}) == 4
    assert all(task.weight == 1 and task.name for task in tasks)
    assert network.example.dtype == np.float32


def test_the_task_of_an_operator(target: Any) -> None:
    (task,) = scheduler().tasks_of_workload("softmax/0", target)
    assert task.weight == 1
    assert scheduler().tasks_of_workload("softmax/0", target) == [task]
    assert scheduler().tasks_of_workload("softmax/1", target) != [task]


def test_a_network_is_a_workload_too(network: Network, tasks: list[Task], target: Any) -> None:
    assert scheduler().tasks_of_workload(network.name, target) == tasks


@pytest.mark.parametrize("name", ["nosuch", "nosuch/1", "dense/x", "softmax/", ""])
def test_an_unknown_workload_is_named(name: str, target: Any) -> None:
    with pytest.raises(InputError, match=f"unknown .*'{name.partition('/')[0]}"):
        scheduler().tasks_of_workload(name, target)
    with pytest.raises(InputError, match=f"unknown .*'{name.partition('/')[0]}"):
        scheduler().network(name)


def test_groups_of_workloads() -> None:
    held_out = scheduler().expand(["held-out"])
    training = scheduler().expand(["training"])
    assert len(held_out) == 3
    assert "resnet-18" in held_out
    assert not set(held_out) & set(training)
    assert "softmax/3" in training
    assert scheduler().expand(["mine", "held-out"]) == ("mine", *held_out)


def test_samples_are_different_programs_that_follow_from_the_seed(
    task: Task, candidates: list[Any], target: Any
) -> None:
    found = [text(candidate) for candidate in candidates]
    assert len(set(found)) == len(found) == 6
    assert [text(one) for one in scheduler().sample(task, target, 6, seed=0)] == found
    assert [text(one) for one in scheduler().sample(task, target, 6, seed=1)] != found
    assert len(scheduler().sample(task, target, 2, seed=0)) == 2


def test_measured_programs_have_latencies(outcomes: list[Outcome]) -> None:
    assert len(outcomes) == 6
    for outcome in outcomes:
        assert outcome.failure is None
        assert len(outcome.seconds) == 2
        assert outcome.latency == pytest.approx(np.mean(outcome.seconds))
        assert 0 < outcome.latency < 1


def test_a_program_that_runs_too_long_has_failed(task: Task, candidates: list[Any], target: Any) -> None:
    settings = MeasureSettings(repeats=1, min_repeat_ms=20_000, timeout_s=1)
    ((measured, (outcome,)),) = scheduler().measure([(task, candidates[:1])], target, settings)
    assert measured == task
    assert isinstance(outcome.failure, Failure)
    assert outcome.seconds == ()
    assert outcome.latency == float("inf")
    assert outcome.message


def test_graphs_of_candidates(task: Task, candidates: list[Any]) -> None:
    statements = scheduler().graphs(task, candidates)
    tree = scheduler().graphs(task, candidates, "tree")
    assert (statements.detail, tree.detail) == ("statements", "tree")
    assert len(statements) == len(tree) == len(candidates)
    assert statements.errors == tree.errors == {}
    assert (statements.node_counts > 10).all()
    assert (statements.node_counts < tree.node_counts).all()


def test_features_of_candidates(task: Task, candidates: list[Any], target: Any) -> None:
    features = scheduler().features(task, target, candidates)
    assert len(features) == len(candidates)
    for rows in features:
        assert rows.dtype == np.float32
        assert rows.shape[0] >= 1
        assert rows.shape[1] == 164
    assert scheduler().features(task, target, []) == []


@pytest.fixture(scope="module")
def collected(
    network: Network,
    tasks: list[Task],
    task: Task,
    candidates: list[Any],
    outcomes: list[Outcome],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A collection that holds the measured candidates and lacks two guided ones."""
    folder = tmp_path_factory.mktemp("collection") / "data"
    collection = scheduler().collection(folder, CollectPlan((network.name,), random=6, guided=2), "here")
    assert not folder.exists()
    collection.add_tasks([(network.name, tasks)])
    assert [collection.missing(task, phase) for phase in SAMPLING_PHASES] == (
        [6, 2] if scheduler().name == "meta-schedule" else [6, 8]  # TenSet's layout does not tell the phases apart
    )
    collection.append("random", task, candidates, outcomes)
    assert [collection.missing(task, phase) for phase in SAMPLING_PHASES] == [0, 2]
    assert collection.count() == (6, 0)
    return folder


def extract(folder: Path, with_features: bool = True) -> Chunk:
    measured = scheduler().measured(folder, jobs=1)
    records = list(measured.records())
    assert len(records) == measured.total
    (chunk,) = measured.extract([records], "statements", with_features)
    assert [key for key, _ in records] == list(chunk.keys)
    return chunk


def test_a_collection_becomes_programs(
    collected: Path, network: Network, task: Task, candidates: list[Any], outcomes: list[Outcome]
) -> None:
    measured = scheduler().measured(collected, jobs=1)
    assert measured.networks == {network.name}
    infos = {measured.task_info(record).identity for _, record in measured.records()}
    assert len(infos) == 1
    chunk = extract(collected)
    programs = chunk.programs
    assert programs is not None
    assert (len(programs), chunk.problems, list(measured.problems)) == (6, [], [])
    np.testing.assert_allclose(programs.latency, [np.median(one.seconds) for one in outcomes], rtol=1e-5)
    np.testing.assert_allclose(np.array(chunk.run_secs), [one.seconds for one in outcomes], rtol=1e-5)
    (info,) = programs.tasks
    assert info.weights == {network.name: task.weight}
    assert info.scheduler == scheduler().name
    direct = scheduler().graphs(task, candidates)
    np.testing.assert_array_equal(programs.graphs.values, direct.values)
    np.testing.assert_array_equal(programs.graphs.edges, direct.edges)
    without = extract(collected, with_features=False).programs
    assert without is not None
    assert without.per_store_features is None


def record_file(folder: Path) -> Path:
    (file,) = [*folder.glob("measure_records/here/*.json"), *folder.glob("database_tuning_record.json")]
    return file


def test_a_collection_goes_on_after_a_kill_in_the_middle_of_a_line(
    collected: Path, network: Network, tasks: list[Task], task: Task, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(collected, tmp_path / "copy"))
    file = record_file(folder)
    lines = file.read_text().splitlines()
    with file.open("r+") as opened:
        opened.truncate(file.stat().st_size - 20)
    collection = scheduler().collection(folder, CollectPlan((network.name,), random=6, guided=2), "here")
    collection.add_tasks([(network.name, tasks)])
    assert collection.missing(task, "random") == 1
    assert list(collection.problems) == []
    assert file.read_text().splitlines() == lines[:-1]
    programs = extract(folder, with_features=False).programs
    assert programs is not None
    assert len(programs) == 5


def test_a_collection_samples_near_what_it_measured(
    collected: Path, network: Network, tasks: list[Task], task: Task
) -> None:
    collection = scheduler().collection(collected, CollectPlan((network.name,), random=6, guided=2), "here")
    collection.add_tasks([(network.name, tasks)])
    ((of, found),) = collection.sample("guided", [(task, 2)])
    assert of == task
    assert 0 < len(found) == len({text(one) for one in found}) <= 2


def test_boosted_trees_learn_from_extracted_programs(collected: Path, tmp_path: Path) -> None:
    programs = extract(collected).programs
    assert isinstance(programs, MeasuredPrograms)
    model = scheduler().boosted_trees(seed=1)
    model.fit(programs)
    scores = model.predict(programs)
    assert scores.shape == (6,)
    assert np.isfinite(scores).all()
    model.save(tmp_path / "trees.json")
    other = scheduler().boosted_trees()
    other.load(tmp_path / "trees.json")
    np.testing.assert_array_equal(other.predict(programs), scores)
    (tmp_path / "trees.json").write_text("nonsense")
    with pytest.raises(InputError, match="not a model file of XGBoost"):
        other.load(tmp_path / "trees.json")
    with pytest.raises(InputError, match="no per-store features"):
        model.fit(replace(programs, per_store_features=None))


def test_cost_models_by_name(checkpoint: str) -> None:
    names = {
        name: type(scheduler().cost_model(name, 0, 4, 2)).__name__ for name in ("random", "xgb", "gnn", checkpoint)
    }
    assert names == {"random": "RandomModel", "xgb": "XGBModel", "gnn": "GNNCostModel", checkpoint: "GNNCostModel"}
    with pytest.raises(InputError, match="neither gnn, xgb or random"):
        scheduler().cost_model("nosuch", 0, 4, 2)


def test_the_batch_leaves_every_task_a_turn() -> None:
    assert scheduler().batch_size(tasks=4, trials=64, batch=16) == 16


def test_a_search_measures_reports_and_records(searched: tuple[Path, Listener], tasks: list[Task]) -> None:
    work_dir, listener = searched
    assert sorted(task for task, _ in listener.batches) == [0, 1]
    assert all(len(latencies) == 2 and 0 < min(latencies) < 1 for _, latencies in listener.batches)
    assert Stage("searching") in listener.events
    assert set(listener.seconds) <= set(tuning_result.PHASES)
    assert listener.seconds["building"] > 0
    assert listener.seconds["running"] > 0
    lines = (work_dir / scheduler().records_file).read_text().splitlines()
    assert len(lines) == 4
    recorded = scheduler().latencies(tasks, work_dir)
    assert [len(own) for own in recorded] == [2, 2, 0, 0]
    for number, latencies in listener.batches:
        # auto_scheduler writes seconds with six digits; a MetaSchedule database has the fastest first.
        assert sorted(recorded[number]) == pytest.approx(sorted(latencies), rel=1e-5)


def test_no_search_no_latencies(tasks: list[Task], tmp_path: Path) -> None:
    assert scheduler().latencies(tasks, tmp_path) == [[]] * 4


def test_an_interrupted_search_ends_and_keeps_its_records(
    searched: tuple[Path, Listener], tasks: list[Task], checkpoint: str, tmp_path: Path
) -> None:
    work_dir = Path(shutil.copytree(searched[0], tmp_path / "work"))
    records = work_dir / scheduler().records_file
    before = records.read_text()
    listener = Listener(stop_after=1)
    model = scheduler().cost_model(checkpoint, 0, 2, 2)
    settings = SearchSettings(trials=4, measured=4, batch=2, population=16, seed=0)
    with pytest.raises(WorkError, match=r"^interrupted$"):
        scheduler().search(tasks[:2], model, work_dir, settings, listener)
    assert len(listener.batches) == 1
    assert Stage("learning from the 4 programs measured before") in listener.events
    after = records.read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == len(set(after.splitlines())) == 6
    assert sum(map(len, scheduler().latencies(tasks, work_dir))) == 6


def test_damaged_records_are_named(searched: tuple[Path, Listener], tasks: list[Task], tmp_path: Path) -> None:
    work_dir = Path(shutil.copytree(searched[0], tmp_path / "work"))
    records = work_dir / scheduler().records_file
    lines = records.read_text().splitlines()
    for damaged in ("no record", "{}", "[]", '{"i": [["x"'):
        records.write_text("\n".join([*lines, damaged, lines[0]]) + "\n")
        with pytest.raises(InputError, match=rf"{records}.* damaged, choose another folder"):
            scheduler().latencies(tasks, work_dir)


def test_tuned_and_untuned_networks_compute_the_same(
    searched: tuple[Path, Listener], network: Network, tasks: list[Task], target: Any
) -> None:
    work_dir, _ = searched
    before = scheduler().measure_untuned(tasks, target, work_dir)
    assert [outcome.failure for outcome in before] == [None] * 4
    untuned = scheduler().compile(network, target)
    tuned = scheduler().compile(network, target, work_dir, tasks[:2])
    expected = untuned.run(network.example)
    if network.expected is not None:
        np.testing.assert_allclose(expected, network.expected, atol=1e-5)
    np.testing.assert_allclose(tuned.run(network.example), expected, atol=1e-5)
    other = tuned.run(2 * network.example)
    assert np.abs(other - expected).max() > 1e-5
    np.testing.assert_allclose(other, untuned.run(2 * network.example), atol=1e-5)
    assert 0 < tuned.latency() < 1


def test_a_network_that_tvm_cannot_compile_is_named(network: Network, target: Any) -> None:
    broken = replace(network, name="broken", mod=type(network.mod)({}))
    with pytest.raises(WorkError, match="TVM cannot compile broken: ") as error:
        scheduler().compile(broken, target).run(network.example)
    assert error.value.__cause__ is not None
