from __future__ import annotations

from pathlib import Path

import pytest

from tests.tpugraphs.published import layout_fields, write
from tests.tpugraphs.trained import COLLECTION, Example
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Advanced, Event
from tvm_gnn_cost.tpugraphs.ranking.evaluation import evaluate
from tvm_gnn_cost.tpugraphs.ranking.metrics import graph_metrics
from tvm_gnn_cost.tpugraphs.ranking.rank import rank


def test_metrics_are_those_of_the_ranking(example: Example):
    models = {COLLECTION: example.models}
    found = evaluate(example.root, models, split="train", permutations=2)
    ranked = rank(example.root, models, split="train", permutations=2).collections[COLLECTION]
    for graph in ranked:
        assert graph.runtime is not None
        assert found.graphs[COLLECTION][graph.name] == graph_metrics(COLLECTION, graph.scores, graph.runtime)
    taus = [metrics["kendall_tau"] for metrics in found.graphs[COLLECTION].values()]
    assert found.collections[COLLECTION]["kendall_tau"] == pytest.approx(sum(taus) / 3)
    assert found.score == found.collections[COLLECTION]["score"]
    assert str(found).startswith(f"score {found.score:.4f}\n{COLLECTION}, 3 graphs: kendall_tau ")


def test_graphs_that_trained_the_models_are_named(example: Example):
    models = {COLLECTION: example.models}
    ((ranker,),) = example.trained.rankers.values()
    for split, names in (("train", {"g0", "g1", "g2"}), ("valid", {"v"})):
        expected = sorted(names & set(ranker.training["train_graphs"]))
        assert evaluate(example.root, models, split=split).trained_on == {COLLECTION: expected}


def test_what_can_not_be_evaluated_is_left_out_or_named(example: Example, tmp_path: Path):
    models = {COLLECTION: example.models}
    folder = tmp_path / "npz/layout/xla/random/valid"
    write(folder / "a.npz", layout_fields(), config_runtime=None)
    write(folder / "b.npz", layout_fields())
    broken = write(folder / "c.npz", layout_fields(), node_feat=None).resolve()
    events: list[Event] = []
    found = evaluate(tmp_path, models, progress=events.append)
    assert list(found.graphs[COLLECTION]) == ["b"]
    assert set(found.left_out) == {"a: its runtimes are secret", f"{broken}: the field node_feat is missing"}
    assert events == [Advanced(1, 3), Advanced(2, 3)]
    with pytest.raises(InputError, match=rf"no graph of {COLLECTION} in .* on its split 'test': t: its runtimes are s"):
        evaluate(example.root, models, split="test")
