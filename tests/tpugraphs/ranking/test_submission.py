from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.ranking.submission import row, write_submission


def test_the_table(tmp_path: Path):
    rows = [
        row("layout:xla:default", "bert", np.array([0.1, 0.9, 0.5])),
        row("tile:xla", "kernel", np.arange(8.0)),
        row("tile:xla", "small", np.zeros(2)),
    ]
    path = tmp_path / "out" / "submission.csv"
    assert write_submission(path, rows) == 3
    assert path.read_text() == (
        "ID,TopConfigs\nlayout:xla:default:bert,1;2;0\ntile:xla:kernel,7;6;5;4;3\ntile:xla:small,0;1\n"
    )


def test_a_graph_is_ranked_once(tmp_path: Path):
    twice = [row("tile:xla", "kernel", np.arange(3.0))] * 2
    with pytest.raises(InputError, match="tile:xla:kernel occurs twice"):
        write_submission(tmp_path / "submission.csv", twice)
    assert list(tmp_path.iterdir()) == []
