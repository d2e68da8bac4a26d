from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental import _config

from tests.tpugraphs.prepared import SETTINGS, prepared, small
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.tpugraphs.ranking import fit as fit_module
from tvm_gnn_cost.tpugraphs.ranking.fit import GraphSteps, RankerModule, fit, trained_on
from tvm_gnn_cost.tpugraphs.ranking.losses import hinge
from tvm_gnn_cost.tpugraphs.ranking.metrics import graph_metrics
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, GraphInputs, Ranker, score_with_all
from tvm_gnn_cost.tpugraphs.settings import MODEL_LOSS
from tvm_gnn_cost.training.scale import Scale

#: Models that rank by what stands in the nodes, with what they can rank; ``test_kernel_costs.py`` has the other one.
READING_NODES = [(model, kind) for model in MODELS if model != "kernel-costs" for kind in ("layout", "tile")]


@pytest.mark.parametrize(("model", "kind"), READING_NODES)
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

    def train_once(folder: str, on_epoch=lambda _epoch, _metrics: None) -> Ranker:
        return fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / folder, on_epoch)

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

    def on_epoch(_epoch: int, metrics: dict[str, float]) -> None:
        told.append(metrics["validation_error"])

    good = 3 * len(train)
    ranker = fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / "late", on_epoch)
    assert len(told) == 4
    assert told[3] == np.inf
    assert ranker.card["training"]["validation_error"] == pytest.approx(min(told))
    assert valid.runtime is not None
    scores = score_with_all([ranker], valid, permutations=1)
    tau = graph_metrics("layout", scores, valid.runtime)["kendall_tau"]
    assert (1 - tau) / 2 == pytest.approx(min(told), abs=0.05)

    good = 0
    with pytest.raises(WorkError, match="the training diverged in its first epoch"):
        fit("tgraph", small("tgraph", "layout"), train, [valid], settings, tmp_path / "at once")
    broken = replace(ranker, state={name: weights * np.nan for name, weights in ranker.state.items()})
    with pytest.raises(InputError, match="scores are not finite"):
        score_with_all([ranker, broken], valid)


def test_a_key_that_interrupts_is_no_end_of_the_process(tmp_path: Path):
    *train, valid = prepared(tmp_path, "layout", 3)

    def stop(_epoch: int, _metrics: dict[str, float]) -> None:
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit("tgraph", small("tgraph", "layout"), train, [valid], SETTINGS, tmp_path / "fit", stop)
    assert signal.getsignal(signal.SIGINT) is handler


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


def test_graphs_that_were_not_prepared_alike_do_not_train(tmp_path: Path):
    train = prepared(tmp_path / "a", "layout", 2)
    valid = prepared(tmp_path / "b", "layout", 1, prunes=False)
    with pytest.raises(InputError, match="some of the graphs were pruned and some were not"):
        fit("tgraph", small("tgraph", "layout"), train, valid, SETTINGS, tmp_path)


def test_mistakes_are_named(tmp_path: Path):
    one, two = prepared(tmp_path, "tile", 2)
    for model, changes, train, sentence in (
        ("tgraf", {}, [one], "unknown model 'tgraf'; one of: tgraph"),
        ("tgraph", {"loss": "hings"}, [one], "unknown loss 'hings'"),
        ("tgraph", {"loss": "classes"}, [one], "classes is only for rank-classes"),
        ("rank-classes", {"loss": "hinge"}, [one], "the loss 'hinge' does not fit the model 'rank-classes'"),
        ("tgraph", {}, [replace(one, runtime=None)], "each with two runtimes"),
    ):
        with pytest.raises(InputError, match=sentence):
            fit(model, small("tgraph", "tile"), train, [two], replace(SETTINGS, **changes), tmp_path / "fit")


@pytest.mark.parametrize("opcodes", ["table", "fasttext"])
@pytest.mark.parametrize(("model", "kind"), READING_NODES)
def test_module_and_step_move_to_another_device_as_a_whole(
    model: str, kind: str, opcodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(RankerModule, "log", lambda *_arguments, **_settings: None)
    (graph,) = prepared(tmp_path, kind, 1)
    inputs = GraphInputs(graph, Scale(np.zeros(134), np.ones(134)))
    settings = replace(SETTINGS, loss=MODEL_LOSS[model])
    (step,) = GraphSteps([inputs], settings)
    config = replace(small(model, kind), opcodes=opcodes, unknown_opcodes=0.5)
    module = RankerModule(MODELS[model][0](config), settings)
    meta = torch.device("meta")
    moved = module.transfer_batch_to_device(step, meta, 0)
    # Without values torch cannot tell which edges are loops; here it is told that none is.
    with _config.patch(meta_nonzero_assume_all_nonzero=True):
        loss = module.to(meta).training_step(moved, 0)
        # What stays behind is an error on this device too.
        with pytest.raises(RuntimeError, match="device"):
            module.training_step(step, 0)
    assert loss.device == meta
    loss.backward()
    assert {weights.grad.device for weights in module.parameters() if weights.grad is not None} == {meta}
    assert module.transfer_batch_to_device(inputs, meta, 0) is inputs


def test_each_epoch_draws_anew_and_each_seed_otherwise(tmp_path: Path):
    inputs = [GraphInputs(graph, Scale(np.zeros(134), np.ones(134))) for graph in prepared(tmp_path, "layout", 3)]

    def drawn(seed: int, epoch: int) -> list[list[float]]:
        steps = GraphSteps(inputs, replace(SETTINGS, seed=seed))
        steps.epoch = epoch
        return [runtime.tolist() for _, runtime in steps]

    assert drawn(0, 0) == drawn(0, 0)
    assert drawn(0, 0) != drawn(0, 1)
    assert drawn(0, 0) != drawn(1, 0)
    assert {len(step) for step in drawn(0, 0)} == {SETTINGS.configs_per_step}
    for graph, runtime in GraphSteps(inputs[:1], SETTINGS):
        expected = 2 + graph.configs[:, :, 0].sum(dim=1) / 10
        torch.testing.assert_close(runtime, expected)


def test_some_opcodes_are_hidden_in_training_so_that_the_unknown_one_learns(tmp_path: Path):
    inputs = [GraphInputs(graph, Scale(np.zeros(134), np.ones(134))) for graph in prepared(tmp_path, "layout", 30)]
    shown = torch.cat([step.opcode for step, _ in GraphSteps(inputs, SETTINGS, hidden_share=0.5)])
    assert 0.3 < (shown == 0).float().mean() < 0.7
    assert all((step.opcode > 0).all() for step, _ in GraphSteps(inputs, SETTINGS))
    *train, valid = (one.graph for one in inputs[:4])
    config = replace(small("tgraph", "layout"), unknown_opcodes=0.5)
    settings = replace(SETTINGS, epochs=1)
    learned, first = (
        fit("tgraph", replace(config, unknown_opcodes=share), train, [valid], settings, tmp_path / str(share))
        for share in (0.5, 0.0)
    )
    table = "encoder.opcodes.table.weight"
    assert not torch.allclose(learned.state[table][0], first.state[table][0], atol=1e-3)


def test_what_a_model_was_trained_on_changes_with_the_data(tmp_path: Path):
    one, two, three = prepared(tmp_path, "tile", 3)
    found = trained_on([one, replace(three, runtime=None)], [two])
    assert (found["train_graphs"], found["validation_graphs"]) == (["tile0"], ["tile1"])
    assert trained_on([one], [two]) == found
    assert one.runtime is not None
    assert trained_on([replace(one, runtime=2 * one.runtime)], [two])["data"] != found["data"]
