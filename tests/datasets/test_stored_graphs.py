from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import synthetic
from tvm_gnn_cost.datasets import stored_graphs
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import Graphs, ProgramGraphs

SIZES = (1, 40, 16, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards."""
    store = GraphStore(tmp_path_factory.mktemp("store"))
    for seed, size in enumerate(SIZES):
        store.append(synthetic.programs(1, size, seed=seed))
    return store.folder


def stored(folder: Path) -> Graphs:
    return GraphStore(folder).programs().graphs


def assert_equal(found: ProgramGraphs, expected: ProgramGraphs) -> None:
    assert (found.type_names, found.errors, found.detail) == (expected.type_names, expected.errors, expected.detail)
    for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, sum(SIZES) - 1), max_size=12))
def test_any_programs_are_read_in_the_given_order(folder: Path, chosen: list[int]) -> None:
    expected = GraphStore(folder).load().graphs
    rows = np.array(chosen, np.int64)
    found = stored(folder).select(rows)
    assert len(found) == len(rows)
    assert_equal(found.read(), expected.select(rows))


def test_a_selection_of_a_selection_counts_from_the_first(folder: Path) -> None:
    expected = GraphStore(folder).load().graphs
    found = stored(folder).select(np.array([50, 2, 59, 0])).select(np.array([3, 1, 0]))
    assert_equal(found.read(), expected.select([0, 2, 50]))


def test_more_shards_than_may_be_open_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_graphs, "_OPEN", 1)
    expected = GraphStore(folder).load().graphs
    graphs = stored(folder)
    for _ in range(2):
        assert_equal(graphs.read(), expected)


def test_a_shard_that_vanished_is_named(tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    path = store.append(synthetic.programs(1, 4))
    graphs = store.programs().graphs
    path.unlink()
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read"):
        graphs.read()
