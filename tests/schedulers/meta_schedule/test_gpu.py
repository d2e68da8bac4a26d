"""The features of GPU programs: of kernels with known values, and of candidates of MetaSchedule beside lowered ones.

Nothing here runs on a GPU: sampling and lowering need none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

from tests.schedulers.meta_schedule.real_schedules import candidates, context, small_target
from tests.schedulers.meta_schedule.syntax_tree import syntax_tree
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import COLUMN, columns
from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel

KERNEL = ("grid_blocks", "block_threads", "virtual_threads", "pipeline_stages", "async_stages", "shared_bytes")


@T.prim_func(s_tir=True)
def rows(a: T.Buffer((64, 256), "float32"), b: T.Buffer((64, 256), "float32")):
    for i in T.thread_binding(64, thread="blockIdx.x"):
        for j in T.thread_binding(256, thread="threadIdx.x"):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + T.float32(1)


@T.prim_func(s_tir=True)
def transposed(a: T.Buffer((64, 256), "float32"), b: T.Buffer((256, 64), "float32")):
    for i in T.thread_binding(64, thread="blockIdx.x"):
        for j in T.thread_binding(256, thread="threadIdx.x"):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vj, vi] = a[vi, vj]


@T.prim_func(s_tir=True)
def vectorized(a: T.Buffer((1024,), "float16"), b: T.Buffer((1024,), "float16")):
    for i in T.thread_binding(2, thread="blockIdx.x"):
        for j in T.thread_binding(64, thread="threadIdx.x"):
            for k in T.vectorized(8):
                with T.sblock("b"):
                    v = T.axis.spatial(1024, i * 512 + j * 8 + k)
                    b[v] = a[v]


@T.prim_func(s_tir=True)
def tiled_transpose(a: T.Buffer((256, 256), "float32"), b: T.Buffer((256, 256), "float32")):
    tile = T.sblock_alloc_buffer((256, 256), scope="shared")
    for by in T.thread_binding(8, thread="blockIdx.y"):
        for bx in T.thread_binding(8, thread="blockIdx.x"):
            for ty in T.thread_binding(8, thread="threadIdx.y"):
                for tx in T.thread_binding(32, thread="threadIdx.x"):
                    for k in range(4):
                        with T.sblock("tile"):
                            i = T.axis.spatial(256, by * 32 + k * 8 + ty)
                            j = T.axis.spatial(256, bx * 32 + tx)
                            tile[i, j] = a[i, j]
                    for k in range(4):
                        with T.sblock("b"):
                            j = T.axis.spatial(256, bx * 32 + k * 8 + ty)
                            i = T.axis.spatial(256, by * 32 + tx)
                            b[j, i] = tile[i, j]


@T.prim_func(s_tir=True)
def pipelined(a: T.Buffer((4, 1024), "float32"), b: T.Buffer((4, 64), "float32")):
    part = T.sblock_alloc_buffer((4, 1024), scope="shared")
    total = T.sblock_alloc_buffer((4, 64), scope="local")
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for v in T.thread_binding(2, thread="vthread.x"):
            for j in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("init"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(64, v * 32 + j)
                    total[vi, vj] = T.float32(0)
                for k in T.serial(
                    16,
                    annotations={
                        "software_pipeline_stage": [0, 2],
                        "software_pipeline_order": [0, 1],
                        "software_pipeline_async_stages": [0],
                    },
                ):
                    for f in range(2):
                        for t in T.thread_binding(32, thread="threadIdx.x"):
                            with T.sblock("part"):
                                vi = T.axis.spatial(4, i)
                                vk = T.axis.spatial(1024, k * 64 + f * 32 + t)
                                part[vi, vk] = a[vi, vk]
                    with T.sblock("total"):
                        vi = T.axis.spatial(4, i)
                        vj = T.axis.spatial(64, v * 32 + j)
                        vk = T.axis.reduce(16, k)
                        total[vi, vj] = total[vi, vj] + part[vi, vk * 64 + vj]
                with T.sblock("b"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(64, v * 32 + j)
                    b[vi, vj] = total[vi, vj]


def graph_of(program: tirx.PrimFunc | tvm.IRModule) -> ProgramGraphs:
    module = program if isinstance(program, tvm.IRModule) else tvm.IRModule({"main": program})
    return extract_graphs([module], detail="statements")


def nodes(graphs: ProgramGraphs, name: str) -> list[int]:
    return np.flatnonzero(graphs.node_type == graphs.type_names.index(name)).tolist()


def value(graphs: ProgramGraphs, node: int, name: str) -> float:
    """A value with its logarithm undone."""
    x = float(graphs.x[node, COLUMN[name]])
    return round(math.copysign(2 ** abs(x) - 1, x), 2)


def kernel(graphs: ProgramGraphs, node: int) -> list[float]:
    return [value(graphs, node, name) for name in KERNEL]


def test_neighbouring_threads_access_neighbouring_addresses() -> None:
    graphs = graph_of(rows)
    (load,), (store,) = nodes(graphs, "BufferLoad"), nodes(graphs, "BufferStore")
    for node in (load, store):
        assert value(graphs, node, "stride_thread") == 4
        assert value(graphs, node, "warp_sectors") == 32 * 4 / 32
        assert [value(graphs, node, name) for name in ("in_shared", "in_registers", "bank_conflicts")] == [0, 0, 0]
        assert kernel(graphs, node) == [64, 256, 1, 1, 0, 0]


def test_a_stride_between_threads_costs_a_sector_each() -> None:
    graphs = graph_of(transposed)
    (load,), (store,) = nodes(graphs, "BufferLoad"), nodes(graphs, "BufferStore")
    assert [value(graphs, node, "stride_thread") for node in (load, store)] == [4, 64 * 4]
    assert [value(graphs, node, "warp_sectors") for node in (load, store)] == [4, 32]


def test_a_vector_is_one_access() -> None:
    graphs = graph_of(vectorized)
    (load,) = nodes(graphs, "BufferLoad")
    assert value(graphs, load, "stride_thread") == 8 * 2
    assert value(graphs, load, "warp_sectors") == 32 * 8 * 2 / 32


@pytest.mark.parametrize(("padding", "conflicts"), [(0, 32), (1, 1), (2, 2), (8, 8)])
def test_padding_a_tile_in_shared_memory_spreads_a_column_over_the_banks(padding: int, conflicts: int) -> None:
    schedule = tvm.s_tir.Schedule(tiled_transpose)
    if padding:
        schedule.storage_align("tile", 0, axis=0, factor=32, offset=padding)
    graphs = graph_of(schedule.mod)
    loads, stores = nodes(graphs, "BufferLoad"), nodes(graphs, "BufferStore")
    # tile = a, b = tile
    assert [value(graphs, node, "in_shared") for node in (*stores, *loads)] == [1, 0, 0, 1]
    assert value(graphs, stores[0], "bank_conflicts") == 1
    assert value(graphs, loads[1], "bank_conflicts") == conflicts
    assert value(graphs, loads[1], "stride_thread") == (32 + padding) * 4
    assert [value(graphs, node, "warp_sectors") for node in (*stores, *loads)] == [0, 4, 4, 0]
    assert kernel(graphs, loads[0]) == [64, 256, 1, 1, 0, 32 * (32 + padding) * 4]
    assert value(graphs, loads[0], "shared_bytes") == shared_bytes(schedule.mod)


def test_pipelines_virtual_threads_and_registers() -> None:
    graphs = graph_of(pipelined)
    stores = nodes(graphs, "BufferStore")
    # One iteration of k holds 64 numbers in shared memory; each thread has a sum for each of the two virtual ones.
    for node in [*stores, *nodes(graphs, "For")]:
        assert kernel(graphs, node) == [4, 32, 2, 3, 1, 64 * 4]
        assert value(graphs, node, "register_bytes") == 2 * 4
    assert [value(graphs, node, "in_registers") for node in stores] == [1, 0, 1, 0]
    assert [value(graphs, node, "in_shared") for node in stores] == [0, 1, 0, 0]
    assert value(graphs, stores[1], "bank_conflicts") == 1
    assert shared_bytes(tvm.IRModule({"main": pipelined})) == 64 * 4


def test_each_kernel_of_a_program_has_its_own_values() -> None:
    @T.prim_func(s_tir=True)
    def two(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")):
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("b"):
                v = T.axis.spatial(64, i)
                b[v] = a[v]
        for i in T.thread_binding(64, thread="blockIdx.x"):
            with T.sblock("c"):
                v = T.axis.spatial(64, i)
                c[v] = b[v]

    graphs = graph_of(two)
    first, second = nodes(graphs, "BufferStore")
    assert kernel(graphs, first)[:2] == [1, 64]
    assert kernel(graphs, second)[:2] == [64, 1]
    assert [value(graphs, node, "warp_sectors") for node in (first, second)] == [4, 1]
    # What lies outside of both has none.
    assert not graphs.x[nodes(graphs, "PrimFunc")[0], columns(["gpu"])].any()


def test_a_program_of_a_cpu_has_none_of_these_values() -> None:
    mods = [candidate.sch.mod for candidate in candidates(matmul("float32", 64), small_target(), 4)]
    assert not extract_graphs(mods).x[:, columns(["gpu"])].any()


def matmul(dtype: str, size: int) -> tvm.IRModule:
    a, b = (te.placeholder((size, size), dtype, name) for name in ("a", "b"))
    k = te.reduce_axis((0, size), "k")
    product = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="product"
    )
    return tvm.IRModule({"main": te.create_prim_func([a, b, product])})


def convolution() -> tvm.IRModule:
    from tvm import topi

    data, weight = te.placeholder((1, 30, 30, 32), name="data"), te.placeholder((3, 3, 32, 64), name="weight")
    return tvm.IRModule({"main": te.create_prim_func([data, weight, topi.nn.conv2d_nhwc(data, weight, 2, 1, 1)])})


def gpu() -> Any:
    return tvm.target.Target("nvidia/nvidia-a100")


@pytest.fixture(scope="module")
def sampled() -> dict[str, list[Any]]:
    workloads = {"matmul": matmul("float32", 512), "half": matmul("float16", 512), "convolution": convolution()}
    return {name: candidates(workload, gpu(), 16) for name, workload in workloads.items()}


def shared_bytes(mod: tvm.IRModule) -> int:
    """Bytes of shared memory that TVM allocates, before it overlays buffers and repeats them for a pipeline."""
    passes = tvm.s_tir.transform
    for lower in (
        passes.LowerCrossThreadReduction,
        passes.LowerInitBlock,
        passes.PlanAndUpdateBufferAllocationLocation,
        passes.ConvertBlocksToOpaque,
        passes.UnifyThreadBinding,
        passes.CompactBufferAllocation,
    ):
        mod = lower()(mod)
    blocks = [node.obj for node in syntax_tree(mod) if node.type == "Block"]
    return sum(allocated(buffer) for block in blocks for buffer in block.alloc_buffers)


def allocated(buffer: Any) -> int:
    shape, strides = ([int(one) for one in field] for field in (buffer.ty.shape, buffer.ty.strides))
    elements = shape[0] * strides[0] if strides else math.prod(shape)
    return elements * int(buffer.ty.dtype.dtype.bits) // 8 if buffer.scope().startswith("shared") else 0


def test_shared_memory_of_candidates_is_what_lowering_allocates(sampled: dict[str, list[Any]]) -> None:
    for name, found in sampled.items():
        mods = [candidate.sch.mod for candidate in found]
        assert len(mods) >= 8, name
        graphs = extract_graphs(mods, detail="statements")
        expected = [shared_bytes(mod) for mod in mods]
        assert max(expected) > 0
        for graph, lowered in enumerate(expected):
            rows_of_graph = slice(*graphs.node_offsets[graph : graph + 2])
            most = graphs.x[rows_of_graph, COLUMN["shared_bytes"]].max()
            assert 2**most - 1 == pytest.approx(lowered, rel=1e-3), name


def test_tensor_intrinsics_and_asynchronous_copies_are_seen(sampled: dict[str, list[Any]]) -> None:
    graphs = extract_graphs([candidate.sch.mod for candidate in sampled["half"]], detail="statements")
    assert any("mma" in name for name in graphs.type_names), graphs.type_names
    assert graphs.x[:, COLUMN["register_bytes"]].max() > 0
    assert np.isfinite(graphs.x).all()


def test_the_cost_model_scores_a_population(sampled: dict[str, list[Any]]) -> None:
    for workload, found in ((matmul("float32", 512), sampled["matmul"]), (matmul("float16", 512), sampled["half"])):
        scores = GNNCostModel().predict(context(workload, gpu()), found)
        assert np.isfinite(scores).all()
        assert ((scores > 0) & (scores < 1)).all()
        assert len(np.unique(scores)) > len(found) // 2
