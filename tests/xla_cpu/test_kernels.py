from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.xla_cpu.hlo import config, instructions, layout_graph, line
from tvm_gnn_cost.tpugraphs.format import KERNEL_FEATURES
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import Kernels
from tvm_gnn_cost.xla_cpu.kernels import (
    _KINDS,
    _SIZES,
    _Common,
    _Loop,
    _Separate,
    find_kernels,
)

ROWS, COLUMNS = (1, 0), (0, 1)
NAMES = (*_Common._fields, *_KINDS, *(f"size{place}" for place in range(_SIZES)), *_Loop._fields, *_Separate._fields)


def kernels(graph: ConfiguredGraph, layouts: np.ndarray) -> list[dict[str, float]]:
    """The kernels of one configuration: their features by name."""
    found = find_kernels(graph, [layouts])
    return [dict(zip(NAMES, found.features[one].tolist(), strict=True)) for one in found.of]


def kinds(found: list[dict[str, float]]) -> list[str]:
    return sorted(next(kind for kind in _KINDS if one[kind]) for one in found)


#: A parameter, its exponential, and the product of that with another parameter.
PRODUCT = [
    line("parameter", (16, 8)),
    line("exponential", (16, 8), 0),
    line("parameter", (8, 32)),
    line("dot", (16, 32), 1, 2),
]


def test_each_feature_has_a_name_and_a_value():
    assert len(NAMES) == len(set(NAMES)) == KERNEL_FEATURES
    loop, product = kernels(instructions(PRODUCT, [3]), config({}))
    assert loop["loop"] == product["dot"] == 1
    assert loop["work"] == pytest.approx(np.log2(16 * 8 + 1) / 10)
    assert product["work"] == pytest.approx(np.log2(16 * 8 * 32 + 1) / 10)
    assert product["elements"] == pytest.approx(np.log2(16 * 32 + 1) / 10)
    assert (loop["feeds_product"], loop["feeds_constraint"], product["readers"]) == (1, 0, 0)
    assert (loop["size0"], loop["size1"], loop["size2"]) == pytest.approx((3 / 5, 4 / 5, 0))
    assert loop["transcendental"] == pytest.approx(np.log(2))
    assert (loop["contiguous"], loop["strided"], loop["is_copy"]) == (pytest.approx(np.log(2)), 0, 0)


def test_a_constraint_to_another_layout_costs_copies():
    # The weight is copied into columns, and back into rows, in which products read.
    found = kernels(instructions(PRODUCT, [3]), config({2: COLUMNS}))
    assert kinds(found) == ["dot", "loop", "loop", "loop"]
    copies = [one for one in found if one["is_copy"]]
    assert [one["is_row_major"] for one in copies] == [0, 1]
    assert [one["feeds_constraint"] for one in copies] == [1, 0]
    assert [one["parameters"] for one in copies] == pytest.approx([1 / 3, 0])
    # Neighbours in the copy lie a row, or a column, apart.
    assert [one["largest_stride"] for one in copies] == pytest.approx([np.log2(32) / 10, np.log2(8) / 10])
    assert [one["turned"] for one in copies] == [0.5, 0.5]
    # A constraint to the layout that the weight has anyway costs none.
    assert kinds(kernels(instructions(PRODUCT, [3]), config({2: ROWS}))) == ["dot", "loop"]


def test_operations_are_fused_into_one_loop():
    graph = instructions(
        [
            line("parameter", (4, 8)),
            line("parameter", (8,)),
            line("broadcast", (4, 8), 1, dimensions=(1,)),
            line("add", (4, 8), 0, 2),
            line("tanh", (4, 8), 3),
            line("parameter", (4, 1)),
            line("broadcast", (4, 8), 5, dimensions=(0, 1)),
            line("divide", (4, 8), 4, 6),
        ]
    )
    (loop,) = kernels(graph, config())
    assert [loop[name] for name in ("simple", "transcendental", "divisions")] == pytest.approx(
        [np.log(2) / 2, np.log(2), np.log(2)]
    )
    # Two inputs follow the loop, one stays where it is along a row.
    assert [loop[name] for name in ("contiguous", "constant", "strided")] == pytest.approx(
        [np.log(3), np.log(2) / 2, 0]
    )


def test_what_several_loops_read_is_computed_once_if_it_reads_two_tensors():
    def loops(*shared: tuple) -> int:
        lines = [
            *(line("parameter", (4, 8)), line("parameter", (4, 8)), *shared),
            *(line("parameter", (8, 4)), line("tanh", (4, 8), 2), line("exponential", (4, 8), 2)),
            *(line("dot", (4, 4), 3, 4), line("dot", (4, 4), 3, 5)),
        ]
        return kinds(kernels(instructions(lines), config())).count("loop")

    assert loops(line("add", (4, 8), 0, 1)) == 3
    assert loops(line("negate", (4, 8), 0)) == 2


def test_a_reduction_computes_what_nothing_else_reads():
    def reduction(layouts: np.ndarray) -> tuple[dict[str, float], int]:
        lines = [
            *(line("parameter", (4, 8)), line("reshape", (4, 8), 0), line("multiply", (4, 8), 1)),
            line("reduce", (4,), 2, dimensions=(1,)),
        ]
        found = kernels(instructions(lines, [1]), layouts)
        (one,) = (kernel for kernel in found if kernel["reduce"])
        return one, len(found)

    one, count = reduction(config({}))
    assert (one["reduces_minor"], one["squared_copies"], one["copies"], count) == (1, 0, 0, 1)
    assert one["absorbed"] == pytest.approx(np.log(3) / 2)  # the square and the reshape
    # Where the square's operand is copied, the loop that copies is left, and the square is one of a copy.
    one, count = reduction(config({0: COLUMNS}))
    assert (one["squared_copies"], one["copies"], count) == (1, 1, 3)
    assert one["absorbed"] == pytest.approx(np.log(2) / 2)


def test_indices_pass_what_moves_elements():
    def strides(*moves: tuple, shape: tuple[int, ...] = (4, 8)) -> tuple[float, float]:
        (loop,) = kernels(instructions([line("parameter", shape), *moves]), config())
        return round(2 ** (10 * loop["largest_stride"])), loop["contiguous"] > 0

    assert strides(line("slice", (2, 8), 0)) == (1, True)
    assert strides(line("reshape", (2, 2, 8), 0)) == (1, True)
    assert strides(line("transpose", (8, 4), 0, dimensions=(1, 0)), line("reshape", (8, 2, 2), 1)) == (8, False)
    # A concatenation has a kernel of its own.
    joined = [line("parameter", (4, 8)), line("parameter", (4, 8)), line("concatenate", (8, 8), 0, 1, dimensions=(0,))]
    assert kinds(kernels(instructions(joined), config())) == ["concatenate"]


def test_equal_kernels_are_described_once():
    twice = [*PRODUCT, line("exponential", (16, 8), 0), line("dot", (16, 32), 2, 4)]
    found = find_kernels(instructions(twice, [3]), [config({}), config({2: COLUMNS})])
    assert found.begins.tolist() == [0, 4, 10]  # the second configuration has two copies more
    assert len(found.features) == len(np.unique(found.features, axis=0)) == 5


def test_a_graph_may_have_no_kernel():
    found = find_kernels(instructions([line("parameter", (2, 3))]), [config()] * 2)
    assert isinstance(found, Kernels)
    assert (found.features.shape, found.begins.tolist()) == ((0, KERNEL_FEATURES), [0, 0, 0])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_graph_has_kernels(seed: int):
    """Files may say anything: dimensions that do not fit, edges between all nodes, layouts of other ranks."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    node_feat = np.zeros((count, 140), np.float32)
    node_feat[:, 0] = rng.random(count) < 0.2
    node_feat[:, 21:27] = rng.choice(
        [0, 1, 2, 5, -1, np.nan, np.inf], (count, 6), p=[0.3, 0.2, 0.2, 0.2, 0.04, 0.03, 0.03]
    )
    node_feat[:, 31:37] = rng.choice([0, 1, 2, 3, 7, -2, np.nan], (count, 6))
    opcode = rng.choice([0, 2, 12, 13, 22, 24, 34, 57, 59, 63, 70, 75, 92, 95, 250], count)
    edges = rng.integers(0, count, (2, int(rng.integers(0, 2 * count))))
    nodes = rng.permutation(count)[: int(rng.integers(0, count + 1))]
    layouts = [rng.integers(-1, 6, (len(nodes), 18)).astype(np.int8) for _ in range(3)]
    found = find_kernels(layout_graph(node_feat, opcode, edges, nodes), layouts)
    assert np.isfinite(found.features).all()
    assert len(found.begins) == 4
