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
    problems.clear()
    (found,) = rank_files([write(tmp_path / "tile.npz", tile_fields()), files[3]], [ranker], 1, problems)
    assert found[0] == "known"
    assert problems == [f"{tmp_path / 'tile.npz'}: the field node_config_ids is missing"]
    tiles = replace(ranker, config=small("cheb-sage", "tile"))
    with pytest.raises(ValueError, match="some of the models rank layouts and some tiles"):
        list(rank_files(files, [ranker, tiles], 1, []))


def test_an_output_of_seven_dimensions_is_ranked(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("gru", small("gru", "layout"), train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    fields = layout_fields(nodes=9, configs=5)
    fields["node_feat"][0, 134:] = [6, 5, 4, 3, 2, 1]
    fields["node_feat"][1, 134:] = [-3, 200, 0, 1, 2, 3]
    ((name, scores, _),) = rank_files([write(tmp_path / "seven.npz", fields)], [ranker], 1, problems := [])
    assert (name, problems) == ("seven", [])
    assert np.isfinite(scores).all()


def test_a_model_without_finite_scores_ranks_nothing(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("gru", small("gru", "layout"), train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    broken = replace(ranker, state={name: weights * np.nan for name, weights in ranker.state.items()})
    problems: list[str] = []
    assert not list(rank_files([write(tmp_path / "a.npz", layout_fields())], [ranker, broken], 1, problems))
    assert problems == ["a: a model's scores are not finite; train it again, with a lower learning rate"]
