"""Which activations of a graph's configurations are equal, so that a model computes each of them once.

After the encoder, nodes with the same features and the same configuration are equal. After a convolution, two nodes
are equal in every configuration if they and their neighbours were equal before it (colour refinement, Weisfeiler and
Leman 1968). Most graphs repeat a few layers many times, and most of their nodes have no configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from tvm_gnn_cost.tpugraphs.format import LAYOUT_SYMBOLS, LAYOUT_VALUES, NO_DIMENSION

Integers = npt.NDArray[np.int64]
_POWERS = LAYOUT_SYMBOLS ** np.arange(LAYOUT_VALUES, dtype=np.int64)


@dataclass(frozen=True)
class Level:
    """The classes of nodes that are equal in every configuration after some number of convolutions.

    Attributes:
        of_node: int64[n], the class of each node.
        first: int64[k], the first node of each class, in the order of the module. Neighbours are near each other there:
            consecutive classes have few other neighbours.
        size: float32[k], how many nodes each class has.
    """

    of_node: Integers
    first: Integers
    size: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Neighbourhood:
    """What k classes of one level are computed from: themselves and their neighbours, one convolution before.

    Attributes:
        members: int64[e], classes of the level below: for each class those of its neighbours and then that of itself.
        begins: int64[k], where the members of each class begin.
        is_own: bool[e], whether a member is the class itself.
        weight: float32[e], the weight of each neighbour's message; 1 for the class itself.
    """

    members: Integers
    begins: Integers
    is_own: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float32]


@dataclass(frozen=True)
class EncodedRows:
    """The u different pairs of a node's features and its layouts, and where they occur.

    Tiles are not features of nodes and count as one configuration.

    Attributes:
        node: int64[a], a node with each of the different features.
        node_of: int64[u], the place of a pair's features in ``node``.
        layout: int8[b, 18], the different layouts; -1 for a node without layouts.
        layout_of: int64[u], the place of a pair's layouts in ``layout``.
        row: int64[c, k], the pair of each configuration and class of level 0.
        config: int64[p], the configurations that have a pair, each as often as it has different ones, in order.
        row_in_config: int64[p], the pairs that they have.
        share: float32[p], the share of the nodes of ``config`` that are ``row_in_config``.
        place: int64[c, k], the place in ``config`` and ``row_in_config`` of each configuration and class of level 0.
    """

    node: Integers
    node_of: Integers
    layout: npt.NDArray[np.int8]
    layout_of: Integers
    row: Integers
    config: Integers
    row_in_config: Integers
    share: npt.NDArray[np.float32]
    place: Integers


class Sharing:
    """Finds equal activations of a graph of n nodes; on the CPU, in NumPy.

    Args:
        features: Arrays of n rows each; nodes with the same rows are equal except for their layouts.
        edge_index: int64[2, m], each edge once; neighbours see each other.
        config_nodes: int64[nc].
        configs: int8[c, nc, 18], the layouts.
    """

    def __init__(
        self,
        features: tuple[npt.NDArray[Any], ...],
        edge_index: Integers,
        config_nodes: Integers,
        configs: npt.NDArray[np.int8],
    ) -> None:
        self._config_nodes, self._configs = config_nodes, configs
        count = len(features[0])
        columns = [np.ascontiguousarray(part).reshape(count, -1).view(np.uint8) for part in features]
        raw = np.ascontiguousarray(np.concatenate(columns, axis=1))
        self._features = _number(raw.view(np.dtype((np.void, raw.shape[1]))).ravel())
        ends = np.concatenate([edge_index, edge_index[::-1]], axis=1)
        ones = np.ones(ends.shape[1], np.int64)
        # An edge that occurs twice counts twice.
        self._adjacency = csr_matrix((ones, (ends[1], ends[0])), shape=(count, count))
        self._degree = np.asarray(self._adjacency.sum(axis=1)).ravel()
        keys = self._features.copy()
        keys[config_nodes] = keys.max() + 1 + np.arange(len(config_nodes))
        self._levels = [_classes(keys)]

    def level(self, number: int) -> Level:
        """The classes after a number of convolutions."""
        while len(self._levels) <= number:
            last = self._levels[-1].of_node
            # Sums of random numbers identify multisets of neighbours; two sums are equal by chance once in 2^64.
            words = np.random.default_rng(0).integers(0, 2**64, (2, last.max() + 1), np.uint64)
            around = self._adjacency.astype(np.uint64) @ words[0][last]
            self._levels.append(_classes(around + words[1][last]))
        return self._levels[number]

    def neighbourhood(self, level: int, classes: Integers, *, averages: bool) -> Neighbourhood:
        """What some classes of a level are computed from.

        Args:
            level: 1 or more.
            classes: int64[k], classes of this level.
            averages: Weight the neighbours of a node by one over their number instead of by 1.
        """
        nodes, below = self.level(level).first[classes], self.level(level - 1).of_node
        around = self._adjacency[nodes]
        ends = around.indptr[1:]
        weight = around.data / np.repeat(self._degree[nodes], np.diff(around.indptr)) if averages else around.data
        return Neighbourhood(
            np.insert(below[around.indices], ends, below[nodes]),
            around.indptr[:-1] + np.arange(len(nodes)),
            np.insert(np.zeros(len(around.data), bool), ends, True),
            np.insert(weight.astype(np.float32), ends, 1),
        )

    @cached_property
    def encoded(self) -> EncodedRows:
        """The different inputs of the encoder."""
        level, count = self.level(0), len(self._configs)
        configured = level.of_node[self._config_nodes]
        others = np.setdiff1d(np.arange(len(level.first)), configured)
        nodes = np.concatenate([level.first[others], np.tile(self._config_nodes, count)])
        absent = np.full((len(others), LAYOUT_VALUES), NO_DIMENSION, np.int8)
        layouts = np.concatenate([absent, self._configs.reshape(-1, LAYOUT_VALUES)])
        codes = _number((layouts.astype(np.int64) - NO_DIMENSION) @ _POWERS)
        _, taken, number = np.unique(
            self._features[nodes] * (codes.max() + 1) + codes, return_index=True, return_inverse=True
        )
        row = np.empty((count, len(level.first)), np.int64)
        row[:, others] = number[: len(others)]
        row[:, configured] = number[len(others) :].reshape(count, -1)
        keys = row + len(taken) * np.arange(count)[:, None]
        nodes_of = np.bincount(keys.ravel(), np.broadcast_to(level.size, row.shape).ravel(), count * len(taken))
        occurring = np.flatnonzero(nodes_of)
        place = np.zeros(len(nodes_of), np.int64)
        place[occurring] = np.arange(len(occurring))
        share = (nodes_of[occurring] / len(level.of_node)).astype(np.float32)
        config, row_in_config = np.divmod(occurring, len(taken))
        _, first, node_of = np.unique(self._features[nodes[taken]], return_index=True, return_inverse=True)
        node = nodes[taken[first]]
        _, first, layout_of = np.unique(codes[taken], return_index=True, return_inverse=True)
        layout = layouts[taken[first]]
        return EncodedRows(node, node_of, layout, layout_of, row, config, row_in_config, share, place[keys])


def _classes(keys: npt.NDArray[Any]) -> Level:
    """The classes of nodes with equal keys, numbered by their first nodes."""
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    renumbered = np.empty_like(by_first)
    renumbered[by_first] = np.arange(len(first))
    of_node = renumbered[number]
    return Level(of_node, first[by_first], np.bincount(of_node).astype(np.float32))


def gather(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table, float32[..., channels], by their int64[...] numbers.

    It is ``table[index]``, whose backward pass adds up the rows one value at a time.
    """
    rows = functional.embedding_bag(index.reshape(-1, 1), table, mode="sum")
    return rows.view(*index.shape, table.shape[1])


def on_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor."""
    return torch.from_numpy(array).to(device)


def _number(values: npt.NDArray[Any]) -> Integers:
    """The number of each value among the different values."""
    _, number = np.unique(values, return_inverse=True)
    return number
