"""What the examples of docstrings read: ``pytest -p tests.doctest_data --doctest-modules tvm_gnn_cost``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import synthetic
from tvm_gnn_cost.datasets.store import GraphStore

pytest_plugins = ["tests.conftest"]


@pytest.fixture(autouse=True)
def names_of_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, object], tmp_path: Path) -> None:
    """``work``, an empty folder; ``store``, a graph store; ``records``, a database of measured programs."""
    example = request.node.dtest.docstring
    doctest_namespace["work"] = tmp_path
    if "store," in example:
        GraphStore(tmp_path / "synthetic").append(synthetic.programs(12, 8))
        doctest_namespace["store"] = tmp_path / "synthetic"
    if "records," in example:
        doctest_namespace["records"] = request.getfixturevalue("measured")
