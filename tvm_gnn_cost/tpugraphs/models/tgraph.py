"""TGraph: scores the configurations of an XLA graph against each other (Maksimov et al. 2024, arXiv 2405.16623, 2.3).

The configurations that are scored together are one input, and the network attends across them. Nodes that are equal in
every configuration are computed once, and a part of the nodes at a time: the memory that scoring takes grows with the
different inputs of the first block, not with nodes times configurations. The blocks multiply matrices in bfloat16 where
the processor can, and add up in float32: the order of the scores hardly changes (see benchmarks/LOG.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import SAGEConv

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig
from tvm_gnn_cost.tpugraphs.models.sharing import Integers, Sharing, gather, on_device

#: Nodes times configurations that are computed at once: few enough for the caches, enough to multiply matrices well.
_ROWS = 8192
#: Nodes times configurations up to which the input of a block is kept, and what its backward pass needs.
_KEPT_ROWS = 65536
#: Whether the processor multiplies matrices in bfloat16, in half of the time. No public function of PyTorch tells.
_HAS_BFLOAT16 = torch.cpu._is_avx512_bf16_supported()
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class TGraphConfig(EncoderConfig):
    """The published network; the options cover the paper's ablation and the differences between paper and code.

    Raises:
        InputError: a value is out of range.

    Attributes:
        channels: Width of the network; an even number with cross attention.
        blocks: Graph convolutional blocks.
        squeeze: Factor by which the channel attention narrows the channels.
        channel_attention: Use the paper's ``A_self``; the ablation has a row without it.
        cross_attention: Use the paper's ``A_cross``; the ablation has a row without it. The authors' code turns it off
            on the random collections.
        edges: Use the graph's edges; the ablation has a row without them, where a node sees only itself until pooling.
        aggregation: How a node's neighbours are aggregated: ``mean``, as in the authors' code (it ranked better, see
            benchmarks/LOG.md), or ``sum``, as in the paper's equation 2.
        l2_norm: Normalise each node's features after a convolution, as in equation 2 and not in the code (without it
            ranked better too).
        activation: Apply GELU ``inside`` the residual connection, to what is added (equation 3), or ``behind`` it, to
            the sum (the authors' code).
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "blocks", "squeeze")

    channels: int = 256
    blocks: int = 2
    squeeze: int = 8
    channel_attention: bool = True
    cross_attention: bool = True
    edges: bool = True
    aggregation: Literal["mean", "sum"] = "mean"
    l2_norm: bool = False
    activation: Literal["inside", "behind"] = "inside"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cross_attention and self.channels % 2:
            raise InputError(f"channels is {self.channels}; with cross attention, expected an even number")


class ChannelAttention(nn.Module):
    """Squeeze and excitation of the channels (equation 5; Hu et al. 2018, arXiv 1709.01507)."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        narrow = max(1, channels // squeeze)
        self.excite = nn.Sequential(nn.Linear(channels, narrow), nn.ReLU(), nn.Linear(narrow, channels), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """The weighted channels of ``x``, float32[..., channels]."""
        weighted: Tensor = x * self.excite(x)
        return weighted


class CrossConfigAttention(nn.Module):
    """Weights each configuration against the others, separately for each node and channel (equation 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Turns float32[c, ..., channels] into float32[c, ..., 2 channels]: ``x`` and its weighted copy."""
        return torch.cat([x, x * torch.softmax(x / self.temperature, dim=0)], dim=-1)


class _Block(nn.Module):
    """Equations 3 and 4; with cross attention the convolution has half of the channels, which the attention doubles."""

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__()
        out = config.channels // 2 if config.cross_attention else config.channels
        aggregation = {"sum": "add", "mean": "mean"}[config.aggregation]
        self.convolution = SAGEConv(config.channels, out, aggr=aggregation, normalize=config.l2_norm, project=True)
        self.channels = ChannelAttention(out, config.squeeze) if config.channel_attention else nn.Identity()
        self.cross = CrossConfigAttention() if config.cross_attention else nn.Identity()
        self.activates_inside = config.activation == "inside"

    def messages(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        """What nodes give to their neighbours and to themselves, each float32[r, out], of float32[r, channels].

        The convolution is linear behind the ReLU of its projection, so that a node can be multiplied once, before the
        sums over neighbourhoods, in which it occurs several times.
        """
        convolution = self.convolution
        if _HAS_BFLOAT16 and normal.device.type == "cpu":
            normal = normal.bfloat16()
        projected = functional.relu(_product(normal, convolution.lin.weight, convolution.lin.bias), inplace=True)
        own = _product(normal, convolution.lin_r.weight, convolution.lin_l.bias)
        return _product(projected, convolution.lin_l.weight).float(), own.float()

    def forward(self, received: Tensor, x: Tensor | None) -> Tensor:
        """The block's output, float32[c, k, channels].

        Args:
            received: float32[c, k, out], the sum of what neighbours and the nodes themselves gave.
            x: float32[c, k, channels], the block's input, which it adds; None leaves the addition to the caller.
        """
        if self.convolution.normalize:
            received = functional.normalize(received, dim=-1)
        added = self.cross(self.channels(received))
        if x is None:
            return functional.gelu(added)
        return functional.gelu(added).add_(x) if self.activates_inside else functional.gelu(x + added)


@dataclass(frozen=True)
class _Inputs:
    """What a block computes from, for m classes of nodes in c configurations.

    Attributes:
        x: float32[r, channels], different activations; none where the block's input is not added to its output.
        row: int64[c, m], the row of ``x`` of each configuration and class.
        given: float32[2 q, out]: what nodes give to their neighbours, and then what they give to themselves.
        place: int64[c, m], the row of ``given`` of each configuration and class.
    """

    x: Tensor
    row: Tensor
    given: Tensor
    place: Tensor


class _Activations:
    """Activations between the blocks of a graph, computed a part of the nodes at a time.

    Args:
        blocks: TGraph's blocks.
        averages: Whether a node takes the mean of its neighbours, not their sum.
        encoded: float32[u, channels], the encoder's output.
        sharing: Which of the graph's activations are equal.
    """

    def __init__(self, blocks: Sequence[_Block], averages: bool, encoded: Tensor, sharing: Sharing) -> None:
        self._blocks, self._averages, self._sharing = blocks, averages, sharing
        # The mean of a sum is the sum of the means: the last block's input need not be added to each node's output.
        self._adds_means = blocks[-1].activates_inside
        self._device, self._configs = encoded.device, len(sharing.encoded.row)
        # Of each level: its mean over the nodes, and its normalisation.
        self._means: list[Tensor] = []
        self._norms: list[tuple[Tensor, Tensor]] = []
        self._kept = [self._first_inputs(encoded)]

    def mean(self) -> Tensor:
        """The mean over the nodes behind the last block, float32[c, channels]."""
        last = len(self._blocks)
        for level in range(1, last):
            self._prepare(level)
        share = self._sharing.level(last).size / len(self._sharing.level(last).of_node)

        def part(classes: Integers, x: Tensor) -> Tensor:
            return on_device(share[classes], self._device) @ x

        total = self._means[-1] if self._adds_means else torch.zeros((), device=self._device)
        for one in self._each(part, last):
            total = total + one
        return total

    def _prepare(self, level: int) -> None:
        """Finds the mean and the normalisation of a level's activations, and keeps the next block's input if small."""
        size = self._sharing.level(level).size
        is_kept = len(self._kept) == level and self._is_small(level)

        def moments(classes: Integers, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            share = on_device(size[classes] / size[classes].sum(), self._device)
            mean = share @ x
            return mean, share @ (x - mean[:, None]).square(), x if is_kept else None

        mean = variance = torch.zeros((), device=self._device)
        before = 0.0
        kept = []
        # Moments of parts are joined as by Chan et al. 1983, "Algorithms for computing the sample variance".
        for classes, (its_mean, its_variance, x) in zip(self._parts(level), self._each(moments, level), strict=True):
            count = float(size[classes].sum())
            share = count / (before + count)
            apart = its_mean - mean
            mean = mean + apart * share
            variance = variance + (its_variance - variance) * share + apart.square() * (share * (1 - share))
            before += count
            kept += [] if x is None else [x]
        self._means.append(mean)
        self._norms.append(_scale_and_shift(mean, variance))
        if is_kept:
            self._kept.append(self._inputs(level, kept))

    def _inputs(self, level: int, parts: Iterable[Tensor]) -> _Inputs:
        """The input of the block behind a level (1 or more), from its activations float32[c, m, channels] in parts."""
        scale, shift = self._norms[level]
        given, rows, needed = [], [], [scale[:0]]
        begin = 0
        for x in parts:
            normal = torch.addcmul(shift[:, None], x, scale[:, None])
            given.append(self._blocks[level].messages(normal.flatten(0, 1)))
            # Part stands behind part, and in a part configuration behind configuration.
            end = begin + x.shape[0] * x.shape[1]
            rows.append(torch.arange(begin, end, device=self._device).view(x.shape[:2]))
            begin = end
            if self._needs_input(level):
                needed.append(x.flatten(0, 1))
        row = torch.cat(rows, dim=1)
        return _Inputs(torch.cat(needed), row, _stacked(given), row)

    def _first_inputs(self, encoded: Tensor) -> _Inputs:
        """The input of the first block: one product for each different row of each configuration."""
        found = self._sharing.encoded
        config, row, share = (on_device(one, self._device) for one in (found.config, found.row_in_config, found.share))
        begins = on_device(np.searchsorted(found.config, np.arange(self._configs)), self._device)

        def mean_of(values: Tensor) -> Tensor:
            return functional.embedding_bag(row, values, begins, mode="sum", per_sample_weights=share)

        mean = mean_of(encoded)
        # The difference of the squares is exact enough because all configurations have nearly the same mean.
        centre = mean.detach().mean(dim=0)
        square = mean_of((encoded - centre).square())
        scale, shift = _scale_and_shift(mean, (square - (mean - centre).square()).clamp(min=0))
        self._means.append(mean)
        self._norms.append((scale, shift))

        def part(some: slice) -> tuple[Tensor, Tensor]:
            normal = torch.addcmul(gather(shift, config[some]), gather(encoded, row[some]), gather(scale, config[some]))
            return self._blocks[0].messages(normal)

        parts = [slice(begin, begin + _ROWS) for begin in range(0, len(row), _ROWS)]
        given = _stacked([_again(part, one) if len(row) > _KEPT_ROWS else part(one) for one in parts])
        return _Inputs(encoded, on_device(found.row, self._device), given, on_device(found.place, self._device))

    def _behind(self, level: int, parts: Sequence[Integers]) -> Iterator[Tensor]:
        """The output of a block, counted from 1, for the k classes of each part: float32[c, k, channels].

        All parts are added up in one go: the gradient of a sum is as large as the table that is added from.
        """
        around = [self._sharing.neighbourhood(level, classes, averages=self._averages) for classes in parts]
        members = [one.members for one in around]
        if level <= len(self._kept):
            inputs = self._kept[level - 1]
        else:
            below, positions = np.unique(np.concatenate(members), return_inverse=True)
            members = np.split(positions, np.cumsum([len(one) for one in members])[:-1])
            inputs = self._inputs(level - 1, self._behind(level - 1, self._split(below)))
        own_rows = len(inputs.given) // 2
        index, begins, weight, rows = [], [], [], []
        begin = 0
        for one, its_members in zip(around, members, strict=True):
            place = inputs.place[:, on_device(its_members, self._device)]
            index.append((place + on_device(one.is_own * own_rows, self._device)).flatten())
            begins.append((begin + one.begins + len(its_members) * np.arange(self._configs)[:, None]).ravel())
            weight.append(np.tile(one.weight, self._configs))
            rows.append(inputs.row[:, on_device(its_members[one.is_own], self._device)].flatten())
            begin += len(weight[-1])
        received = functional.embedding_bag(
            torch.cat(index),
            inputs.given,
            on_device(np.concatenate(begins), self._device),
            mode="sum",
            per_sample_weights=on_device(np.concatenate(weight), self._device),
        )
        lengths = [len(one) for one in rows]
        own: Sequence[Tensor | None] = [None] * len(parts)
        if self._needs_input(level - 1):
            own = torch.split(gather(inputs.x, torch.cat(rows)), lengths)
        for its_received, x in zip(torch.split(received, lengths), own, strict=True):
            x = None if x is None else x.view(self._configs, -1, x.shape[1])
            yield self._blocks[level - 1](its_received.view(self._configs, -1, its_received.shape[1]), x)

    def _needs_input(self, level: int) -> bool:
        """Whether the block behind a level adds its input to each node's output."""
        return level < len(self._blocks) - 1 or not self._adds_means

    def _is_small(self, level: int) -> bool:
        return self._configs * len(self._sharing.level(level).size) <= _KEPT_ROWS

    def _parts(self, level: int) -> list[Integers]:
        """The classes of a level, in parts that are computed one after another."""
        return self._split(np.arange(len(self._sharing.level(level).size)))

    def _split(self, classes: Integers) -> list[Integers]:
        return np.array_split(classes, min(len(classes), -(-len(classes) * self._configs // _ROWS)))

    def _each(self, function: Callable[[Integers, Tensor], _Result], level: int) -> Iterator[_Result]:
        """Calls a function with each part of the classes of a level and the block's output for them."""
        parts = self._parts(level)
        if self._is_small(level):
            for classes, x in zip(parts, self._behind(level, parts), strict=True):
                yield function(classes, x)
            return

        def one(classes: Integers) -> _Result:
            (x,) = self._behind(level, [classes])
            return function(classes, x)

        for classes in parts:
            yield _again(one, classes)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` in the data type of ``x``."""
    return functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def _again(function: Callable[[_Part], _Result], part: _Part) -> _Result:
    """Calls a function; training keeps its result alone and computes the rest once more in the backward pass."""
    if not torch.is_grad_enabled():
        return function(part)
    result: _Result = checkpoint(function, part, use_reentrant=False, preserve_rng_state=False)
    return result


def _stacked(given: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """What nodes give, in parts, as one table: first to their neighbours, then to themselves."""
    return torch.cat([to_neighbours for to_neighbours, _ in given] + [to_themselves for _, to_themselves in given])


def _scale_and_shift(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Instance normalisation as a product and a sum; torch's own refuses a graph of one node."""
    scale = torch.rsqrt(variance + 1e-5)
    return scale, -mean * scale


class TGraph(ConfigurationModel):
    """Scores configurations; a higher score means faster.

    Args:
        config: Its settings.
    """

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__(config, config.channels)
        self.has_edges, self.averages = config.edges, config.aggregation == "mean"
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.blocks))
        self.compares = config.cross_attention
        # The blocks see no tiles, and so nothing to compare: tiles are compared after they join.
        late = config.kind == "tile" and config.cross_attention
        self.cross = CrossConfigAttention() if late else nn.Identity()
        self.out = nn.Linear(config.channels * (2 if late else 1), 1)

    def pool(self, encoded: Tensor, graph: ConfiguredInput) -> Tensor:
        """The mean over the nodes after the blocks, float32[c, channels]."""
        blocks = [block for block in self.blocks if isinstance(block, _Block)]
        return _Activations(blocks, self.averages, encoded, graph.sharing).mean()

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """The score of each configuration among the given ones, float32[c]."""
        if not self.has_edges:
            graph = replace(graph, edge_index=graph.edge_index[:, :0])
        scores: Tensor = self.out(self.cross(self.hidden(graph))).squeeze(-1)
        return scores
