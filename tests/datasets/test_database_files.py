from __future__ import annotations

from pathlib import Path

import pytest

from tvm_gnn_cost.datasets.database_files import WORKLOADS, is_database


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_database_is_known_by_its_workloads(tmp_path: Path, suffix: str) -> None:
    assert not is_database(tmp_path)
    (tmp_path / f"{WORKLOADS}{suffix}").touch()
    assert is_database(tmp_path)
