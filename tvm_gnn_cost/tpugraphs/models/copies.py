"""The cost of the copies that a configuration causes.

A compiler honours a layout with a copy of the tensor, unless the tensor has that layout anyway. What the copy costs
depends on the size of the tensor. Whether there is one depends on who else asks for a layout of the same tensor, and
who asks first. A network that sees each node with the mean of its neighbours finds neither. The features are our own;
benchmarks/LOG.md says what led to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tvm_gnn_cost.tpugraphs.format import CONFIGURED_TENSORS, LAYOUT_RANK, NO_DIMENSION
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput
from tvm_gnn_cost.tpugraphs.models.sharing import Integers, on_device
from tvm_gnn_cost.tpugraphs.pack import pack

_PLACES = np.eye(CONFIGURED_TENSORS, dtype=np.float32)
#: Width of the network that estimates a copy's cost, and the number of features that it reads.
_WIDTH, _FEATURES = 64, 20
#: The logarithm of a cost, relative to a copy of all tensors, is at most this.
_HIGHEST = 20.0


@dataclass(frozen=True)
class Requests:
    """The r layouts that c configurations of a graph ask for.

    Attributes:
        config: int64[r], the configuration that asks.
        log_share: float32[r], the logarithm of the tensor's share of all tensors that can be asked for.
        features: float32[r, 20]: the logarithms of the tensor's size and share; whether it is an output, an input or a
            kernel; the logarithms of its dimensions in the order of the layout; whether the layout is another than the
            graph's, and whether it keeps its minor dimension; whether this is the first request for the tensor, in the
            module's order, and whether it asks for the same as the first; whether the first asks for the graph's
            layout; how many requests there are for the tensor, and how many for another layout than the graph's;
            whether its producer asks for a layout, and whether for the same.
    """

    config: Integers
    log_share: npt.NDArray[np.float32]
    features: npt.NDArray[np.float32]


def requests(graph: ConfiguredInput) -> Requests:
    """Finds the requests of a graph's configurations; on the processor, in NumPy."""
    operands = graph.operands.cpu().numpy()
    node, place = np.nonzero(operands >= 0)
    tensor = operands[node, place]
    # The requests for a tensor stand together, in the order of the module: first its producer's.
    order = np.lexsort([place, graph.config_nodes.cpu().numpy()[node], tensor])
    node, place, tensor = node[order], place[order], tensor[order]
    sizes = graph.sizes.cpu().numpy()[tensor]
    shape = (*graph.configs.shape[:2], CONFIGURED_TENSORS, LAYOUT_RANK)
    layouts = _in_memory(graph.configs.cpu().numpy().reshape(shape)[:, node, place], sizes)
    given = _in_memory(graph.permutation.cpu().numpy()[tensor], sizes)
    code = pack(layouts)[..., 0]
    asks = code > 0
    is_other = asks & (layouts != given).any(axis=-1)
    keeps_minor = asks & (layouts[..., 0] == given[..., 0])
    about = _about_tensor(tensor, place, asks, code, is_other)
    log_sizes = np.log2(np.maximum(sizes, 1)).astype(np.float32)
    log_size = log_sizes.sum(axis=1)
    log_share = log_size - np.logaddexp2.reduce(log_size) if len(log_size) else log_size
    config, slot = np.nonzero(asks)
    chosen = layouts[config, slot]
    in_order = np.take_along_axis(log_sizes[slot], chosen.clip(0).astype(np.int64), axis=1) * (chosen > NO_DIMENSION)
    # Divided so that all features are about as large.
    alone = [log_size[slot] / 10, log_share[slot] / 4, *_PLACES[place[slot]].T, *in_order.T / 5]
    together = [one[config, slot] for one in (is_other, keeps_minor, *about)]
    features = np.stack([*alone, *together], axis=1).astype(np.float32)
    return Requests(config, (log_share[slot] * np.log(2)).astype(np.float32), features)


def _in_memory(layouts: npt.NDArray[np.int8], sizes: Integers) -> npt.NDArray[np.int8]:
    """Layouts with their dimensions of size 1 last, int8[..., s, 6]: wherever those stand, the memory is the same.

    Args:
        layouts: int8[..., s, 6].
        sizes: int64[s, 6].
    """
    known = np.broadcast_to(sizes, layouts.shape)
    is_one = np.take_along_axis(known, layouts.clip(0).astype(np.int64), axis=-1) == 1
    behind = np.where(is_one, LAYOUT_RANK + layouts, np.arange(LAYOUT_RANK))
    place = np.where(layouts == NO_DIMENSION, 2 * LAYOUT_RANK, behind)
    return np.take_along_axis(layouts, np.argsort(place, axis=-1, kind="stable"), axis=-1)


def _about_tensor(
    tensor: Integers,
    place: Integers,
    asks: npt.NDArray[np.bool_],
    code: npt.NDArray[np.int32],
    is_other: npt.NDArray[np.bool_],
) -> list[npt.NDArray[Any]]:
    """What a request has to do with the others for its tensor; arrays [c, s], in the order of :class:`Requests`.

    Args:
        tensor: int64[s], ascending.
        place: int64[s].
        asks: bool[c, s].
        code: int32[c, s], the packed layouts; 0 where none is asked for.
        is_other: bool[c, s].
    """
    if not len(tensor):
        return [asks] * 7
    begins = np.flatnonzero(np.insert(tensor[1:] != tensor[:-1], 0, True))
    group = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(tensor))))

    def total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.add.reduceat(values, begins, axis=1, dtype=np.int64)[:, group]

    before = asks.cumsum(axis=1) - asks
    is_first = asks & (before == before[:, begins][:, group])
    first, producer = total(code * is_first), total(code * (place == 0))
    return [
        is_first,
        code == first,
        total(is_first & ~is_other) > 0,
        total(asks) / 5,
        total(is_other) / 5,
        producer > 0,
        code == producer,
    ]


class Copies(nn.Module):
    """Scores configurations by what the layouts that they ask for cost; a higher score means faster."""

    def __init__(self) -> None:
        super().__init__()
        self.cost = nn.Sequential(
            *(nn.Linear(_FEATURES, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, 1))
        )
        #: What a graph costs that no layout is asked for, relative to a copy of all tensors, as a logarithm.
        self.rest = nn.Parameter(torch.tensor(-2.3))
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """Minus the logarithm of each configuration's cost, float32[c], up to a constant and a factor."""
        found, device = requests(graph), graph.numbers.device
        log_cost = self.cost(on_device(found.features, device)).squeeze(-1) + on_device(found.log_share, device)
        cost = log_cost.clamp(max=_HIGHEST).exp()
        total = self.rest.exp().expand(len(graph.configs)).index_add(0, on_device(found.config, device), cost)
        return -self.weight * total.log()
