"""What every scheduler must do, through the protocol, with the one of the installed TVM."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.onnx_files import perceptron, run_perceptron, write_perceptron
from tests.schedulers.conftest import QUICK, Listener, search_settings
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.graphs.extraction import extract_graphs, extract_states
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.measuring.verification import Reference
from tvm_gnn_cost.schedulers import package, scheduler
from tvm_gnn_cost.schedulers.scheduler import (
    SAMPLING_PHASES,
    Chunk,
    Collection,
    CollectPlan,
    MeasureSettings,
    Network,
    Outcome,
    Task,
    median_repeat,
)
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning import result as tuning_result

pytestmark = pytest.mark.needs("tvm")


def text(candidate: Any) -> str:
    """The program of a candidate."""
    return str(candidate.sch.mod) if hasattr(candidate, "sch") else str(candidate)


def test_the_attributes() -> None:
    chosen = scheduler()
    versions = chosen.versions()
    assert all(versions.values())
    assert versions["tvm-gnn-cost"] == version("tvm-gnn-cost")
    assert {"tvm", "apache-tvm"} & set(versions)
    assert Path(chosen.records_file).name == chosen.records_file


def test_the_target_is_this_machines(target: Any) -> None:
    assert "llvm" in str(target)
    assert str(scheduler().target()) == str(target)


def test_the_tasks_of_a_network(network: Network, tasks: list[Task]) -> None:
    assert len(tasks) == len({task.key for task in tasks}) == 4
    assert all(task.weight == 1 and task.name for task in tasks)
    assert [one.dtype for one in network.inputs.values()] == [np.float32]


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


def test_a_file_and_a_function_are_networks(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = perceptron()
    path = write_perceptron(tmp_path / "mine.onnx", weights)
    x = np.random.default_rng(1).standard_normal((4, 784)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_a_user.py").write_text("import onnx\ndef net():\n    return onnx.load('mine.onnx')\n")
    digests = set()
    for source, name in ((path, "mine"), ("mine.onnx", "mine"), ("of_a_user:net", "net")):
        network = scheduler().network(source, {"x": x})
        assert network.name == name
        (output,) = scheduler().compile(network, target).run(network.inputs)
        np.testing.assert_allclose(output, run_perceptron(x, weights), atol=1e-4)
        digests.add(network.digest)
    assert len(digests) == 1
    assert scheduler().network(path, shapes={"x": (2, 784)}).inputs["x"].shape == (2, 784)
    with pytest.raises(InputError, match=r"dimension 0 \(rows\) of input .* is dynamic, .*--shape x=1,784"):
        scheduler().network(path)


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


def test_one_fast_or_slow_repeat_does_not_change_the_median() -> None:
    assert median_repeat([2.0, 1.0, 2.1]) == median_repeat([2.0, 1.9, 50.0]) == 2.0
    assert median_repeat([2.0, 1.0]) == 1.5
    assert median_repeat([]) == np.inf


def test_measured_programs_have_latencies(outcomes: list[Outcome]) -> None:
    assert len(outcomes) == 6
    for outcome in outcomes:
        assert outcome.failure is None
        assert len(outcome.seconds) == 2
        assert outcome.latency == statistics.median(outcome.seconds)
        assert 0 < outcome.latency < 1


def test_a_program_that_runs_too_long_has_failed(task: Task, candidates: list[Any], target: Any) -> None:
    settings = MeasureSettings(repeats=1_000_000, timeout_s=1)
    ((measured, (outcome,)),) = scheduler().measure([(task, candidates[:1])], target, settings)
    assert measured == task
    assert isinstance(outcome.failure, Failure)
    assert outcome.seconds == ()
    assert outcome.latency == float("inf")
    assert outcome.message


def graphs_of(task: Task, target: Any, candidates: list[Any], detail: Detail = "statements") -> ProgramGraphs:
    """The graphs of candidates."""
    if scheduler().name == "meta-schedule":
        return extract_graphs([one.sch.mod for one in candidates], target, detail=detail)
    return extract_states(task.workload.compute_dag, candidates, target, detail=detail)


def test_graphs_of_candidates(task: Task, candidates: list[Any], target: Any) -> None:
    statements = graphs_of(task, target, candidates)
    tree = graphs_of(task, target, candidates, "tree")
    assert (statements.detail, tree.detail) == ("statements", "tree")
    assert len(statements) == len(tree) == len(candidates)
    assert statements.errors == tree.errors == {}
    assert (statements.node_counts > 10).all()
    assert (statements.node_counts < tree.node_counts).all()
    cores = statements.x[:, [name for name, _ in VALUES].index("cores")]
    np.testing.assert_allclose(cores, np.log2(1 + int(target.attrs["num-cores"])))


def collection_in(folder: Path, network: Network) -> Collection:
    """A collection of a network's programs."""
    plan = CollectPlan((network.name,), random=6, guided=2)
    return scheduler().collection(folder, plan, "here", scheduler().target("here"), describe_machine())


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
    collection = collection_in(folder, network)
    assert not folder.exists()
    collection.open()
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
    collected: Path, network: Network, task: Task, target: Any, candidates: list[Any], outcomes: list[Outcome]
) -> None:
    measured = scheduler().measured(collected, jobs=1)
    assert measured.networks == {network.name}
    infos = {measured.task_info(record).identity for _, record in measured.records()}
    assert len(infos) == 1
    chunk = extract(collected)
    programs = chunk.programs
    assert programs is not None
    assert (len(programs), chunk.problems, list(measured.problems)) == (6, [], [])
    np.testing.assert_allclose(programs.latency, [min(one.seconds) for one in outcomes], rtol=1e-5)
    np.testing.assert_allclose(np.array(chunk.run_secs), [one.seconds for one in outcomes], rtol=1e-5)
    (info,) = programs.tasks
    assert info.weights == {network.name: task.weight}
    assert info.scheduler == scheduler().name
    direct = graphs_of(task, target, candidates)
    np.testing.assert_array_equal(programs.graphs.x, direct.x)
    np.testing.assert_array_equal(programs.graphs.edge_index, direct.edge_index)
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
    collection = collection_in(folder, network)
    collection.open()
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
    collection = collection_in(collected, network)
    collection.open()
    collection.add_tasks([(network.name, tasks)])
    ((of, found),) = collection.sample("guided", [(task, 2)])
    assert of == task
    assert 0 < len(found) == len({text(one) for one in found}) <= 2


def test_boosted_trees_learn_from_extracted_programs(collected: Path, tmp_path: Path) -> None:
    programs = extract(collected).programs
    assert isinstance(programs, MeasuredPrograms)
    model = package().XGBBaseline(seed=1)
    model.fit(programs)
    scores = model.predict(programs)
    assert scores.shape == (6,)
    assert np.isfinite(scores).all()
    model.save(tmp_path / "trees.json")
    other = package().XGBBaseline.load(tmp_path / "trees.json")
    np.testing.assert_array_equal(other.predict(programs), scores)
    (tmp_path / "trees.json").write_text("nonsense")
    with pytest.raises(InputError, match="not a model file of XGBoost"):
        package().XGBBaseline.load(tmp_path / "trees.json")
    with pytest.raises(InputError, match="no per-store features"):
        model.fit(replace(programs, per_store_features=None))


@pytest.mark.parametrize("name", ["default", "auto-scheduler"])
def test_trees_add_nothing_of_their_own_in_any_version_of_xgboost(name: str) -> None:
    # The two environments have XGBoost 2 and 3, which write this number in forms of their own.
    trees = Checkpoint.load(DEFAULT.with_name(f"{name}.safetensors")).trees
    assert trees is not None
    learner = json.loads(trees.booster.save_config())["learner"]
    assert float(learner["learner_model_param"]["base_score"].strip("[]")) == 0


def test_cost_models_by_name(checkpoint: str) -> None:
    names = {
        name: type(scheduler().cost_model(name, 0, 4, 2)).__name__ for name in ("random", "xgb", "gnn", checkpoint)
    }
    assert names == {"random": "RandomModel", "xgb": "XGBModel", "gnn": "GNNCostModel", checkpoint: "GNNCostModel"}
    with pytest.raises(InputError, match="nosuch: there is no such checkpoint"):
        scheduler().cost_model("nosuch", 0, 4, 2)


def test_cost_models_as_objects(checkpoint: str) -> None:
    model = CostModel.load(checkpoint)
    drop_in = scheduler().cost_model(model, 0, 4, 2)
    assert drop_in.search.model is model
    for one in (drop_in, scheduler().cost_model("xgb", 0, 4, 2)):
        assert scheduler().cost_model(one, 0, 4, 2) is one


def test_only_meta_schedule_has_an_mlp() -> None:
    if scheduler().name == "meta-schedule":
        assert type(scheduler().cost_model("mlp", 0, 4, 2)).__name__ == "MLPModel"
    else:
        with pytest.raises(InputError, match="auto_scheduler has no cost model 'mlp'; choose gnn, xgb or random"):
            scheduler().cost_model("mlp", 0, 4, 2)


@pytest.mark.parametrize("name", ["random", "xgb", "gnn"])
def test_a_cost_model_scores_and_learns(
    name: str, task: Task, target: Any, candidates: list[Any], outcomes: list[Outcome]
) -> None:
    model = scheduler().cost_model(name, 0, 1, 2)
    scores = scheduler().score(model, task, target, candidates)
    assert (scores.shape, scores.dtype) == ((6,), np.float64)
    assert np.isfinite(scores).all()
    scheduler().learn(model, task, target, candidates, outcomes)
    again = scheduler().score(model, task, target, candidates)
    assert np.isfinite(again).all()
    if name == "gnn":
        assert np.abs(again - scores).max() > 1e-4


def test_eight_threads_score_with_one_model(task: Task, target: Any, candidates: list[Any]) -> None:
    model = scheduler().cost_model("gnn", 0, 1, 2)
    expected = scheduler().score(model, task, target, candidates)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(scheduler().score, model, task, target, candidates) for _ in range(32)]
        for call in calls:
            np.testing.assert_array_equal(call.result(), expected)


def test_measured_candidates_are_recorded_and_learned_from(
    task: Task, tasks: list[Task], target: Any, candidates: list[Any], outcomes: list[Outcome], tmp_path: Path
) -> None:
    scheduler().record([(task, candidates[:2], outcomes[:2])], target, tmp_path)
    scheduler().record([(task, candidates[2:], outcomes[2:])], target, tmp_path)
    found = scheduler().latencies([task], tmp_path)
    assert sorted(found[0]) == pytest.approx(sorted(one.latency for one in outcomes), rel=1e-5)
    for name in ("random", "gnn"):
        model = scheduler().cost_model(name, 0, 1, 2)
        before = scheduler().score(model, task, target, candidates)
        scheduler().learn_records(model, tasks, tmp_path)
        if name == "gnn":
            assert np.abs(scheduler().score(model, task, target, candidates) - before).max() > 1e-4


def test_a_search_measures_reports_and_records(searched: tuple[Path, Listener], tasks: list[Task]) -> None:
    work_dir, listener = searched
    assert sorted(task for task, _ in listener.batches) == [0, 1]
    assert all(len(latencies) == 2 and 0 < min(latencies) < 1 for _, latencies in listener.batches)
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


def test_right_candidates_have_no_fault(task: Task, target: Any, candidates: list[Any]) -> None:
    assert scheduler().faults([(task, one) for one in candidates[:3]], target) == [""] * 3
    assert scheduler().describe(task, candidates[0]) != scheduler().describe(task, candidates[1])
    assert set(scheduler().dtypes(task)) == {"float32"}


def test_a_program_that_computes_something_else_has_failed(
    task: Task, target: Any, candidates: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is compared with what is twice as large.
    chosen: Any = scheduler()
    key = task.workload if chosen.name == "auto-scheduler" else task
    (check,) = chosen.verifier.checks_of([key])
    reference = Reference.load(Path(check.reference))
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other.npz"
        replace(reference, expected=[2 * one for one in reference.expected]).save(other)
        monkeypatch.setitem(chosen.verifier.checks, task.key, check._replace(reference=str(other)))
        (said,) = chosen.faults([(task, candidates[0])], target)
        ((_, (outcome,)),) = chosen.measure([(task, candidates[:1])], target, QUICK)
    assert said.startswith("computes a wrong output 0: ")
    assert (outcome.failure, outcome.seconds, outcome.message) == (Failure.WRONG_ANSWER, (), said)


def test_a_record_that_is_struck_off_gives_way_to_the_next(
    task: Task, tasks: list[Task], target: Any, candidates: list[Any], outcomes: list[Outcome], tmp_path: Path
) -> None:
    scheduler().record([(task, candidates, outcomes)], target, tmp_path)
    before = sorted(scheduler().latencies([task], tmp_path)[0])
    others = [one for one in tasks if one.key != task.key]
    first, *nothing = scheduler().best([task, *others], tmp_path)
    assert nothing == [None] * len(others)
    scheduler().strike(task, first, tmp_path)
    after = sorted(scheduler().latencies([task], tmp_path)[0])
    assert after == [*before[1:], float("inf")]
    (second,) = scheduler().best([task], tmp_path)
    assert scheduler().describe(task, second) != scheduler().describe(task, first)


def test_no_search_no_latencies(tasks: list[Task], tmp_path: Path) -> None:
    assert scheduler().latencies(tasks, tmp_path) == [[]] * 4


def test_an_interrupted_search_ends_and_keeps_its_records(
    searched: tuple[Path, Listener], tasks: list[Task], checkpoint: str, tmp_path: Path
) -> None:
    work_dir = Path(shutil.copytree(searched[0], tmp_path / "work"))
    records = work_dir / scheduler().records_file
    before, known = records.read_text(), scheduler().latencies(tasks, work_dir)
    listener = Listener(stop_after=1)
    model = scheduler().cost_model(checkpoint, 0, 2, 2)
    settings = search_settings(2, measured=4)
    with pytest.raises(WorkError, match=r"^interrupted$"):
        scheduler().search(tasks[:2], model, work_dir, settings, listener)
    ((searched_task, batch),) = listener.batches
    after = records.read_text()
    assert after.startswith(before)
    # A program of a resumed search may be measured again, with the same latency: lines can be equal.
    assert len(after.splitlines()) == 6
    found = scheduler().latencies(tasks, work_dir)
    assert sum(map(len, found)) == 6
    assert sorted(found[searched_task]) == pytest.approx(sorted([*known[searched_task], *batch]), rel=1e-5)


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
    expected = untuned.run(network.inputs)[0]
    if network.expected is not None:
        np.testing.assert_allclose(expected, network.expected[0], atol=1e-5)
    np.testing.assert_allclose(tuned.run(network.inputs)[0], expected, atol=1e-5)
    doubled = {name: 2 * values for name, values in network.inputs.items()}
    other = tuned.run(doubled)[0]
    assert np.abs(other - expected).max() > 1e-5
    np.testing.assert_allclose(other, untuned.run(doubled)[0], atol=1e-5)


def test_a_candidate_that_was_never_measured_can_be_compiled(
    network: Network, target: Any, task: Task, candidates: list[Any], tmp_path: Path
) -> None:
    chosen = scheduler().compile(network, target, tmp_path, chosen=[(task, candidates[0])])
    expected = scheduler().compile(network, target).run(network.inputs)[0]
    np.testing.assert_allclose(chosen.run(network.inputs)[0], expected, atol=1e-5)


def test_a_library_is_loaded_and_a_damaged_one_is_named(network: Network, target: Any, tmp_path: Path) -> None:
    compiled = scheduler().compile(network, target)
    library = tmp_path / "net.so"
    compiled.export(library)
    loaded = scheduler().load(library)
    np.testing.assert_array_equal(loaded.run(network.inputs)[0], compiled.run(network.inputs)[0])
    run = loaded.bind(network.inputs)
    run()
    run()
    seconds = loaded.seconds(network.inputs, 3)
    assert len(seconds) == 3
    assert all(0 < one < 1 for one in seconds)
    (tmp_path / "damaged.so").write_text("no library")
    with pytest.raises(WorkError, match=r"TVM cannot load .*damaged\.so: "):
        scheduler().load(tmp_path / "damaged.so")


def test_operations_are_counted(task: Task) -> None:
    """A product of 16x784 (MetaSchedule) or 1x784 and 784x512 or so; bias and ReLU add little."""
    shapes = {"meta-schedule": (16, 784, 512), "auto-scheduler": (1, 784, 128)}
    rows, inner, columns = shapes[scheduler().name]
    assert scheduler().flops(task) == pytest.approx(2 * rows * inner * columns, rel=0.01)


def test_bytes_are_counted(task: Task) -> None:
    """Inputs, weights, bias and outputs of the same product, in float32."""
    shapes = {"meta-schedule": (16, 784, 512), "auto-scheduler": (1, 784, 128)}
    rows, inner, columns = shapes[scheduler().name]
    assert scheduler().traffic(task) == 4 * (rows * inner + inner * columns + columns + rows * columns)


def test_a_network_that_tvm_cannot_compile_is_named(network: Network, target: Any) -> None:
    broken = replace(network, name="broken", mod=None)
    with pytest.raises(WorkError, match="TVM cannot compile broken: ") as error:
        scheduler().compile(broken, target)
    assert error.value.__cause__ is not None
