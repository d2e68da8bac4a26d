from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import COLUMN, VALUES
from tvm_gnn_cost.scoring.exploration import explore, structures


def with_stores(*programs: list[dict[str, float]]) -> ProgramGraphs:
    """Programs of a loop and, for each dictionary of node features, a buffer store."""
    loop, store_type = synthetic.TYPES.index("For"), synthetic.TYPES.index("BufferStore")
    types = np.concatenate([[loop, *[store_type] * len(stores)] for stores in programs])
    x = np.zeros((len(types), len(VALUES)), np.float32)
    rows = np.flatnonzero(types == store_type)
    for row, store in zip(rows, (store for stores in programs for store in stores), strict=True):
        for name, value in store.items():
            x[row, COLUMN[name]] = value
    sizes = [1 + len(stores) for stores in programs]
    edges = [np.stack([np.zeros(len(stores), np.int32), np.arange(1, 1 + len(stores))]) for stores in programs]
    return ProgramGraphs(
        synthetic.TYPES,
        types.astype(np.int32),
        x,
        np.concatenate(edges, axis=1).astype(np.int32),
        np.zeros(sum(sizes) - len(programs), np.int8),
        offsets_of(sizes),
        offsets_of([len(stores) for stores in programs]),
        detail="statements",
    )


def test_a_structure_is_the_kinds_of_a_programs_stores() -> None:
    plain, vectorized = {"executions": 5.0}, {"vectorized_iterations": 3.0}
    found = structures(
        with_stores(
            [plain, vectorized],
            [vectorized, plain | {"executions": 9.0}],
            [vectorized, vectorized | {"vectorized_iterations": 1.0}],  # a vector of one element
            [vectorized, vectorized],
            [vectorized, plain | {"is_update": 1.0}],
            [vectorized, plain | {"buffer_is_param": 1.0}],
            [vectorized],
            [],
        )
    )
    assert found.tolist()[:3] == [found[0]] * 3
    assert len(np.unique(found[2:])) == 6


def test_a_structure_with_many_stores_does_not_overflow_into_another() -> None:
    many = structures(with_stores([{}] * 300, [{}] * 400, [{"buffer_is_param": 1.0}]))
    assert many[0] == many[1] != many[2]
    assert (many > 0).all()


def test_programs_without_stores_or_nodes_have_a_structure() -> None:
    graphs = synthetic.graphs(3)
    assert structures(replace(graphs, type_names=("BufferLoad", "Store", "For"))).tolist() == [0, 0, 0]
    assert structures(graphs.select([])).tolist() == []


def test_unmeasured_structures_share_every_fifth_place() -> None:
    scores = np.linspace(1, 0, 40)
    structure = np.array([0] * 30 + [1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    raised = explore(scores, structure, np.zeros(9, np.int64), enough=3)
    # The best candidate of each, in the order of their scores.
    assert np.flatnonzero(raised != scores).tolist() == [30, 32, 34, 36, 38]
    np.testing.assert_array_equal(raised[[30, 32, 34, 36, 38]], scores[[4, 9, 14, 19, 24]])
    assert raised.argmax() == 0


@pytest.mark.parametrize(("measured", "expected"), [(0, [30]), (1, [30, 31]), (2, [30, 31, 32]), (3, [])])
def test_one_more_candidate_is_raised_than_was_measured(measured: int, expected: list[int]) -> None:
    scores = np.linspace(1, 0, 40)
    structure = np.array([0] * 30 + [1] * 10)
    raised = explore(scores, structure, np.array([0] * 9 + [1] * measured), enough=3)
    assert np.flatnonzero(raised != scores).tolist() == expected


def test_scores_are_never_lowered_and_unreadable_candidates_stay_last() -> None:
    rng = np.random.default_rng(0)
    scores, structure = rng.random(50), rng.integers(0, 9, 50)
    scores[:20] = -np.inf
    raised = explore(scores, structure, np.zeros(0, np.int64), enough=3)
    assert (raised >= scores).all()
    assert (raised[:20] == -np.inf).all()


def test_few_candidates_and_none_are_scored_as_they_are() -> None:
    scores = np.array([0.4, 0.3, 0.2, 0.1])
    np.testing.assert_array_equal(explore(scores, np.arange(4), np.zeros(0, np.int64), 3), scores)
    assert explore(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), 3).shape == (0,)
