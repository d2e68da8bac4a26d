"""Which TVM is installed, with made-up TVMs; and what either TVM reads of a database of a TVM of 0.14 to 0.19."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost import collect, tune
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError, WorkError, WrongTVMError
from tvm_gnn_cost.installed import has, require_compiler, require_tvm
from tvm_gnn_cost.scoring.checkpoint import DEFAULT
from tvm_gnn_cost.tuning.evaluate import evaluate
from tvm_gnn_cost.tuning.extract import extract


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *parts: str) -> None:
    """A package ``tvm`` with these subpackages, before all others on the path."""
    for part in parts:
        (folder / "tvm" / part).mkdir(parents=True)
    (folder / "tvm" / "__init__.py").write_text("raise AssertionError('TVM is not to be imported')")
    monkeypatch.delitem(sys.modules, "tvm", raising=False)
    monkeypatch.syspath_prepend(folder)


def test_todays_tvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "s_tir", "relax")
    assert has("s_tir")
    assert not has("auto_scheduler")
    require_tvm("s_tir")
    with pytest.raises(
        WrongTVMError, match=rf"needs a TVM up to 0.19, with auto_scheduler.*`make auto-scheduler`.*{tmp_path}/tvm"
    ):
        require_tvm("auto_scheduler")


def test_an_earlier_tvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "auto_scheduler", "relay")
    assert has("auto_scheduler")
    require_tvm("auto_scheduler")
    with pytest.raises(WrongTVMError, match=rf"needs today's TVM.*pip install.*{tmp_path}/tvm"):
        require_tvm("s_tir")


def test_no_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    for part in ("s_tir", "auto_scheduler"):
        assert not has(part)
        with pytest.raises(WrongTVMError, match="found no TVM at all") as error:
            require_tvm(part)
        assert isinstance(error.value, WorkError | ImportError)


def test_looking_imports_neither_tvm_nor_torch() -> None:
    code = (
        "import sys; from tvm_gnn_cost.installed import has; has('s_tir');"
        "assert not {'tvm', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


PROGRAMS = 4


def workload() -> Any:
    """A matrix product and a function of it."""
    import tvm
    from tvm import te

    exp = tvm.tir.exp if hasattr(tvm, "tir") else tvm.tirx.exp
    a, b = te.placeholder((32, 24), name="a"), te.placeholder((24, 48), name="b")
    k = te.reduce_axis((0, 24), name="k")
    product = te.compute((32, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    out = te.compute((32, 48), lambda i, j: exp(product[i, j]), name="out")
    return tvm.IRModule({"main": te.create_prim_func([a, b, out])})


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as TVM's tuning leaves it; the latencies are made up."""
    import tvm

    from tvm_gnn_cost.installed import ms
    from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin

    # The TuneContext would import them, which takes minutes when torch is loaded.
    import_tensor_intrin("tvm.tir.tensor_intrin")
    folder = tmp_path_factory.mktemp("theirs") / "their-network"
    folder.mkdir()
    target = tvm.target.Target("llvm -num-cores=2")
    context = ms.TuneContext(
        workload(), target=target, space_generator="post-order-apply", search_strategy="replay-trace", num_threads=1
    )
    context.pre_tuning(4 * PROGRAMS, PROGRAMS, context.generate_design_space())
    candidates = list(context.generate_measure_candidates())
    database = ms.database.JSONDatabase(work_dir=str(folder))
    known = database.commit_workload(workload())
    for i, one in enumerate(candidates):
        database.commit_tuning_record(ms.database.TuningRecord(one.sch.trace, known, [1e-3 + i], target, one.args_info))
    return folder


@pytest.mark.needs("auto_scheduler")
def test_a_database_is_extracted(theirs: Path, tmp_path: Path) -> None:
    done = extract(theirs, tmp_path / "store")
    assert (done.added, done.problems) == (PROGRAMS, ())
    programs = GraphStore(tmp_path / "store").load(with_features=True)
    assert sorted(programs.latency.tolist()) == [1e-3 + i for i in range(PROGRAMS)]
    assert {task.scheduler for task in programs.tasks} == {"meta-schedule"}
    features = programs.per_store_features
    assert features is not None
    assert all(features[i].shape[1] == PER_STORE_COLUMNS and len(features[i]) for i in range(PROGRAMS))


@pytest.mark.needs("auto_scheduler")
def test_a_database_is_evaluated_as_a_network_of_its_folders_name(theirs: Path) -> None:
    done = evaluate(theirs, [str(DEFAULT), "random"])
    assert done.networks == ("their-network",)
    assert done.models["random"].tasks[0].programs == PROGRAMS
    with pytest.raises(InputError, match="hardware is for a folder in TenSet's layout"):
        evaluate(theirs, ["random"], hardware="theirs")


@pytest.mark.needs("tvm")
def test_a_module_has_the_same_graph_in_either_tvm() -> None:
    from tvm_gnn_cost import extract_graphs
    from tvm_gnn_cost.installed import Schedule

    schedule = Schedule(workload())
    block = (schedule.get_block if hasattr(schedule, "get_block") else schedule.get_sblock)("product")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 16])
    schedule.reorder(i, outer, k, inner)
    schedule.vectorize(inner)
    schedule.parallel(i)
    schedule.annotate(i, "pragma_auto_unroll_max_step", 16)
    graph = extract_graphs([schedule.mod], detail="statements")
    names = [graph.type_names[number] for number in graph.node_type]
    # TVM has changed the order of a node's fields since.
    found = sorted(zip(names, graph.x.sum(axis=1).round(2).tolist(), strict=True))
    assert [name for name, _ in found] == [name for name, _ in NODES]
    np.testing.assert_allclose([total for _, total in found], [total for _, total in NODES], atol=0.02)


#: The type of each node and the sum of its values, as today's TVM gives them.
NODES = [
    ("Add", 40.62),
    ("Block", 41.27),
    ("Block", 66.44),
    ("Block", 157.32),
    ("BlockRealize", 42.66),
    ("BlockRealize", 69.87),
    ("BlockRealize", 156.74),
    ("BufferLoad", 136.74),
    ("BufferLoad", 141.77),
    ("BufferLoad", 165.94),
    ("BufferLoad", 191.39),
    ("BufferStore", 160.55),
    ("BufferStore", 164.17),
    ("BufferStore", 197.07),
    ("Call.exp", 23.81),
    ("FloatImm", 37.03),
    ("For", 72.34),
    ("For", 89.14),
    ("For", 110.14),
    ("For", 128.05),
    ("For", 129.11),
    ("For", 157.93),
    ("Mul", 40.73),
    ("PrimFunc", 5.0),
    ("SeqStmt", 7.0),
]


@pytest.mark.needs("tvm")
def test_a_machine_without_a_compiler_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_compiler()
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    for call in (lambda: tune("perceptron", work_dir=tmp_path), lambda: collect(["perceptron"], tmp_path)):
        with pytest.raises(WorkError, match=r"there is none; install g\+\+ or clang, or set CXX$"):
            call()
