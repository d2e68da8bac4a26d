from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.prepared import SETTINGS, prepared, small
from tests.tpugraphs.published import layout_fields, tile_fields, write
from tests.tpugraphs.trained import COLLECTION, Example
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Advanced, Event, Note
from tvm_gnn_cost.tpugraphs.ranking.fit import fit
from tvm_gnn_cost.tpugraphs.ranking.rank import RankedGraph, Ranking, load_models, rank, rank_file
from tvm_gnn_cost.xla_cpu import find_kernels


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
        before, after = (rank_file(path, [ranker], 1) for path in (file, changed))
        assert np.array_equal(before.scores, after.scores) == ranker.is_pruned
    for number, ranker in enumerate(rankers):
        ranker.save(tmp_path / "both" / f"{number}.safetensors")
    (tmp_path / "both" / "kept.json").write_text('["0.safetensors", "1.safetensors"]')
    with pytest.raises(InputError, match=r"both: some of the models were trained on pruned graphs .* rank together"):
        load_models({COLLECTION: tmp_path / "both"})


def test_every_configuration_is_ranked_and_broken_files_are_left_out(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit(
        "cheb-sage", small("cheb-sage", "layout"), train, [valid], replace(SETTINGS, loss="listmle", epochs=1), tmp_path
    )
    fields = layout_fields(nodes=9, configs=5)
    fields["node_config_feat"][4] = fields["node_config_feat"][0]
    wrong = fields["node_config_feat"].copy()
    wrong[2] = 9
    folder = tmp_path / "npz/layout/xla/random/test"
    write(folder / "secret.npz", fields, config_runtime=None)
    write(folder / "broken.npz", fields, edge_index=None)
    write(folder / "wrong.npz", fields, node_config_feat=wrong)
    write(folder / "known.npz", fields)
    write(folder / "tile.npz", tile_fields())
    ranker.save(tmp_path / "ranker.safetensors")
    ranking = rank(tmp_path, {COLLECTION: str(tmp_path / "ranker.safetensors")}, permutations=2)
    known, secret = ranking.collections[COLLECTION]
    assert (known.name, secret.name) == ("known", "secret")
    assert [Path(problem.split(":")[0]).name for problem in ranking.left_out] == ["broken.npz", "tile.npz", "wrong.npz"]
    assert ranking.left_out[1].endswith("tile.npz: the field node_config_ids is missing")
    assert secret.runtime is None
    np.testing.assert_array_equal(known.runtime, fields["config_runtime"])
    np.testing.assert_array_equal(secret.scores, known.scores)
    assert secret.scores.shape == (5,)
    assert secret.scores[0] == pytest.approx(secret.scores[4])
    np.testing.assert_array_equal(secret.order, np.argsort(-secret.scores, kind="stable"))


def test_an_output_of_seven_dimensions_is_ranked(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("gru", small("gru", "layout"), train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    fields = layout_fields(nodes=9, configs=5)
    fields["node_feat"][0, 134:] = [6, 5, 4, 3, 2, 1]
    fields["node_feat"][1, 134:] = [-3, 200, 0, 1, 2, 3]
    graph = rank_file(write(tmp_path / "seven.npz", fields), [ranker], 1)
    assert graph.name == "seven"
    assert np.isfinite(graph.scores).all()


def test_a_model_without_finite_scores_ranks_nothing(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("gru", small("gru", "layout"), train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    broken = replace(ranker, state={name: weights * np.nan for name, weights in ranker.state.items()})
    with pytest.raises(InputError, match="a: a model's scores are not finite; train it again, with a lower learning"):
        rank_file(write(tmp_path / "a.npz", layout_fields()), [ranker, broken], 1)


def test_a_model_of_kernels_needs_to_be_told_how_to_find_them(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("kernel-costs", small("kernel-costs", "layout"), train, [valid], replace(SETTINGS, epochs=1), tmp_path)
    ranker.save(tmp_path / "ranker.safetensors")
    write(tmp_path / "npz/layout/xla/random/test/a.npz", layout_fields())
    models = {COLLECTION: tmp_path / "ranker.safetensors"}
    with pytest.raises(InputError, match=r"pass find_kernels, such as xla_cpu\.find_kernels"):
        rank(tmp_path, models)
    assert rank(tmp_path, models, find_kernels=find_kernels).count == 1


def test_the_table_has_the_order_of_layouts_and_the_best_five_tiles(tmp_path: Path):
    graphs = {
        "layout:xla:default": [RankedGraph("bert", np.array([0.1, 0.9, 0.5]), None)],
        "tile:xla": [RankedGraph("kernel", np.arange(8.0), None), RankedGraph("small", np.zeros(2), None)],
    }
    Ranking(graphs, ()).write_table(tmp_path / "out" / "table.csv")
    assert (tmp_path / "out" / "table.csv").read_text() == (
        "ID,TopConfigs\nlayout:xla:default:bert,1;2;0\ntile:xla:kernel,7;6;5;4;3\ntile:xla:small,0;1\n"
    )


def test_a_collection_is_ranked_and_its_table_written(example: Example, tmp_path: Path):
    events: list[Event] = []
    table = tmp_path / "out" / "table.csv"
    ranking = rank(example.root, {COLLECTION: example.models}, permutations=2, table=table, progress=events.append)
    assert (ranking.count, ranking.left_out, str(ranking)) == (1, (), "1 graphs ranked, 0 left out")
    (graph,) = ranking.collections[COLLECTION]
    assert (graph.name, graph.runtime) == ("t", None)
    assert table.read_text() == f"ID,TopConfigs\n{COLLECTION}:t,{';'.join(map(str, graph.order))}\n"
    assert events == [Advanced(1, 1)]
    by_file = rank(example.root, {COLLECTION: example.models / "fold-0.safetensors"}, split="train")
    assert [one.name for one in by_file.collections[COLLECTION]] == ["g0", "g1", "g2"]


def test_a_wrong_ranking_is_refused_with_its_cause(example: Example, tmp_path: Path):
    write(tmp_path / "npz/layout/xla/default/test/a.npz", layout_fields(), node_feat=None)
    write(tmp_path / "npz/tile/xla/test/k.npz", tile_fields())
    events: list[Event] = []
    with pytest.raises(InputError, match=r"no graph of the split 'test' in .* could be ranked: .*a\.npz: .*is missing"):
        rank(tmp_path, {"layout:xla:default": example.models}, table=tmp_path / "o.csv", progress=events.append)
    assert not (tmp_path / "o.csv").exists()
    assert events == [Note(f"{example.models} was trained on {COLLECTION}, and ranks layout:xla:default")]
    for models, changes, message in (
        ({}, {}, "models is empty; expected a model for at least one collection"),
        ({"layout": example.models}, {}, "unknown collection 'layout'"),
        ({"tile:xla": example.models}, {}, "ranks layouts, and the configurations of tile:xla are tiles"),
        ({COLLECTION: tmp_path}, {}, "holds no finished training"),
        ({COLLECTION: example.models}, {"split": "val"}, "unknown split 'val'"),
        ({COLLECTION: example.models}, {"permutations": 0}, "permutations is 0; expected 1 or more"),
        ({COLLECTION: example.models}, {"table": tmp_path}, "is a folder; expected a file"),
    ):
        with pytest.raises(InputError, match=message):
            rank(example.root, models, **changes)
    with pytest.raises(FileNotFoundError, match=f"does not hold {COLLECTION}"):
        rank(tmp_path, {COLLECTION: example.models})
