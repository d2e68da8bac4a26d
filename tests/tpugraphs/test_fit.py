from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.tpugraphs import fit as fit_module
from tvm_gnn_cost.tpugraphs.collections import COLLECTIONS
from tvm_gnn_cost.tpugraphs.fit import MODEL_LOSS, FitSettings, fit, folds, hinge, hinge_sum, recipe
from tvm_gnn_cost.tpugraphs.metrics import graph_metrics
from tvm_gnn_cost.tpugraphs.opcode_vectors import opcode_vectors
from tvm_gnn_cost.tpugraphs.opcodes import OPCODES
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph, prepare_files, read_prepared
from tvm_gnn_cost.tpugraphs.ranker import MODELS, GraphInputs, Ranker, score, score_with_all

SETTINGS = FitSettings(epochs=30, patience=30, configs_per_step=32, learning_rate=3e-3)


def prepared(folder: Path, kind: str, count: int, *, prunes: bool = True) -> list[PreparedGraph]:
    """Graphs whose configurations cost what one value of theirs says."""
    files = []
    for seed in range(count):
        if kind == "layout":
            fields = layout_fields(nodes=9, configs=60, seed=seed)
            runtime = 2 + fields["node_config_feat"][:, :, 0].sum(axis=1) / 10
        else:
            fields = tile_fields(configs=60, seed=seed) | {"config_runtime_normalizers": np.ones(60)}
            runtime = 1 + fields["config_feat"][:, 2] / 1000
        files.append(write(folder / "npz" / f"{kind}{seed}.npz", fields, config_runtime=runtime))
    assert len(list(prepare_files(files, folder / "prepared", [], prunes=prunes))) == count
    return [read_prepared(folder / "prepared", file.stem) for file in files]


def small(model: str, kind: str) -> Any:
    return MODELS[model][1](kind=kind, channels=32)


@pytest.mark.parametrize(("model", "kind"), [(m, k) for m in MODELS for k in ("layout", "tile")])
def test_each_model_ranks_a_graph_that_it_never_saw(model: str, kind: str, tmp_path: Path):
    *train, valid, test = prepared(tmp_path, kind, 10)
    settings = replace(SETTINGS, loss=MODEL_LOSS[model])
    ranker = fit(model, small(model, kind), train, [valid], settings, tmp_path / "fit")
    assert test.runtime is not None
    scores = score_with_all([ranker], test, permutations=2)
    assert graph_metrics("layout" if kind == "layout" else "tile", scores, test.runtime)["kendall_tau"] > 0.5
    ranker.save(tmp_path / "ranker.safetensors")
    again = Ranker.load(tmp_path / "ranker.safetensors")
    assert (again.model, again.config, again.card) == (ranker.model, ranker.config, ranker.card)
    np.testing.assert_array_equal(score_with_all([again], test, permutations=2), scores)


def test_the_same_seed_gives_the_same_weights_also_after_an_interruption(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 4)
    settings = replace(SETTINGS, epochs=4)

    def train_once(folder: str, tell=lambda _epoch, _metrics: None) -> Ranker:
        return fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / folder, tell)

    def stop(epoch: int, _metrics: dict[str, float]) -> None:
        if epoch == 3:
            raise RuntimeError("killed")

    one = train_once("a")
    with pytest.raises(RuntimeError, match="killed"):
        train_once("b", stop)
    told: list[int] = []
    two = train_once("b", lambda epoch, _metrics: told.append(epoch))
    assert 1 not in told
    assert told[-1] == 4
    for name, weights in one.state.items():
        torch.testing.assert_close(two.state[name], weights, rtol=0, atol=0)


def test_a_training_that_diverges_keeps_the_epoch_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    *train, valid = prepared(tmp_path, "layout", 4)
    settings = replace(SETTINGS, epochs=5)
    good = 0

    def loss(scores: torch.Tensor, runtime: torch.Tensor) -> torch.Tensor:
        nonlocal good
        good -= 1
        return hinge(scores, runtime) * (1 if good >= 0 else float("nan"))

    monkeypatch.setattr(fit_module, "LOSSES", {"hinge": loss})
    told: list[float] = []

    def tell(_epoch: int, metrics: dict[str, float]) -> None:
        told.append(metrics["validation_error"])

    good = 3 * len(train)
    ranker = fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / "late", tell)
    assert len(told) == 4
    assert told[3] == np.inf
    assert ranker.card["training"]["validation_error"] == pytest.approx(min(told))
    assert valid.runtime is not None
    scores = score_with_all([ranker], valid, permutations=1)
    tau = graph_metrics("layout", scores, valid.runtime)["kendall_tau"]
    assert (1 - tau) / 2 == pytest.approx(min(told), abs=0.05)

    good = 0
    with pytest.raises(RuntimeError, match="the training diverged in its first epoch"):
        fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / "at once")
    broken = replace(ranker, state={name: weights * np.nan for name, weights in ranker.state.items()})
    with pytest.raises(ValueError, match="scores are not finite"):
        score_with_all([ranker, broken], valid)


def test_a_key_that_interrupts_is_no_end_of_the_process(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)

    def stop(_epoch: int, _metrics: dict[str, float]) -> None:
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit("tgraph", small("tgraph", "layout"), train, [valid], SETTINGS, tmp_path / "fit", stop)
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_recipe_of_each_collection():
    found = {name: recipe(name, "tgraph", 3) for name in COLLECTIONS}
    assert {name: (one.epochs, one.patience, one.configs_per_step) for name, one in found.items()} == {
        "layout:xla:random": (750, 750, 128),
        "layout:xla:default": (750, 750, 64),
        "layout:nlp:random": (1000, 1000, 128),
        "layout:nlp:default": (1000, 1000, 64),
        "tile:xla": (18, 18, 64),
    }
    assert {one.seed for one in found.values()} == {3}
    assert recipe("tile:xla", "gru", 0).loss == "runtime"


def test_opcodes_of_the_training_graphs_are_known_and_no_others(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    ranker = fit("gru", small("gru", "layout"), train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    known = torch.nonzero(ranker.state["encoder.opcodes.is_known"]).flatten().tolist()
    assert known == np.unique(np.concatenate([graph.opcode for graph in train])).tolist()


def test_opcodes_by_fasttext(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)
    config = replace(small("gru", "layout"), opcodes="fasttext")
    ranker = fit("gru", config, train, [valid], replace(SETTINGS, loss="runtime", epochs=1), tmp_path)
    vectors = ranker.state["encoder.opcodes.vectors"]
    assert vectors.shape == (121, 16)
    lengths = vectors.norm(dim=1)
    seen = np.unique(np.concatenate([graph.opcode for graph in train]))
    torch.testing.assert_close(lengths[seen], torch.ones(len(seen)))
    assert lengths[0] == 0
    # A name that shares no three letters with one that was seen is unknown.
    assert ((lengths - 1).abs() < 1e-5).sum() > 100
    ranker.save(tmp_path / "ranker.safetensors")
    assert Ranker.load(tmp_path / "ranker.safetensors").config == config


def test_an_opcode_never_seen_has_a_vector_like_its_name(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 20)
    unseen = OPCODES["all-reduce-start"]
    related = OPCODES["all-reduce-done"]
    graphs = [replace(graph, opcode=np.where(graph.opcode == unseen, 1, graph.opcode)) for graph in graphs]
    vectors = opcode_vectors(graphs, 16, seed=0)
    near = vectors[1:] @ vectors[unseen]
    assert np.abs(vectors[unseen]).max() > 0
    assert near[related - 1] > np.quantile(np.delete(near, unseen - 1), 0.9)


def test_graphs_that_were_not_prepared_alike_do_not_train(tmp_path: Path):
    train = prepared(tmp_path / "a", "layout", 2)
    valid = prepared(tmp_path / "b", "layout", 1, prunes=False)
    with pytest.raises(ValueError, match="some of the graphs were pruned and some were not"):
        fit("tgraph", small("tgraph", "layout"), train, valid, SETTINGS, tmp_path)


def test_more_permutations_average_over_who_is_compared(tmp_path: Path):
    (graph, *_) = prepared(tmp_path, "layout", 1)
    torch.manual_seed(0)
    net = MODELS["tgraph"][0](small("tgraph", "layout")).eval()
    scale_free = GraphInputs(graph, Ranker("tgraph", small("tgraph", "layout"), _unit_scale(), {}, 8).scale)
    rows = np.arange(len(graph.config_rows))
    spread = [
        np.std([score(net, scale_free, rows, 8, permutations=count, seed=seed) for seed in range(6)], axis=0).mean()
        for count in (1, 16)
    ]
    assert spread[1] < spread[0] / 2
    np.testing.assert_allclose(
        score(net, scale_free, rows, 100, permutations=1, seed=0),
        score(net, scale_free, rows, 100, permutations=1, seed=1),
        rtol=1e-4,
        atol=1e-5,
    )


def _unit_scale() -> Any:
    from tvm_gnn_cost.tpugraphs.scale import Scale

    return Scale(np.zeros(134), np.ones(134))


def test_hinge_counts_each_pair_of_which_one_is_faster():
    scores = torch.tensor([2.0, 0.5, 1.0])
    runtime = torch.tensor([1.0, 2.0, 2.0])
    # 0 before 1: 1 - 1.5, no loss. 0 before 2: 1 - 1. Turned round, 1 + 1.5 and 1 + 1.
    assert hinge_sum(scores, runtime).item() == 0
    assert hinge_sum(-scores, runtime).item() == pytest.approx(4.5)
    assert hinge(-scores, runtime).item() == pytest.approx(4.5 / 2)
    assert hinge(scores, torch.ones(3)).item() == 0


def test_every_graph_validates_once(tmp_path: Path):
    graphs = prepared(tmp_path, "tile", 7)
    parts = folds(graphs, 3, seed=0)
    assert sorted(graph.name for _, valid in parts for graph in valid) == [graph.name for graph in graphs]
    for train, valid in parts:
        assert {graph.name for graph in train}.isdisjoint(graph.name for graph in valid)
        assert len(train) + len(valid) == 7
    with pytest.raises(ValueError, match="8 folds of 7 graphs"):
        folds(graphs, 8, seed=0)


def test_mistakes_are_named(tmp_path: Path):
    one, two = prepared(tmp_path, "tile", 2)
    for model, changes, train, sentence in (
        ("tgraf", {}, [one], "unknown model 'tgraf'; one of: tgraph"),
        ("tgraph", {"loss": "hings"}, [one], "unknown loss 'hings'"),
        ("tgraph", {"loss": "classes"}, [one], "classes is for rank-classes alone"),
        ("rank-classes", {"loss": "hinge"}, [one], "is none for the model 'rank-classes'"),
        ("tgraph", {}, [replace(one, runtime=None)], "each with two runtimes"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit(model, small("tgraph", "tile"), train, [two], replace(SETTINGS, **changes), tmp_path / "fit")
    with pytest.raises(ValueError, match="there is no such checkpoint; 'tvm-gnn-cost tpugraphs train' makes one"):
        Ranker.load(tmp_path / "none.safetensors")
