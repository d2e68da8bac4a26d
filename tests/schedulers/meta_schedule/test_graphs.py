from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import tirx as T

from tests.schedulers.meta_schedule.real_schedules import candidates, small_target, unprocessed
from tests.schedulers.meta_schedule.syntax_tree import syntax_tree
from tests.schedulers.tree_node import check_graph
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.graphs.values import COLUMN, GROUPS, VALUES, columns
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks, load_network
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of

NETWORKS = ("resnet-18", "mobilenet-v2")
TASKS_A_NETWORK = 3


@T.prim_func(s_tir=True)
def tiled_matmul(a: T.Buffer((32, 64), "float32"), b: T.Buffer((64, 48), "float32"), c: T.Buffer((32, 48), "float32")):
    for i0 in T.parallel(8):
        for j0, k0, i1 in T.grid(3, 16, 4):
            for k1 in range(4):
                for j1 in T.vectorized(16):
                    with T.sblock("c"):
                        i = T.axis.spatial(32, i0 * 4 + i1)
                        j = T.axis.spatial(48, j0 * 16 + j1)
                        k = T.axis.reduce(64, k0 * 4 + k1)
                        with T.init():
                            c[i, j] = T.float32(0)
                        c[i, j] = c[i, j] + a[i, k] * b[k, j]


@T.prim_func(s_tir=True)
def fused(a: T.Buffer((6, 7), "float32"), b: T.Buffer((7, 6), "float32")):
    for f in range(42):
        with T.sblock("b"):
            i = T.axis.spatial(6, f // 7)
            j = T.axis.spatial(7, f % 7)
            b[j, i] = a[i, j]


@T.prim_func(s_tir=True)
def window(a: T.Buffer((18,), "float32"), b: T.Buffer((16,), "float32"), index: T.Buffer((16,), "int32")):
    for x, r in T.grid(16, 3):
        with T.sblock("b"):
            vx = T.axis.spatial(16, x)
            vr = T.axis.reduce(3, r)
            b[vx] = b[vx] + a[vx + vr] * a[index[vx]]


def module(func: tirx.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"main": func})


def deep_module(levels: int) -> tvm.IRModule:
    expr = tirx.Var("x", "int32")
    for _ in range(levels):
        expr = tirx.Add(expr, tirx.const(1, "int32"))
    return module(tirx.PrimFunc([], tirx.Evaluate(expr)))


def nodes(graphs: ProgramGraphs, name: str, graph: int = 0) -> list[int]:
    begin, end = graphs.node_offsets[graph : graph + 2]
    return [i for i in range(begin, end) if graphs.type_names[graphs.node_type[i]] == name]


def value(graphs: ProgramGraphs, node: int, name: str) -> float:
    """A value with its logarithm undone."""
    x = float(graphs.x[node, COLUMN[name]])
    return float(np.copysign(2 ** abs(x) - 1, x))


def edges(graphs: ProgramGraphs, relation: Relation) -> list[tuple[int, int]]:
    return [(int(s), int(t)) for s, t in graphs.edge_index[:, graphs.edge_type == relation].T]


@pytest.fixture(scope="module")
def schedules() -> list[tvm.IRModule]:
    target = small_target()
    mods = []
    for network in NETWORKS:
        tasks = extract_tasks(load_network(network).mod, target)
        for task in tasks[:: max(1, len(tasks) // TASKS_A_NETWORK)]:
            workload = workload_of(task)
            mods.append(workload)
            mods += unprocessed(workload, target)
            mods += [candidate.sch.mod for candidate in candidates(workload, target, 2)]
    return mods


def test_memory_of_an_earlier_population_leaves_no_trace(schedules: list[tvm.IRModule]):
    # Large arrays are written into the memory of those that were freed before them.
    large = 4 * schedules
    expected = extract_graphs(schedules)
    for mods in (large, large[::-1], large):
        graphs = extract_graphs(mods)
        assert graphs.x.nbytes > 1 << 22
    np.testing.assert_array_equal(graphs.x[: len(expected.x)], expected.x)
    np.testing.assert_array_equal(graphs.node_type[: len(expected.node_type)], expected.node_type)
    first = slice(0, expected.edge_offsets[-1])
    np.testing.assert_array_equal(graphs.edge_index[:, first], expected.edge_index)
    np.testing.assert_array_equal(graphs.edge_type[first], expected.edge_type)


def test_the_groups_have_all_columns():
    assert np.concatenate([columns([group]) for group in GROUPS]).tolist() == list(range(len(VALUES)))
    with pytest.raises(ValueError, match="no feature group 'colour'"):
        columns(["loop", "colour"])


def test_every_node_of_real_schedules(schedules: list[tvm.IRModule]):
    tree = extract_graphs(schedules)
    statements = extract_graphs(schedules, detail="statements")
    assert tree.type_names == tuple(sorted(set(tree.type_names)))
    assert np.isfinite(tree.x).all()
    for graph, mod in enumerate(schedules):
        check_graph(tree, statements, graph, syntax_tree(mod))


def test_values_of_immediates_and_loops_of_real_schedules(schedules: list[tvm.IRModule]):
    graphs = extract_graphs(schedules)
    for graph, mod in enumerate(schedules):
        expected = syntax_tree(mod)
        iterations = {-1: 1.0}
        for i, node in enumerate(expected):
            row = int(graphs.node_offsets[graph]) + i
            if node.type in ("IntImm", "FloatImm"):
                number = min(max(float(node.obj.value), -3e38), 3e38)
                stored = np.sign(number) * np.log2(1 + abs(number))
                assert graphs.x[row, COLUMN["const_0"]] == pytest.approx(stored, rel=1e-5)
                assert graphs.x[row, COLUMN["const_1"]] == 1
            iterations[i] = iterations[node.parent]
            if node.type == "For":
                iterations[i] *= int(node.obj.extent)
                assert value(graphs, row, "extent") == pytest.approx(int(node.obj.extent), rel=1e-4)
                assert graphs.x[row, COLUMN["kind_serial"] + int(node.obj.kind)] == 1
            if node.type in ("For", "BufferStore"):
                parent = expected[node.parent]
                if not (parent.type == "Block" and parent.obj.init is not None):
                    assert value(graphs, row, "iterations") == pytest.approx(iterations[i], rel=1e-3)


def test_the_result_does_not_depend_on_the_threads(schedules: list[tvm.IRModule]):
    one = extract_graphs(schedules, threads=1)
    for threads in (0, 2, 7):
        many = extract_graphs(schedules, threads=threads)
        assert many.type_names == one.type_names
        for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
            np.testing.assert_array_equal(getattr(many, name), getattr(one, name))


def test_accesses_of_a_tiled_matmul():
    graphs = extract_graphs([module(tiled_matmul)], detail="statements")
    loads = nodes(graphs, "BufferLoad")  # c, a, b
    init, store = nodes(graphs, "BufferStore")
    # element strides by the loops k1 and i1; j1 is innermost and vectorized
    expected = {loads[0]: (1, 0, 48), loads[1]: (0, 1, 64), loads[2]: (1, 48, 0), store: (1, 0, 48)}
    for node, (innermost, second, third) in expected.items():
        assert value(graphs, node, "stride_innermost") == pytest.approx(innermost * 4)
        assert value(graphs, node, "stride_vectorized") == pytest.approx(innermost * 4)
        assert value(graphs, node, "stride_second") == pytest.approx(second * 4, rel=1e-4)
        assert value(graphs, node, "stride_third") == pytest.approx(third * 4, rel=1e-4)
        assert value(graphs, node, "executions") == pytest.approx(32 * 48 * 64, rel=1e-3)
    footprints = [value(graphs, loads[1], f"footprint_{i}") / 4 for i in (1, 2, 3, 4)]
    assert footprints == pytest.approx([1, 4, 16, 4 * 64], rel=1e-4)
    assert value(graphs, loads[2], "unique_bytes") == pytest.approx(64 * 48 * 4, rel=1e-4)
    assert value(graphs, loads[2], "unique_lines") == pytest.approx(64 * 48 * 4 / 64, rel=1e-4)
    # b does not move with i1: 4 times, 64 iterations apart; in between, one row of a and of c and a block of b
    assert value(graphs, loads[2], "reuse_count") == pytest.approx(4)
    assert value(graphs, loads[2], "reuse_iterations") == pytest.approx(4 * 16, rel=1e-4)
    assert value(graphs, loads[2], "reuse_bytes") == pytest.approx((16 + 4 + 4 * 16) * 4, rel=1e-4)
    flags = graphs.x[:, [COLUMN["is_update"], COLUMN["parallel_in_address"], COLUMN["buffer_is_param"]]]
    assert flags[[init, store, *loads]].tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
    # the block's init runs in the first iteration of the reduction alone
    assert value(graphs, init, "executions") == pytest.approx(32 * 48, rel=1e-3)


def test_work_and_edges_of_a_tiled_matmul():
    graphs = extract_graphs([module(tiled_matmul)], detail="statements")
    loops = nodes(graphs, "For")
    loads = nodes(graphs, "BufferLoad")
    init, store = nodes(graphs, "BufferStore")
    assert value(graphs, loops[0], "float_ops") == pytest.approx(2 * 32 * 48 * 64, rel=1e-3)
    assert value(graphs, loops[-1], "float_ops") == pytest.approx(2 * 16)
    assert value(graphs, loops[-1], "float_ops_total") == pytest.approx(2 * 32 * 48 * 64, rel=1e-3)
    assert value(graphs, loops[0], "footprint_bytes") == pytest.approx((32 * 64 + 64 * 48 + 32 * 48) * 4, rel=1e-3)
    assert value(graphs, loops[0], "body_bytes") == pytest.approx((4 * 64 + 64 * 48 + 4 * 48) * 4, rel=1e-3)
    assert [value(graphs, loop, "is_innermost") for loop in loops] == [0, 0, 0, 0, 0, 1]
    i0, j0, k0, i1, k1, j1 = loops
    depends = {loads[0]: {i0, i1, j0, j1}, loads[1]: {i0, i1, k0, k1}, loads[2]: {k0, k1, j0, j1}}
    depends |= {store: depends[loads[0]], init: depends[loads[0]]}
    assert set(edges(graphs, Relation.LOOP)) == {(loop, access) for access, set_ in depends.items() for loop in set_}
    assert set(edges(graphs, Relation.BUFFER)) == {(init, loads[0]), (store, loads[0])}


def test_a_fused_loop_is_split_again():
    graphs = extract_graphs([module(fused)], detail="statements")
    (load,), (store,) = nodes(graphs, "BufferLoad"), nodes(graphs, "BufferStore")
    assert value(graphs, load, "stride_innermost") == pytest.approx(4)
    assert value(graphs, store, "stride_innermost") == pytest.approx(6 * 4)
    for node in (load, store):
        assert value(graphs, node, "unique_bytes") == pytest.approx(42 * 4, rel=1e-4)


def test_overlapping_windows_and_an_index_that_is_loaded():
    graphs = extract_graphs([module(window)])
    update, in_window, gathered = (n for n in nodes(graphs, "BufferLoad") if value(graphs, n, "buffer_bytes") > 0)
    assert value(graphs, in_window, "unique_bytes") == pytest.approx(18 * 4, rel=1e-4)
    assert value(graphs, in_window, "footprint_1") == pytest.approx(3 * 4)
    x, r = nodes(graphs, "For")
    found = edges(graphs, Relation.LOOP)
    assert {s for s, t in found if t == gathered} == {x}
    assert {s for s, t in found if t == in_window} == {x, r}
    assert value(graphs, update, "is_update") == 1


def test_buffer_edges_are_capped():
    @T.prim_func(s_tir=True)
    def many(a: T.Buffer((1,), "float32")):
        for _ in range(2):
            a[0] = a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0]
            a[0] = a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0]
            a[0] = a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0] + a[0]

    assert len(edges(extract_graphs([module(many)]), Relation.BUFFER)) == 64


def test_lowered_programs_and_several_functions():
    passes = tvm.s_tir.transform
    lowered = module(tiled_matmul)
    for lower in (passes.LowerInitBlock, passes.ConvertBlocksToOpaque, passes.LowerOpaqueBlock):
        lowered = lower()(lowered)
    lowered = tirx.transform.VectorizeLoop()(tirx.transform.FlattenBuffer()(lowered))
    both = tvm.IRModule({"b": fused, "a": window})
    graphs = extract_graphs([lowered, both])
    assert "Ramp" in graphs.type_names
    for graph, mod in enumerate((lowered, both)):
        rows = slice(*graphs.node_offsets[graph : graph + 2])
        names = [graphs.type_names[i] for i in graphs.node_type[rows]]
        assert names == [node.type for node in syntax_tree(mod)]
    assert len(nodes(graphs, "PrimFunc", 1)) == 2


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (lambda: None, TypeError, r"modules\[1\].*got None"),
        (lambda: "text", TypeError, r"modules\[1\].*IRModule"),
        (lambda: object(), TypeError, r"modules\[1\].*Python object"),
        (lambda: relax.Function([], relax.Tuple([]), ret_ty=None), TypeError, r"modules\[1\].*relax"),
        (lambda: fused, TypeError, r"modules\[1\].*PrimFunc"),
        (lambda: tvm.IRModule(), ValueError, r"modules\[1\].*no PrimFunc"),
        (lambda: deep_module(1500), ValueError, r"modules\[1\].*deeper than 1000 levels"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_bad_input(bad, error, message, threads):
    good = module(fused)
    with pytest.raises(error, match=message):
        extract_graphs([good, bad(), good], threads=threads)
    graphs = extract_graphs([good, bad(), good], threads=threads, on_error="skip")
    counts = graphs.node_counts
    assert counts[1] == 0
    assert counts[0] == counts[2] == len(syntax_tree(good))
    assert list(graphs.errors) == [1]


def test_nesting_up_to_the_limit_is_taken():
    # PrimFunc, Evaluate, 997 additions and the variable
    assert extract_graphs([deep_module(997)] * 4, threads=4).node_counts.tolist() == [2 * 997 + 3] * 4
    with pytest.raises(ValueError, match="1000 levels"):
        extract_graphs([deep_module(998)])


def test_deep_indices_are_refused_in_either_detail():
    func = fused
    index = tirx.Var("x", "int32")
    for _ in range(1500):
        index = tirx.Add(index, tirx.const(1, "int32"))
    buffer = func.params[0]
    deep = module(tirx.PrimFunc(func.params, tirx.BufferStore(buffer, tirx.const(0, "float32"), [index, index])))
    for detail in ("tree", "statements"):
        with pytest.raises(ValueError, match="1000 levels"):
            extract_graphs([deep], detail=detail)


def test_shared_subtrees_that_are_millions_of_nodes_are_refused():
    expr = tirx.Var("x", "int32")
    for _ in range(21):  # 2^22 nodes as a tree; making a PrimFunc of many more takes TVM itself forever
        expr = tirx.Add(expr, expr)
    with pytest.raises(ValueError, match="more than 1048576 nodes"):
        extract_graphs([module(tirx.PrimFunc([], tirx.Evaluate(expr)))])


def test_bad_arguments():
    with pytest.raises(TypeError, match="wrap a single one in a list"):
        extract_graphs(module(fused))
    with pytest.raises(ValueError, match="detail"):
        extract_graphs([], detail="all")
    with pytest.raises(ValueError, match="on_error"):
        extract_graphs([], on_error="ignore")
    with pytest.raises(ValueError, match="threads"):
        extract_graphs([], threads=-1)


def test_no_modules():
    graphs = extract_graphs([])
    assert len(graphs) == 0
    assert graphs.x.shape == (0, len(VALUES))
    assert graphs.edge_index.shape == (2, 0)


def test_other_threads_run_meanwhile():
    mods = [module(tiled_matmul)] * 20000
    ticks = []
    running = threading.Event()

    def tick() -> None:
        while not running.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    extract_graphs(mods, threads=1)
    end = time.perf_counter()
    running.set()
    thread.join()
    assert sum(begin < moment < end for moment in ticks) > (end - begin) / 0.001 / 20
