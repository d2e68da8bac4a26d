from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tests.tpugraphs.test_fit import SETTINGS, prepared, small
from tvm_gnn_cost.tpugraphs.fit import fit
from tvm_gnn_cost.tpugraphs.rank import rank_files


def test_a_model_ranks_graphs_as_it_was_trained(tmp_path: Path):
    settings = replace(SETTINGS, loss="listmle", epochs=1)
    rankers = []
    for prunes in (True, False):
        *train, valid = prepared(tmp_path / str(prunes), "layout", 3, prunes=prunes)
        rankers.append(fit("cheb-sage", small("cheb-sage", "layout"), train, [valid], settings, tmp_path))
    assert [ranker.is_pruned for ranker in rankers] == [True, False]
    fields = layout_fields(nodes=12, configs=5)
    chosen = {"node_config_ids": np.array([5]), "node_config_feat": fields["node_config_feat"][:, :1]}
    file = write(tmp_path / "chain.npz", fields, **chosen)
    # What is far from the one configurable node says something to a model that was trained on whole graphs alone.
    feat = fields["node_feat"].copy()
    feat[0, :134] += 5
    changed = write(tmp_path / "changed.npz", fields, **chosen, node_feat=feat)
    for ranker in rankers:
        (_, before, _), (_, after, _) = rank_files([file, changed], [ranker], 1, [])
        assert np.array_equal(before, after) == ranker.is_pruned
    with pytest.raises(ValueError, match="they can't rank together"):
        list(rank_files([file], rankers, 1, []))


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
