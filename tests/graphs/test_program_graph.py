from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation


@st.composite
def populations(draw: st.DrawFn) -> ProgramGraphs:
    """Random populations, empty and failed graphs included; every node and edge carries numbers of its own."""
    names = draw(st.lists(st.sampled_from(["For", "Block", "Add", "IntImm"]), unique=True, min_size=1))
    nodes = draw(st.lists(st.integers(0, 5), max_size=6))
    edges = [draw(st.integers(0, 4)) if count else 0 for count in nodes]
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    total, total_edges = sum(nodes), sum(edges)
    return ProgramGraphs(
        tuple(names),
        rng.integers(0, len(names), total, dtype=np.int32),
        rng.random((total, 3), dtype=np.float32),
        np.stack(
            [np.array([rng.integers(n) for n, e in zip(nodes, edges, strict=True) for _ in range(e)], np.int32)] * 2
        )
        if total_edges
        else np.zeros((2, 0), np.int32),
        rng.integers(0, len(Relation), total_edges, dtype=np.int8),
        np.cumsum([0, *nodes]).astype(np.int64),
        np.cumsum([0, *edges]).astype(np.int64),
        {i: f"error {i}" for i, count in enumerate(nodes) if count == 0},
    )


def _graph(graphs: ProgramGraphs, i: int) -> tuple:
    nodes = slice(*graphs.node_offsets[i : i + 2])
    edges = slice(*graphs.edge_offsets[i : i + 2])
    return (
        [graphs.type_names[t] for t in graphs.node_type[nodes]],
        graphs.x[nodes].tolist(),
        graphs.edge_index[:, edges].tolist(),
        graphs.edge_type[edges].tolist(),
        graphs.errors.get(i),
    )


@given(populations(), st.data())
def test_selected_graphs_are_the_given_ones_in_the_given_order(graphs: ProgramGraphs, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(graphs) - 1), max_size=8)) if len(graphs) else []
    selected = graphs.select(chosen)
    assert [_graph(selected, i) for i in range(len(selected))] == [_graph(graphs, i) for i in chosen]
    assert selected.node_counts.tolist() == graphs.node_counts[chosen].tolist()


@given(st.lists(populations(), min_size=1, max_size=4))
def test_concatenated_graphs_are_those_of_the_parts(parts: list[ProgramGraphs]) -> None:
    whole = ProgramGraphs.concatenate(parts)
    expected = [_graph(part, i) for part in parts for i in range(len(part))]
    assert [_graph(whole, i) for i in range(len(whole))] == expected
    assert len(set(whole.type_names)) == len(whole.type_names)
    for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
        assert getattr(whole, name).dtype == getattr(parts[0], name).dtype


def test_a_graph_that_does_not_exist_is_an_error() -> None:
    graphs = ProgramGraphs(
        (), np.zeros(0, np.int32), np.zeros((0, 3), np.float32), np.zeros((2, 0), np.int32), np.zeros(0, np.int8),
        np.zeros(3, np.int64), np.zeros(3, np.int64),
    )  # fmt: skip
    with pytest.raises(IndexError):
        graphs.select([2])


def test_whole_trees_and_statements_do_not_mix() -> None:
    tree, statements = synthetic.graphs(2, detail="tree"), synthetic.graphs(2, detail="statements")
    with pytest.raises(InputError, match="cannot be concatenated; extract all with the same detail"):
        ProgramGraphs.concatenate([tree, statements])
    assert ProgramGraphs.concatenate([statements, statements.select([1])]).detail == "statements"
    assert statements.select([1]).detail == "statements"


def test_nothing_to_concatenate_is_an_error() -> None:
    with pytest.raises(InputError, match="no program graphs"):
        ProgramGraphs.concatenate([])


def test_graphs_of_programs_are_right() -> None:
    assert synthetic.graphs(5).wrong() is None
    assert ProgramGraphs.none((), 3, "tree").wrong() is None


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("node_offsets", 0, 1),
        ("node_offsets", 1, 10_000),
        ("node_offsets", -1, 10_000),
        ("edge_offsets", 1, -1),
        ("edge_offsets", -1, 10_000),
        ("node_type", 0, 3),
        ("node_type", 0, -1),
        ("x", (0, 0), np.nan),
        ("x", (0, 0), np.inf),
        ("x", (0, 0), -3e38),
        ("edge_type", 0, 3),
        ("edge_type", 0, -1),
        ("edge_index", (0, 0), -1),
        ("edge_index", (1, 0), 21),
        ("edge_index", (0, 0), 1),  # the first edge goes from node 0, the parent, to node 1
    ],
)
def test_a_wrong_number_in_graphs_is_found(name: str, place: Any, value: float) -> None:
    graphs = synthetic.graphs(5)
    array = getattr(graphs, name).copy()
    array[place] = value
    result = replace(graphs, **{name: array}).wrong()
    assert result == name or ("offsets" in name and result is not None)


@pytest.mark.parametrize("name", ["node_offsets", "edge_offsets", "node_type", "x", "edge_type", "edge_index"])
def test_an_array_of_another_shape_or_type_is_found(name: str) -> None:
    graphs = synthetic.graphs(5)
    array = getattr(graphs, name)
    changed = [array[..., None], array[..., :-1] if name != "x" else array[:-1]]
    changed += [array.astype(np.float64)] if name != "x" else []
    for other in changed:
        assert replace(graphs, **{name: other}).wrong() is not None
