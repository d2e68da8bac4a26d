from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.xla_cpu.hlo import config, layout_graph, line
from tests.xla_cpu.hlo import instructions as graph_of
from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.xla_cpu.layout_assignment import (
    CONSTRAINT,
    ConfigurableInstructions,
    assign_layouts,
    in_memory,
    is_row_major,
    row_major,
)
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction, random_configs
from tvm_gnn_cost.xla_cpu.networks import NETWORKS

ROWS, COLUMNS = (1, 0), (0, 1)


def instructions(*lines: Any) -> ConfigurableInstructions:
    return ConfigurableInstructions(graph_of(*lines))


def layouts_of_xla(function: ConfigurableFunction, layouts: np.ndarray, folder: Path) -> dict[str, tuple]:
    """What XLA's pass assigns in the entry computation: opcode, shape and layout by name."""
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "layout-assignment", "xla_dump_hlo_as_text": True}
    function.lower(layouts).compile(compiler_options=options)
    (path,) = folder.glob("*after_layout-assignment*")
    text = path.read_text()
    line = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = \w+\[([\d,]*)\](?:\{([\d,]*)\})? ([\w\-]+)\(", re.MULTILINE)

    def numbers(listed: str | None) -> tuple[int, ...]:
        return tuple(map(int, listed.split(","))) if listed else ()

    entry = text[text.index("ENTRY") :]
    return {name: (opcode, numbers(shape), numbers(layout)) for name, shape, layout, opcode in line.findall(entry)}


#: Networks whose layouts are compared in each run, and those before a release.
_FEW = ["gru-a", "unet-a", "attended-a"]
_MORE = ["gmlp-d", "convnext-a", "decoder-b", "shufflenet-a", "mixer-a", "query-a"]


@pytest.mark.parametrize("name", [*_FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in _MORE)])
def test_layouts_are_those_of_xla(name: str, tmp_path: Path):
    function = ConfigurableFunction(NETWORKS[name].function)
    names = [one.name for computation in function.module.computations for one in computation.instructions]
    fields = featurize(function.module)
    graph = ConfigurableInstructions(
        layout_graph(fields["node_feat"], fields["node_opcode"], fields["edge_index"].T, function.config_nodes)
    )
    right = compared = right_others = others = 0
    for number, layouts in enumerate(random_configs(function.ranks, 4, np.random.default_rng(1))):
        truth = layouts_of_xla(function, layouts, tmp_path / str(number))
        given = graph.with_constraints(layouts)
        assigned = assign_layouts(given)
        for node, instruction in enumerate(names):
            opcode, shape, layout = truth.get(instruction, ("", (), ()))
            # XLA renames nothing that it keeps; parameters and products are row-major anyway.
            if opcode != given.opcode[node] or shape != given.shape[node] or len(shape) < 2:
                continue
            if opcode in ("parameter", "dot", "convolution"):
                continue
            is_right = assigned.output[node] == layout
            compared, right = compared + 1, right + is_right
            if layout != row_major(len(shape)):
                others, right_others = others + 1, right_others + is_right
    assert compared > 20
    assert right >= 0.99 * compared, f"{right} of {compared}"
    assert right_others >= 0.99 * others, f"{right_others} of {others}"
    assert others > 10


def test_a_constraint_spreads_until_another_one():
    # a + b -> exp -> dot with c; the dot's input is constrained to columns.
    graph = instructions(
        [
            line("parameter", (8, 4)),
            line("parameter", (8, 4)),
            line("add", (8, 4), 0, 1),
            line("exponential", (8, 4), 2),
            line("parameter", (4, 5)),
            line("dot", (8, 5), 3, 4),
        ],
        [5],
    )
    free = assign_layouts(graph.with_constraints(config({})))
    assert set(free.output) == {ROWS}
    given = graph.with_constraints(config({1: COLUMNS}))
    assert given.opcode[6:] == [CONSTRAINT]
    assert given.operands[5:] == [[6, 4], [3]] or given.operands[5:] == [[4, 6], [3]]
    assert given.order == [0, 1, 2, 3, 4, 6, 5]
    found = assign_layouts(given)
    assert found.output == [ROWS, ROWS, COLUMNS, COLUMNS, ROWS, ROWS, COLUMNS]
    assert found.operands[2] == [COLUMNS, COLUMNS]  # so that both parameters are copied
    assert ROWS in found.operands[5]
    assert COLUMNS not in found.operands[5]


def test_the_first_constraint_on_a_tensor_holds_for_all():
    shared = [line("parameter", (4, 4)), line("dot", (4, 4), 0), line("dot", (4, 4), 0, 1)]
    graph = instructions(shared, [1, 2])
    given = graph.with_constraints(config({1: COLUMNS}, {1: ROWS}))
    assert list(given.layouts.values()) == [COLUMNS]
    assert given.operands[1] == [3]
    assert 3 in given.operands[2]
    # A constraint of the second alone leaves the first alone.
    given = graph.with_constraints(config({}, {2: COLUMNS}))
    assert given.operands[1] == [0]


def test_readers_read_the_constrained_output():
    graph = instructions([line("parameter", (4, 6)), line("reshape", (6, 4), 0), line("tanh", (6, 4), 1)], [1])
    given = graph.with_constraints(config({0: COLUMNS}))
    assert given.operands == [[], [0], [3], [1]]
    assert given.order == [0, 1, 3, 2]
    found = assign_layouts(given)
    # What a reshape reads is row-major, and so is what the network returns.
    assert found.output == [ROWS, COLUMNS, ROWS, COLUMNS]
    assert (found.operands[1], found.operands[2]) == ([ROWS], [ROWS])


def test_layouts_pass_transpositions_broadcasts_reductions_and_concatenations():
    graph = instructions(
        [
            line("parameter", (2, 3, 4)),
            line("transpose", (4, 2, 3), 0, dimensions=(2, 0, 1)),
            line("parameter", (2, 4)),
            line("broadcast", (2, 3, 4), 2, dimensions=(0, 2)),
            line("reduce", (2, 4), 3, dimensions=(1,)),
            line("concatenate", (2, 8), 4, 2, dimensions=(1,)),
        ]
    )
    found = assign_layouts(graph.with_constraints(config()))
    # The transposition moves nothing: its output has the layout that its row-major operand lies in.
    assert found.output[1] == (0, 2, 1)
    assert [found.output[node] for node in (3, 4, 5)] == [(2, 1, 0), ROWS, ROWS]


def test_constraints_that_are_not_layouts_of_the_tensor_are_ignored():
    graph = instructions([line("parameter", (4, 6)), line("reshape", (24,), 0)], [1])
    for layout in ((0,), (0, 0), (1, 2), (0, 1, 2)):
        expected = 1 if layout == (0, 1, 2) else 0  # of a matrix the first two places count
        assert len(graph.with_constraints(config({1: layout})).layouts) == expected
    assert not graph.with_constraints(config({0: (0,)})).layouts


def test_sizes_of_one_are_nowhere_in_memory():
    assert in_memory((2, 0, 1), (1, 3, 4)) == (2, 1)
    assert is_row_major((0, 2, 1), (1, 3, 4))
    assert not is_row_major((1, 2, 0), (1, 3, 4))


def test_a_reduction_and_a_call_read_no_computation():
    lines = [
        line("parameter", ()),
        line("add", (), 0),
        line("parameter", (3, 5)),
        line("constant", ()),
        line("reduce", (3,), 1, 2, 3, dimensions=(1,)),
    ]
    assert instructions(lines).with_constraints(config()).operands[4] == [2]
