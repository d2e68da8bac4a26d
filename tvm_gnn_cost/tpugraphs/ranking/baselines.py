"""Baselines for the graph models: random scores, the number of layout constraints, boosted trees on pooled features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xgboost

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import LAST_DIMENSION, LAYOUT_RANK, NO_DIMENSION, OPCODE_COUNT
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph

Array = npt.NDArray[np.float64]


def random(graph: PreparedGraph, seed: int) -> Array:
    """Uniform random scores, float64[c]."""
    return np.random.default_rng(seed).random(len(graph.config_rows))


def fewest_constraints(graph: PreparedGraph, configs_at_once: int = 4096) -> Array:
    """Minus the number of layout constraints of each configuration, float64[c]; 0 for tiles.

    Each of them may cost a copy.

    Args:
        graph: The graph.
        configs_at_once: How many configurations are read at once.
    """
    count = len(graph.config_rows)
    if graph.kind == "tile":
        return np.zeros(count)
    parts = [
        graph.configs(np.arange(start, min(count, start + configs_at_once)))
        for start in range(0, count, configs_at_once)
    ]
    return np.concatenate(
        [
            -(part.reshape(len(part), -1, LAYOUT_RANK) > NO_DIMENSION).any(axis=2).sum(axis=1).astype(np.float64)
            for part in parts
        ]
    )


def pooled_features(graph: PreparedGraph, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Features of some configurations, float32[k, d]: those of the configuration, and the means over the graph's nodes.

    The features of a layout are the shares of configurable nodes with each dimension in each of the 18 places; those of
    a tile are the logarithms of its bounds.

    Args:
        graph: The graph.
        rows: int64[k], the numbers of the configurations.
    """
    numbers = graph.numbers.astype(np.float64)
    opcodes = np.bincount(np.minimum(graph.opcode, OPCODE_COUNT - 1), minlength=OPCODE_COUNT) / len(numbers)
    whole = (np.sign(numbers) * np.log1p(np.abs(numbers))).mean(axis=0)
    configs = graph.configs(rows)
    if graph.kind == "layout":
        values = range(NO_DIMENSION, LAST_DIMENSION + 1)
        shares = np.stack([(configs == value).mean(axis=1) for value in values], axis=2)
        features = shares.reshape(len(rows), -1)
    else:
        features = np.log1p(np.maximum(configs, 0))
    same = np.broadcast_to(np.concatenate([whole, opcodes]), (len(rows), len(whole) + OPCODE_COUNT))
    return np.concatenate([features, same], axis=1).astype(np.float32)


class PooledTrees:
    """XGBoost with a pairwise ranking objective within each graph (LambdaMART, Burges 2010).

    Args:
        seed: Seeds the draws of configurations and XGBoost.
        configs_per_graph: Highest number of configurations of one graph in training.
    """

    def __init__(self, seed: int, configs_per_graph: int = 1000) -> None:
        self.seed, self.configs_per_graph = seed, configs_per_graph
        self.booster: xgboost.Booster | None = None

    def fit(self, graphs: Sequence[PreparedGraph], rounds: int = 200) -> None:
        """Trains on the graphs whose runtimes are known.

        Args:
            graphs: The graphs.
            rounds: Number of trees.

        Raises:
            InputError: no runtimes are known.
        """
        rng = np.random.default_rng(self.seed)
        features, ranks, groups = [], [], []
        for graph in graphs:
            if graph.runtime is None:
                continue
            rows = rng.permutation(len(graph.runtime))[: self.configs_per_graph]
            features.append(pooled_features(graph, rows))
            # XGBoost needs labels from 0 to 31: here the ranks within the graph, 0 is the slowest.
            place = np.argsort(np.argsort(-graph.runtime[rows], kind="stable"), kind="stable")
            ranks.append(place * 31 // max(1, len(rows) - 1))
            groups.append(len(rows))
        if not groups:
            raise InputError("there is no graph with runtimes to train on")
        data = xgboost.DMatrix(np.concatenate(features), np.concatenate(ranks))
        data.set_group(groups)
        settings = {"objective": "rank:pairwise", "max_depth": 6, "eta": 0.1, "seed": self.seed, "nthread": 1}
        self.booster = xgboost.train(settings, data, rounds)

    def score(self, graph: PreparedGraph) -> Array:
        """Scores of all configurations of a graph, float64[c]; a higher score means faster."""
        assert self.booster is not None, "fit() comes first"
        features = pooled_features(graph, np.arange(len(graph.config_rows)))
        return np.asarray(self.booster.predict(xgboost.DMatrix(features)), np.float64)
