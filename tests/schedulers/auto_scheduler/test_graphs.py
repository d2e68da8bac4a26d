from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import tvm
from tvm import te, tir, topi
from tvm.driver.build_module import schedule_to_module

from tests.schedulers.auto_scheduler.small_tasks import (
    broken_state,
    conv_task,
    files_of,
    matmul_task,
    measured_states,
    project_data,
    sample_states,
)
from tests.schedulers.auto_scheduler.syntax_tree import syntax_tree
from tests.schedulers.tree_node import check_graph
from tvm_gnn_cost.graphs.extraction import extract_graphs, extract_states
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import COLUMN
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, Checkpoint

ARRAYS = ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets")


def lower(task, state) -> tvm.IRModule:
    return schedule_to_module(*task.compute_dag.apply_steps_from_state(state))


def value(graphs: ProgramGraphs, node: int, name: str) -> float:
    x = float(graphs.x[node, COLUMN[name]])
    return float(np.copysign(2 ** abs(x) - 1, x))


def nodes(graphs: ProgramGraphs, name: str) -> list[int]:
    return np.flatnonzero(graphs.node_type == graphs.type_names.index(name)).tolist()


def check_against_the_tree(mods: list[tvm.IRModule], tree: ProgramGraphs, statements: ProgramGraphs) -> None:
    assert np.isfinite(tree.x).all()
    for graph, mod in enumerate(mods):
        expected = syntax_tree(mod)
        check_graph(tree, statements, graph, expected)
        for i, node in enumerate(expected):
            row = int(tree.node_offsets[graph]) + i
            if node.type in ("IntImm", "FloatImm"):
                number = float(node.obj.value)
                assert value(tree, row, "const_0") == pytest.approx(min(max(number, -3e38), 3e38), rel=1e-4)
            if node.type == "For" and isinstance(node.obj.extent, tir.IntImm):
                assert value(tree, row, "extent") == pytest.approx(int(node.obj.extent), rel=1e-4)
                assert tree.x[row, COLUMN["kind_serial"] + int(node.obj.kind)] == 1


@pytest.mark.parametrize("network", ["resnet_18", "mobilenet", "inception_v3", "squeezenet_v1.1", "dcgan", ""])
def test_every_node_of_measured_programs(network: str):
    found = measured_states(project_data(), files_of(network, 3), 2)
    assert found
    for task, states in found:
        mods = [lower(task, state) for state in states]
        tree = extract_states(task.compute_dag, states)
        statements = extract_states(task.compute_dag, states, detail="statements")
        assert not tree.errors
        check_against_the_tree(mods, tree, statements)
        from_modules = extract_graphs(mods)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(from_modules, name), getattr(tree, name))


def test_the_result_does_not_depend_on_the_threads():
    task = conv_task()
    states = sample_states(task, 30)
    one = extract_states(task.compute_dag, states, threads=1)
    for threads in (0, 2, 7):
        many = extract_states(task.compute_dag, states, threads=threads)
        assert many.type_names == one.type_names
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(many, name), getattr(one, name))


def test_operators_are_told_apart_from_program_to_program():
    # Alike but for the operator: copies of one program lie where the last one's did.
    a = te.placeholder((8,), name="a")
    outputs = [topi.exp(a), topi.tanh(a), topi.log(a), topi.sqrt(a)]
    mods = [schedule_to_module(te.create_schedule(b.op), [a, b]) for b in outputs]
    graphs = extract_graphs(mods * 2, threads=1)
    found = [graphs.type_names[i] for i in graphs.node_type if graphs.type_names[i].startswith("Call.")]
    assert found == ["Call.exp", "Call.tanh", "Call.log", "Call.sqrt"] * 2


def test_values_of_an_unscheduled_matmul():
    task = matmul_task(32, 48, 64)
    graphs = extract_states(task.compute_dag, [task.compute_dag.get_init_state()], detail="statements")
    i, j, r = nodes(graphs, "For")
    init, store = nodes(graphs, "BufferStore")
    c, a, b = nodes(graphs, "BufferLoad")
    assert [value(graphs, loop, "extent") for loop in (i, j, r)] == pytest.approx([32, 48, 64])
    assert value(graphs, store, "executions") == pytest.approx(32 * 48 * 64, rel=1e-3)
    assert value(graphs, init, "executions") == pytest.approx(32 * 48, rel=1e-3)
    assert value(graphs, i, "float_ops") == pytest.approx(2 * 32 * 48 * 64, rel=1e-3)
    strides = {a: (4, 0), b: (48 * 4, 4), c: (0, 4)}  # by r and j
    for node, (innermost, second) in strides.items():
        assert value(graphs, node, "stride_innermost") == pytest.approx(innermost, rel=1e-4)
        assert value(graphs, node, "stride_second") == pytest.approx(second, rel=1e-4)
    assert graphs.x[[a, b, c, store], COLUMN["buffer_is_param"]].tolist() == [1, 1, 1, 1]
    assert graphs.x[[a, b, c, store], COLUMN["is_update"]].tolist() == [0, 0, 1, 1]


def test_annotations_and_partial_buffers_count():
    task = conv_task()
    dag = task.compute_dag
    state = dag.get_init_state()
    _data, pad, _weight, conv, relu = dag.ops
    outer, _ = state.split(relu, state[relu].iters[1], [2])[:2]
    state.compute_at(pad, conv, state[conv].iters[2])
    state.pragma(relu, outer, "auto_unroll_max_step$64")
    graphs = extract_states(dag, [state], detail="statements")
    inside = [n for n in nodes(graphs, "BufferStore") if value(graphs, n, "unroll_max_step") > 0]
    assert [value(graphs, n, "unroll_max_step") for n in inside] == pytest.approx([64])
    # The padding is computed at a column of the output: 3 x 3 positions of all channels exist at a time.
    (padding,) = (
        n
        for n in nodes(graphs, "BufferStore")
        if not graphs.x[n, COLUMN["buffer_is_param"]]
        and value(graphs, n, "buffer_bytes") == pytest.approx(3 * 3 * 16 * 4, rel=1e-3)
    )
    assert value(graphs, padding, "stride_innermost") == pytest.approx(4)
    assert value(graphs, padding, "stride_third") == pytest.approx(3 * 16 * 4, rel=1e-3)


def test_both_tvms_have_one_vocabulary():
    task = conv_task()
    names = extract_states(task.compute_dag, sample_states(task, 20), detail="statements").type_names
    known = Checkpoint.load(DEFAULT).vectors.words
    # A schedule of TE has these and no blocks.
    assert set(names) - set(known) <= {"AttrStmt", "BufferRealize", "And", "GE", "LE", "LT"}


def test_bad_input():
    task = matmul_task()
    good = sample_states(task, 2)
    wrong = broken_state(task)
    with pytest.raises(ValueError, match=r"states\[1\]"):
        extract_states(task.compute_dag, [good[0], wrong, good[1]])
    graphs = extract_states(task.compute_dag, [good[0], wrong, good[1]], on_error="skip")
    assert list(graphs.errors) == [1]
    assert graphs.node_counts[1] == 0
    assert min(graphs.node_counts[[0, 2]]) > 0
    for bad in (None, "text", 3, task):
        with pytest.raises(TypeError, match=r"states\[0\]"):
            extract_states(task.compute_dag, [bad])
        with pytest.raises(TypeError, match=r"modules\[0\]"):
            extract_graphs([bad])
    with pytest.raises(ValueError, match="no PrimFunc"):
        extract_graphs([tvm.IRModule()])
    with pytest.raises(ValueError, match="detail"):
        extract_states(task.compute_dag, good, detail="all")
    assert len(extract_states(task.compute_dag, [])) == 0


def test_deep_programs_are_refused():
    expr: tir.PrimExpr = tir.Var("x", "int32")
    for _ in range(1500):
        expr = tir.Add(expr, tir.IntImm("int32", 1))
    deep = tvm.IRModule({"main": tir.PrimFunc([], tir.Evaluate(expr))})
    for detail in ("tree", "statements"):
        with pytest.raises(ValueError, match="1000 levels"):
            extract_graphs([deep], detail=detail)


def test_other_threads_run_meanwhile():
    task = conv_task()
    states = sample_states(task, 20) * 20
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    extract_states(task.compute_dag, states, threads=1)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert sum(begin < moment < end for moment in ticks) > (end - begin) / 0.001 / 20
