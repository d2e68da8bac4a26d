from __future__ import annotations

import importlib.resources
from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.graphs import extension as module
from tvm_gnn_cost.graphs.extension import check_options, extension, to_graphs
from tvm_gnn_cost.graphs.program_graph import Relation
from tvm_gnn_cost.graphs.values import VALUES


def test_the_extension_is_loaded_once() -> None:
    assert extension() is extension()


def test_extracting_releases_the_gil() -> None:
    assert extension().extract.release_gil
    assert extension().extract_auto_scheduler.release_gil


def test_the_extension_fills_the_columns_that_the_package_names() -> None:
    assert [str(name) for name in extension().value_names()] == [name for name, _ in VALUES]


def test_nothing_is_extracted_from_nothing() -> None:
    graphs = to_graphs(extension().extract([], True, 1, False), "tree")
    assert (len(graphs), len(graphs.node_type), graphs.detail) == (0, 0, "tree")
    assert graphs.x.shape == (0, len(VALUES))
    assert graphs.edge_index.shape == (2, 0)
    assert graphs.node_offsets.tolist() == graphs.edge_offsets.tolist() == [0]
    kinds = [
        array.dtype
        for array in (
            graphs.node_type,
            graphs.x,
            graphs.edge_index,
            graphs.edge_type,
            graphs.node_offsets,
            graphs.edge_offsets,
        )
    ]
    assert kinds == [np.int32, np.float32, np.int32, np.int8, np.int64, np.int64]


def test_what_is_no_module_is_skipped_with_its_reason_or_raised() -> None:
    graphs = to_graphs(extension().extract([1, "text"], True, 1, True), "statements")
    assert (len(graphs), len(graphs.node_type), graphs.detail) == (2, 0, "statements")
    assert set(graphs.errors) == {0, 1}
    assert all(isinstance(error, str) and "IRModule" in error for error in graphs.errors.values())
    with pytest.raises(TypeError, match="IRModule"):
        extension().extract([1], True, 1, False)


def test_a_result_becomes_graphs_without_a_copy() -> None:
    arrays = (
        np.array([1, 0], np.int32),
        np.ones((2, 3), np.float32),
        np.array([[0], [1]], np.int32),
        np.array([int(Relation.CHILD)], np.int8),
        np.array([0, 2, 2]),
        np.array([0, 1, 1]),
    )
    graphs = to_graphs((["Add", "For"], *arrays, {1: "too deep"}), "tree")
    assert (graphs.type_names, graphs.errors, graphs.detail) == (("Add", "For"), {1: "too deep"}, "tree")
    names = ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets")
    for name, array in zip(names, arrays, strict=True):
        np.testing.assert_array_equal(getattr(graphs, name), array)
        assert np.shares_memory(getattr(graphs, name), array)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("forest", 1, "raise"), "detail must be 'tree' or 'statements', got 'forest'"),
        (("tree", 1, "ignore"), "on_error must be 'raise' or 'skip', got 'ignore'"),
        (("tree", -1, "raise"), "threads must not be negative, got -1"),
    ],
)
def test_wrong_options_are_named(options: tuple[str, int, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_options(*options)
    check_options("statements", 0, "skip")


def test_a_package_that_was_not_built_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.resources, "files", lambda _package: tmp_path)
    with pytest.raises(WorkError, match=r"extraction\.so is missing: the package was not built"):
        extension.__wrapped__()


def test_an_extension_of_other_sources_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VALUES", VALUES[:-1])
    with pytest.raises(WorkError, match=r"extraction\.so was built from other sources .*; install it again"):
        extension.__wrapped__()
