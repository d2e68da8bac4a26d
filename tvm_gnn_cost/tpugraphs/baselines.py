"""What a graph model must beat: chance, a count, and boosted trees on pooled features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xgboost

from tvm_gnn_cost.models.configured_graph import OPCODES
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph

Array = npt.NDArray[np.float64]
_DIMENSIONS = 7  # -1 to 5


def random(graph: PreparedGraph, seed: int) -> Array:
    """Uniform scores, float64[c]."""
    return np.random.default_rng(seed).random(len(graph.config_rows))


def fewest_constraints(graph: PreparedGraph, configs_at_once: int = 4096) -> Array:
    """Minus the number of tensors that a configuration lays out, float64[c]: each may cost a copy; 0 for tiles."""
    count = len(graph.config_rows)
    if graph.kind == "tile":
        return np.zeros(count)
    parts = [
        graph.configs(np.arange(start, min(count, start + configs_at_once)))
        for start in range(0, count, configs_at_once)
    ]
    return np.concatenate(
        [-(part.reshape(len(part), -1, 6) >= 0).any(axis=2).sum(axis=1).astype(np.float64) for part in parts]
    )


def pooled_features(graph: PreparedGraph, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """float32[k, d] of some configurations: what the graph's nodes are on average, and what its configuration is.

    A layout counts by how often each of its 18 places holds each dimension, over the configurable nodes; a tile by the
    logarithms of its bounds.
    """
    numbers = graph.numbers.astype(np.float64)
    opcodes = np.bincount(np.minimum(graph.opcode, OPCODES - 1), minlength=OPCODES) / len(numbers)
    whole = (np.sign(numbers) * np.log1p(np.abs(numbers))).mean(axis=0)
    configs = graph.configs(rows)
    if graph.kind == "layout":
        shares = np.stack([(configs == value).mean(axis=1) for value in range(-1, _DIMENSIONS - 1)], axis=2)
        own = shares.reshape(len(rows), -1)
    else:
        own = np.log1p(np.maximum(configs, 0))
    same = np.broadcast_to(np.concatenate([whole, opcodes]), (len(rows), len(whole) + OPCODES))
    return np.concatenate([own, same], axis=1).astype(np.float32)


class PooledTrees:
    """XGBoost with a pairwise ranking objective within each graph.

    Args:
        seed: Of the draws.
        configs_per_graph: At most so many of a graph train.
    """

    def __init__(self, seed: int, configs_per_graph: int = 1000) -> None:
        self.seed, self.configs_per_graph = seed, configs_per_graph
        self.booster: xgboost.Booster | None = None

    def fit(self, graphs: Sequence[PreparedGraph], rounds: int = 200) -> None:
        """Trains on graphs whose runtimes are known.

        Raises:
            ValueError: there is none.
        """
        rng = np.random.default_rng(self.seed)
        features, ranks, groups = [], [], []
        for graph in graphs:
            if graph.runtime is None:
                continue
            rows = rng.permutation(len(graph.runtime))[: self.configs_per_graph]
            features.append(pooled_features(graph, rows))
            # Labels of a ranking objective are small numbers: the place among the graph's, from 0, the slowest, to 31.
            place = np.argsort(np.argsort(-graph.runtime[rows], kind="stable"), kind="stable")
            ranks.append(place * 31 // max(1, len(rows) - 1))
            groups.append(len(rows))
        if not groups:
            raise ValueError("there is no graph with runtimes to train on")
        data = xgboost.DMatrix(np.concatenate(features), np.concatenate(ranks))
        data.set_group(groups)
        settings = {"objective": "rank:pairwise", "max_depth": 6, "eta": 0.1, "seed": self.seed, "nthread": 1}
        self.booster = xgboost.train(settings, data, rounds)

    def score(self, graph: PreparedGraph) -> Array:
        """float64[c], higher is faster."""
        assert self.booster is not None, "fit it first"
        features = pooled_features(graph, np.arange(len(graph.config_rows)))
        return np.asarray(self.booster.predict(xgboost.DMatrix(features)), np.float64)
