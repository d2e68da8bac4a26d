"""TGraph: scores the configurations of an XLA graph against each other (Maksimov et al. 2024, arXiv 2405.16623, 2.3).

The configurations that are scored together are one input, and the network attends across them. Nodes that are equal in
every configuration are computed once, and a part of the nodes at a time: the memory that scoring takes grows with the
different inputs of the first block, not with nodes times configurations. The blocks multiply matrices in bfloat16 where
the processor can, and add up in float32: the order of the scores hardly changes (see benchmarks/LOG.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import SAGEConv

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig
from tvm_gnn_cost.tpugraphs.models.sharing import Integers, Neighbourhood, Sharing, gather, on_device

#: Nodes times configurations that are computed at once: few enough for the caches, enough to multiply matrices well.
_ROWS = 8192
#: Nodes times configurations up to which the input of a block is kept in scoring, and in training.
_KEPT_ROWS, _TRAINED_ROWS = 65536, 2**19
#: Nodes times configurations up to which training also keeps what is computed within a block.
_PLAIN_ROWS = 2**14
#: Whether the processor multiplies matrices in bfloat16, in half of the time. PyTorch has no public function for it.
_HAS_BFLOAT16 = torch.cpu._is_avx512_bf16_supported()
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
        activation: Apply GELU ``inside`` the residual connection, to what is added (equation 3), or ``behind`` it,
            after the sum (the authors' code).
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
        """Turns float32[..., c, channels] into float32[..., c, 2 channels]: ``x`` and its weighted copy."""
        return torch.cat([x, x * torch.softmax(x / self.temperature, dim=-2)], dim=-1)


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
        """What nodes give to their neighbours and to themselves, [..., out] each, of ``normal``[..., channels].

        The convolution is linear after the ReLU of its projection, so that a node can be multiplied once, before the
        sums over neighbourhoods, in which it occurs several times.
        """
        convolution = self.convolution
        projected = functional.relu(_product(normal, convolution.lin.weight, convolution.lin.bias), inplace=True)
        to_itself = _product(normal, convolution.lin_r.weight, convolution.lin_l.bias)
        return _product(projected, convolution.lin_l.weight), to_itself

    def forward(self, received: Tensor, x: Tensor | None, *, again: bool) -> Tensor:
        """The block's output, float32[k, c, channels].

        Args:
            received: float32[k, c, out], the sum of what neighbours and the nodes themselves gave.
            x: float32[k, c, channels], the block's input, which it adds; None leaves the addition to the caller.
            again: Whether the backward pass computes the output once more, and keeps only what it is computed from.
        """
        call = _again if again else _once
        if x is None or not self.activates_inside:
            return call(self._activated, received, x)
        return call(self._activated, received, None).add_(x)

    def _activated(self, received: Tensor, x: Tensor | None) -> Tensor:
        if self.convolution.normalize:
            received = functional.normalize(received, dim=-1)
        added = self.cross(self.channels(received))
        return functional.gelu(added if x is None else x + added)


@dataclass(frozen=True)
class _FirstInputs:
    """What the first block computes from: each different row of each of c configurations.

    Attributes:
        encoded: float32[u, channels], the encoder's output.
        row: int64[c, m], the row of ``encoded`` of each configuration and class.
        given: float32[2 p, out]: what nodes give to their neighbours, and then what they give to themselves.
        place: int64[c, m], the row of ``given`` of each configuration and class.
    """

    encoded: Tensor
    row: Integers
    given: Tensor
    place: Integers

    def received(self, around: Neighbourhood) -> Tensor:
        """What k classes get from their members, float32[k, c, out]."""
        configs, begins = len(self.place), around.begins
        counts: Integers = np.append(begins[1:], len(around.members)) - begins
        of_class = np.repeat(np.arange(len(begins)), counts)
        # Members are sorted by class, and within a class by configuration.
        begin: Integers = begins[:, None] * configs + counts[:, None] * np.arange(configs)
        slot = begin[of_class] + (np.arange(len(of_class)) - begins[of_class])[:, None]
        index, weight = np.empty(slot.size, np.int64), np.empty(slot.size, np.float32)
        index[slot] = (self.place[:, around.members] + around.is_own * (len(self.given) // 2)).T
        weight[slot] = around.weight[:, None]
        return _sums(self.given, index, begin.reshape(-1), weight).view(len(begins), configs, -1)

    def activations(self, classes: Integers) -> Tensor:
        """The activations of k classes, float32[k, c, channels]."""
        return gather(self.encoded, on_device(self.row[:, classes].T, self.encoded.device))


@dataclass(frozen=True)
class _Inputs:
    """What a later block computes from, for m classes of nodes in c configurations.

    Attributes:
        x: float32[m, c, channels], the activations; None where the block does not add its input to its output.
        given: float32[2 m, c, out]: what nodes give to their neighbours, and then what they give to themselves.
    """

    x: Tensor | None
    given: Tensor

    def received(self, around: Neighbourhood) -> Tensor:
        """What k classes get from their members, float32[k, c, out]."""
        index = around.members + around.is_own * (len(self.given) // 2)
        sums = _sums(self.given.flatten(1), index, around.begins, around.weight)
        return sums.view(-1, *self.given.shape[1:])

    def activations(self, classes: Integers) -> Tensor:
        """The activations of k classes, float32[k, c, channels]."""
        assert self.x is not None
        return gather(self.x.flatten(1), on_device(classes, self.x.device)).view(-1, *self.x.shape[1:])


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
        # Training keeps more: computing a block's input once more takes longer there.
        self._kept_rows = _TRAINED_ROWS if torch.is_grad_enabled() else _KEPT_ROWS
        # Of each level: its mean over the nodes, and its normalisation, float32[c, channels].
        self._means: list[Tensor] = []
        self._norms: list[tuple[Tensor, Tensor]] = []
        # The last level that is kept, and what the block after it computes from.
        self._kept: tuple[int, _FirstInputs | _Inputs] = (0, self._first_inputs(encoded))

    def mean(self) -> Tensor:
        """The mean over the nodes after the last block, float32[c, channels]."""
        last = len(self._blocks)
        for level in range(1, last):
            self._prepare(level)
        share = self._sharing.level(last).size / len(self._sharing.level(last).of_node)

        def part(classes: Integers, x: Tensor) -> Tensor:
            return on_device(share[classes], self._device) @ x.flatten(1)

        total = self._means[-1].flatten() if self._adds_means else torch.zeros((), device=self._device)
        for share_of_part in self._each(part, last):
            total = total + share_of_part
        return total.view(self._configs, -1)

    def _prepare(self, level: int) -> None:
        """Finds the mean and the normalisation of a level's activations, and keeps the next block's input if small."""
        size = self._sharing.level(level).size
        is_kept = self._is_small(level)

        def moments(classes: Integers, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            share = on_device(size[classes] / size[classes].sum(), self._device)
            # The backward pass keeps the activations alone.
            return *_again(_moments, x, share), x if is_kept else None

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
            self._kept = level, self._made(level, kept)

    def _made(self, level: int, parts: Iterable[Tensor]) -> _Inputs:
        """The input of the block after a level (1 or more), from its activations float32[m, c, channels] in parts."""
        scale, shift = self._norms[level]
        given, needed = [], []
        for x in parts:
            given.append(self._blocks[level].messages(_narrow(torch.addcmul(shift, x, scale))))
            if self._needs_input(level):
                needed.append(x)
        return _Inputs(torch.cat(needed) if needed else None, _stacked(given))

    def _first_inputs(self, encoded: Tensor) -> _FirstInputs:
        """The input of the first block: one product for each different row of each configuration."""
        rows = self._sharing.encoded
        config, row, share = (on_device(part, self._device) for part in (rows.config, rows.row_in_config, rows.share))
        begins = on_device(np.searchsorted(rows.config, np.arange(self._configs)), self._device)

        def mean_of(values: Tensor) -> Tensor:
            return functional.embedding_bag(row, values, begins, mode="sum", per_sample_weights=share)

        mean = mean_of(encoded)
        # The difference of the squares is exact enough because all configurations have nearly the same mean.
        centre = mean.detach().mean(dim=0)
        square = mean_of((encoded - centre).square())
        scale, shift = _scale_and_shift(mean, (square - (mean - centre).square()).clamp(min=0))
        self._means.append(mean)
        self._norms.append((scale, shift))

        def normal(chunk: slice) -> Tensor:
            its = config[chunk]
            return _narrow(torch.addcmul(gather(shift, its), gather(encoded, row[chunk]), gather(scale, its)))

        def part(chunk: slice) -> tuple[Tensor, Tensor]:
            return self._blocks[0].messages(_again(normal, chunk))

        call = _again if len(row) > self._kept_rows else _once
        given = _stacked([call(part, slice(begin, begin + _ROWS)) for begin in range(0, len(row), _ROWS)])
        return _FirstInputs(encoded, rows.row, given, rows.place)

    def _outputs(self, level: int, parts: Sequence[Integers], *, again: bool) -> Iterator[Tensor]:
        """The output of a block, counted from 1, for the k classes of each part: float32[k, c, channels].

        All parts are added up in one go: the gradient of a sum is as large as the table that is added from.

        Args:
            level: The level after the block.
            parts: int64[k] each.
            again: See :meth:`_Block.forward`.
        """
        around = self._sharing.neighbourhood(level, np.concatenate(parts), averages=self._averages)
        kept, inputs = self._kept
        if kept < level - 1:
            needed, members = np.unique(around.members, return_inverse=True)
            around = replace(around, members=members)
            inputs = self._made(level - 1, self._outputs(level - 1, self._split(needed), again=False))
        lengths = [len(part) for part in parts]
        received = torch.split(inputs.received(around), lengths)
        added: Sequence[Tensor | None] = [None] * len(parts)
        if self._needs_input(level - 1):
            added = torch.split(inputs.activations(around.members[around.is_own]), lengths)
        for its_received, x in zip(received, added, strict=True):
            yield self._blocks[level - 1](its_received, x, again=again)

    def _needs_input(self, level: int) -> bool:
        """Whether the block after a level adds its input to each node's output."""
        return level < len(self._blocks) - 1 or not self._adds_means

    def _is_small(self, level: int) -> bool:
        """Whether all activations of a level may be kept; the levels before it have fewer classes."""
        return self._configs * len(self._sharing.level(level).size) <= self._kept_rows

    def _parts(self, level: int) -> list[Integers]:
        """The classes of a level, in parts that are computed one after another."""
        return self._split(np.arange(len(self._sharing.level(level).size)))

    def _split(self, classes: Integers) -> list[Integers]:
        return np.array_split(classes, min(len(classes), -(-len(classes) * self._configs // _ROWS)))

    def _each(self, function: Callable[[Integers, Tensor], _Result], level: int) -> Iterator[_Result]:
        """Calls a function with each part of the classes of a level and the block's output for them."""
        parts = self._parts(level)
        if self._is_small(level) or self._kept[0] == level - 1 > 0:
            again = self._configs * len(self._sharing.level(level).size) > _PLAIN_ROWS
            for classes, x in zip(parts, self._outputs(level, parts, again=again), strict=True):
                yield function(classes, x)
            return

        def compute(classes: Integers) -> _Result:
            (x,) = self._outputs(level, [classes], again=False)
            return function(classes, x)

        for classes in parts:
            yield _again(compute, classes)


def _narrow(x: Tensor) -> Tensor:
    """What the blocks multiply: bfloat16 where the processor has it."""
    return x.bfloat16() if _HAS_BFLOAT16 and x.device.type == "cpu" else x


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` in the data type of ``x``."""
    return functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def _sums(table: Tensor, index: Integers, begins: Integers, weight: npt.NDArray[np.float32]) -> Tensor:
    """Weighted sums of rows of a table, float32[k, width], each of the rows from its beginning to the next."""
    places, begins_there, weights = (on_device(part, table.device) for part in (index, begins, weight))
    return functional.embedding_bag(places, table, begins_there, mode="sum", per_sample_weights=weights)


def _moments(x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted mean and variance of float32[k, c, channels] over the first dimension, float32[c, channels] each."""
    values = x.flatten(1)
    mean = share @ values
    variance = share @ (values - mean).square()
    return mean.view(x.shape[1:]), variance.view(x.shape[1:])


def _once(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function; training keeps what its backward pass needs."""
    return function(*arguments)


def _again(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function; training keeps its result alone and computes the rest once more in the backward pass."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    result: _Result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return result


def _stacked(given: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """What nodes give, in parts, as one float32 table: first to their neighbours, then to themselves."""
    parts = [to_neighbours for to_neighbours, _ in given] + [to_themselves for _, to_themselves in given]
    return torch.cat(parts).float()


def _scale_and_shift(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Instance normalisation as a product and a sum; PyTorch's function refuses a graph of one node."""
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
