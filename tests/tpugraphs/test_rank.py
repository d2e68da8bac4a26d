from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tests.tpugraphs.test_fit import SETTINGS, prepared, small
from tvm_gnn_cost.tpugraphs.fit import fit
from tvm_gnn_cost.tpugraphs.rank import rank_files


def test_every_configuration_is_ranked_and_what_is_broken_is_left_out(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit(
        "cheb-sage", small("cheb-sage", "layout"), train, [valid], replace(SETTINGS, loss="listmle", epochs=1), tmp_path
    )
    fields = layout_fields(nodes=9, configs=5)
    fields["node_config_feat"][4] = fields["node_config_feat"][0]
    wrong = fields["node_config_feat"].copy()
    wrong[2] = 9
    files = [
        write(tmp_path / "secret.npz", fields, config_runtime=None),
        write(tmp_path / "broken.npz", fields, edge_index=None),
        write(tmp_path / "wrong.npz", fields, node_config_feat=wrong),
        write(tmp_path / "known.npz", fields),
    ]
    problems: list[str] = []
    found = list(rank_files(files, [ranker], 2, problems))
    assert [name for name, _, _ in found] == ["secret", "known"]
    assert [Path(problem.split(":")[0]).name for problem in problems] == ["broken.npz", "wrong.npz"]
    (_, scores, secret), (_, again, runtime) = found
    assert secret is None
    np.testing.assert_array_equal(runtime, fields["config_runtime"])
    np.testing.assert_array_equal(scores, again)
    assert scores.shape == (5,)
    assert scores[0] == pytest.approx(scores[4])
    with pytest.raises(ValueError, match=r"tile\.npz has tile configurations, and the model ranks those of a layout"):
        list(rank_files([write(tmp_path / "tile.npz", tile_fields())], [ranker], 1, []))
