from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tpugraphs.prepared import prepared, small
from tests.tpugraphs.trained import Example
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.scoring.tensor_file import read_tensors, write_tensors
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, GraphInputs, Ranker, score, score_with_all
from tvm_gnn_cost.training.scale import Scale

SCALE = Scale(np.zeros(134), np.ones(134))


def untrained(model: str = "tgraph", kind: str = "layout") -> Ranker:
    torch.manual_seed(0)
    config = small(model, kind)
    return Ranker(model, config, SCALE, MODELS[model][0](config).state_dict(), 8)


def test_more_permutations_average_over_who_is_compared(tmp_path: Path):
    (graph, *_) = prepared(tmp_path, "layout", 1)
    torch.manual_seed(0)
    net = MODELS["tgraph"][0](small("tgraph", "layout")).eval()
    inputs = GraphInputs(graph, SCALE)
    rows = np.arange(len(graph.config_rows))
    spread = [
        np.std([score(net, inputs, rows, 8, permutations=count, seed=seed) for seed in range(6)], axis=0).mean()
        for count in (1, 16)
    ]
    assert spread[1] < spread[0] / 2
    np.testing.assert_allclose(
        score(net, inputs, rows, 100, permutations=1, seed=0),
        score(net, inputs, rows, 100, permutations=1, seed=1),
        rtol=1e-4,
        atol=1e-5,
    )


def test_inputs_are_the_graph_with_the_chosen_configurations(tmp_path: Path):
    (graph,) = prepared(tmp_path, "layout", 1)
    rows = np.array([5, 2])
    given = GraphInputs(graph, Scale(np.full(134, 0.5), np.full(134, 2.0))).with_configs(rows)
    np.testing.assert_array_equal(given.configs, graph.configs(rows))
    np.testing.assert_allclose(given.numbers, (graph.numbers - 0.5) / 2, rtol=1e-6)
    np.testing.assert_array_equal(given.config_nodes, graph.config_nodes)


def test_scores_of_several_models_are_standardised(tmp_path: Path):
    (graph,) = prepared(tmp_path, "layout", 1)
    one, two = untrained("cheb-sage"), untrained("gru")
    first, second = (score_with_all([ranker], graph) for ranker in (one, two))
    assert (first.mean(), first.std()) == (pytest.approx(0), pytest.approx(1))
    np.testing.assert_allclose(score_with_all([one, two], graph), (first + second) / 2)


def test_a_file_holds_all_that_scoring_needs(tmp_path: Path):
    (graph,) = prepared(tmp_path, "tile", 1)
    ranker = replace(untrained("rank-classes", "tile"), is_pruned=False, card={"collection": "tile:xla"})
    ranker.save(tmp_path / "ranker.safetensors")
    before = torch.get_rng_state()
    again = Ranker.load(tmp_path / "ranker.safetensors")
    assert (again.model, again.config, again.is_pruned, again.card) == (
        *("rank-classes", ranker.config, False),
        {"collection": "tile:xla"},
    )
    assert (again.collection, again.training) == ("tile:xla", {})
    np.testing.assert_array_equal(score_with_all([again], graph), score_with_all([ranker], graph))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_wrong_file_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="there is no such checkpoint; 'tvm-gnn-cost tpugraphs train' makes one"):
        Ranker.load(tmp_path / "none.safetensors")
    path = tmp_path / "ranker.safetensors"
    untrained().save(path)
    tensors, info = read_tensors(path, "")
    for changed, message in (
        ({"tpugraphs_version": 2}, "not a TpuGraphs model that this version reads"),
        ({"model": "tgraf"}, "lacks or misstates the field 'tgraf'"),
        ({"config": {"chanels": 3}}, "the checkpoint's settings are wrong: the field 'chanels' is unknown"),
        (
            {"config": {"channels": "3"}},
            "the checkpoint's settings are wrong: the field 'channels' has the wrong value",
        ),
        ({"config": {"channels": 0}}, "the checkpoint's settings are wrong: channels is 0; expected 1 or more"),
        ({"config": {"blocks": 10**9}}, "the checkpoint's settings are wrong: blocks must be between 0 and 4096"),
        (
            {"config": {"channels": 4096}},
            "the checkpoint's settings are wrong: the weights do not fit the architecture",
        ),
        ({"config": {"kind": "tiles"}}, "the checkpoint's settings are wrong: the field 'kind' has the wrong value"),
        ({"config": None}, "the checkpoint's settings are wrong: expected a JSON object"),
    ):
        write_tensors(path, tensors, info | changed)
        with pytest.raises(InputError, match=rf"ranker\.safetensors: .*{message}"):
            Ranker.load(path)
    write_tensors(path, tensors, {name: value for name, value in info.items() if name != "is_log"})
    with pytest.raises(InputError, match="lacks or misstates the field 'is_log'"):
        Ranker.load(path)
    write_tensors(path, tensors, ["no", "model"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a safetensors file, but not a checkpoint"):
        Ranker.load(path)
    write_tensors(path, tensors | {"mean": torch.full((134,), math.nan)}, info)
    with pytest.raises(InputError, match="the tensor 'mean' holds NaN or infinity"):
        Ranker.load(path)
    write_tensors(path, tensors | {"mean": torch.zeros(3)}, info)
    with pytest.raises(InputError, match="the checkpoint's mean and deviation do not have 134 values each"):
        Ranker.load(path)


def test_weights_of_another_network_are_refused():
    ranker = untrained()
    wrong = replace(ranker, config=replace(ranker.config, channels=16))
    with pytest.raises(InputError, match="the checkpoint's weights do not fit its architecture"):
        wrong.build()


def test_the_card_says_what_it_was_trained_on(example: Example):
    ((ranker,),) = example.trained.rankers.values()
    assert ranker.collection == "layout:xla:random"
    names = ranker.training["train_graphs"] + ranker.training["validation_graphs"]
    assert sorted(names) == ["g0", "g1", "g2", "v"]
