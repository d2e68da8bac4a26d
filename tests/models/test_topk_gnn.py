from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.models.topk_gnn import PRESETS, TPGNN, TopKGNNConfig
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import new_checkpoint

LOG_2 = math.log(2)


def scorer(config: TopKGNNConfig) -> Scorer:
    return Scorer(new_checkpoint(config, synthetic.vectors(config.type_dim), synthetic.programs(4, 8), seed=0))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_score_does_not_depend_on_the_batch(preset: str) -> None:
    model, population = scorer(PRESETS[preset]), synthetic.graphs(20, detail=PRESETS[preset].detail)
    together = model.score(population)
    alone = np.concatenate([model.score(population.select([i])) for i in range(20)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert len(np.unique(together)) == 20


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_order_of_edges_does_not_matter(preset: str) -> None:
    model, one = scorer(PRESETS[preset]), synthetic.graphs(1, seed=3, detail=PRESETS[preset].detail)
    order = np.random.default_rng(0).permutation(one.edge_index.shape[1])
    shuffled = replace(one, edge_index=one.edge_index[:, order], edge_type=one.edge_type[order])
    np.testing.assert_allclose(model.score(one), model.score(shuffled), rtol=1e-5)


def test_relations_and_direction_matter_to_the_default_model_and_not_to_tpgnn() -> None:
    one = synthetic.graphs(1, seed=3)
    other = replace(one, edge_index=one.edge_index[::-1].copy())
    assert abs(scorer(PRESETS["gnn"]).score(one) - scorer(PRESETS["gnn"]).score(other)) > 1e-6
    one, other = replace(one, detail="tree"), replace(other, detail="tree")
    np.testing.assert_allclose(scorer(TPGNN).score(one), scorer(TPGNN).score(other), rtol=1e-5)


def test_graphs_of_another_detail_are_refused() -> None:
    with pytest.raises(InputError, match="reads graphs of detail 'tree'"):
        scorer(TPGNN).score(synthetic.graphs(2, detail="statements"))


def test_an_empty_graph_comes_last_and_leaves_the_others_alone() -> None:
    model, population = scorer(PRESETS["gnn"]), synthetic.graphs(3)
    empty = ProgramGraphs(
        synthetic.TYPES,
        np.zeros(0, np.int32),
        np.zeros((0, population.x.shape[1]), np.float32),
        np.zeros((2, 0), np.int32),
        np.zeros(0, np.int8),
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
        {0: "no PrimFunc"},
        "statements",
    )
    scores = model.score(ProgramGraphs.concatenate([population.select([0]), empty, population.select([1, 2])]))
    assert scores[1] == -np.inf
    np.testing.assert_allclose(scores[[0, 2, 3]], model.score(population), rtol=1e-4, atol=1e-5)
    assert scorer(PRESETS["gnn"]).score(empty).tolist() == [-np.inf]


def test_a_node_type_never_seen_gets_a_score() -> None:
    model, population = scorer(PRESETS["gnn"]), synthetic.graphs(2)
    renamed = replace(population, type_names=("BufferLoad", "BufferStore", "WhileLoop"))
    scores = model.score(renamed)
    assert np.isfinite(scores).all()
    assert (scores != model.score(population)).all()


def test_tpgnn_is_the_published_architecture() -> None:
    model = scorer(TPGNN).model
    assert [tuple(conv.lin_rel.weight.shape) for conv in model.convs] == [(128, 20), (128, 128), (128, 128)]
    assert [pool.ratio for pool in model.pools] == [0.8, 0.8, 0.8]
    assert [layer.out_features for layer in model.head if isinstance(layer, torch.nn.Linear)] == [128, 64, 1]
    assert model.head[0].in_features == 256


def test_costs_add_up_over_the_nodes_and_their_iterations() -> None:
    model, one = scorer(PRESETS["gnn"]), synthetic.graphs(1, seed=3)
    batch = model.batch(one)
    x = torch.randn(len(batch.batch), model.config.hidden)
    cost = model.model.log_costs(x, batch)
    assert cost.shape == (1, model.config.costs)
    # The same nodes twice cost twice as much, and so do nodes that run twice as often.
    twice = replace(batch, x=batch.x.repeat(2, 1), batch=batch.batch.repeat(2))
    torch.testing.assert_close(model.model.log_costs(x.repeat(2, 1), twice) - cost, torch.full_like(cost, LOG_2 / 4))
    often = replace(batch, x=batch.x.clone())
    often.x[:, [name for name, _ in VALUES].index("iterations")] += 1  # a logarithm to the base of 2
    torch.testing.assert_close(model.model.log_costs(x, often) - cost, torch.full_like(cost, LOG_2 / 4))


def test_a_score_adds_up_over_the_stores() -> None:
    model, one = scorer(PRESETS["gnn"]), synthetic.graphs(1, seed=3)
    batch = model.batch(one)
    is_store = torch.arange(len(batch.batch)) % 3 == 0
    batch.x[:, [name for name, _ in VALUES].index("is_store")] = is_store.float()
    x = torch.randn(len(batch.batch), model.config.hidden)
    once = model.model._sum_of_stores(x, batch)
    assert once.shape == (1,)
    twice = replace(batch, x=batch.x.repeat(2, 1), batch=batch.batch.repeat(2))
    torch.testing.assert_close(model.model._sum_of_stores(x.repeat(2, 1), twice), 2 * once)
    # What the other nodes are like does not matter.
    torch.testing.assert_close(model.model._sum_of_stores(torch.where(is_store[:, None], x, 9.0), batch), once)
    embedded = model.model.embed(batch)
    more = embedded._replace(stores=embedded.stores + 1)
    assert model.model.score(more).item() == pytest.approx(model.model.score(embedded).item() + 1)


def test_each_pooling_keeps_its_share_of_what_the_one_before_kept() -> None:
    model, population = scorer(replace(PRESETS["gnn"], ratio=0.5)), synthetic.graphs(6)
    kept = model.model.kept(model.batch(population)).numpy()
    for begin, end in zip(population.node_offsets[:-1], population.node_offsets[1:], strict=True):
        first = math.ceil(0.5 * (end - begin))
        assert (kept[begin:end] >= 1).sum() == first
        assert (kept[begin:end] == 2).sum() == math.ceil(0.5 * first)


def test_a_model_without_node_values_still_ranks() -> None:
    scores = scorer(replace(PRESETS["gnn"], groups=())).score(synthetic.graphs(8))
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 1
