"""The parts that models share: their input, the encoder of its nodes and configurations, and the fusion of tiles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import (
    LAYOUT_RANK,
    LAYOUT_SYMBOLS,
    LAYOUT_VALUES,
    NO_DIMENSION,
    NODE_NUMBERS,
    OPCODE_COUNT,
    TILE_VALUES,
    Kind,
)
from tvm_gnn_cost.tpugraphs.models.sharing import Sharing, gather, on_device
from tvm_gnn_cost.tpugraphs.settings import check_values


@dataclass(frozen=True)
class KernelInput:
    """The fused kernels of c configurations, u different ones; see ``preparation/prepared_graph.py``.

    Attributes:
        features: float32[u, 43].
        of: int64[z], the kernels of all configurations.
        config: int64[z], the configuration that each of them belongs to, from 0 to c - 1.
    """

    features: Tensor
    of: Tensor
    config: Tensor

    def to(self, device: torch.device) -> KernelInput:
        """The same kernels on another device."""
        return KernelInput(self.features.to(device), self.of.to(device), self.config.to(device))


@dataclass(frozen=True)
class ConfiguredInput:
    """One graph of n nodes and c of its configurations, on one device.

    Attributes:
        numbers: float32[n, 134], the standardised numbers of each node.
        opcode: int64[n].
        permutation: int8[n, 6], the layout of each node's output, -1 to 5.
        edge_index: int64[2, m]; a column (u, v) means that u consumes v's output.
        config_nodes: int64[nc], the nodes that have layouts; empty for tiles.
        configs: int8[c, nc, 18] layouts or float32[c, 24] tiles.
        kernels: The kernels of the configurations; empty where the graph was prepared without them.
    """

    numbers: Tensor
    opcode: Tensor
    permutation: Tensor
    edge_index: Tensor
    config_nodes: Tensor
    configs: Tensor
    kernels: KernelInput

    @cached_property
    def sharing(self) -> Sharing:
        """Which of its nodes and configurations are equal."""
        features = tuple(part.cpu().numpy() for part in (self.numbers, self.opcode, self.permutation))
        # Tiles are not features of nodes: all of them have the same nodes.
        is_layout = self.configs.ndim == 3
        configs = self.configs.cpu().numpy() if is_layout else np.zeros((1, 0, LAYOUT_VALUES), np.int8)
        return Sharing(features, self.edge_index.cpu().numpy(), self.config_nodes.cpu().numpy(), configs)

    def to(self, device: torch.device) -> ConfiguredInput:
        """The same input on another device."""
        if device == self.configs.device:
            return self
        moved = ConfiguredInput(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})
        # It is computed on the CPU, so before the graph leaves it.
        moved.__dict__["sharing"] = self.sharing
        return moved

    @property
    def edges_both_ways(self) -> Tensor:
        """int64[2, 2 m], each edge in both directions."""
        return torch.cat([self.edge_index, self.edge_index.flip(0)], dim=1)

    def each_node(self, encoded: Tensor) -> Tensor:
        """The encoded nodes one by one, float32[c, n, channels]; for tiles float32[1, n, channels].

        Args:
            encoded: float32[u, channels] of :class:`NodeEncoder`.
        """
        row = self.sharing.encoded.row[:, self.sharing.level(0).of_node]
        return gather(encoded, on_device(row, encoded.device))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The settings of every model begin with these.

    Attributes:
        kind: What the configurations are.
    """

    kind: Kind = "layout"


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ModelConfig):
    """How nodes are encoded; the settings of every model that reads nodes begin with these.

    Raises:
        InputError: a value is out of range.

    Attributes:
        AT_LEAST_ONE: The names of the fields that are sizes.
        channels: Width of the network.
        opcode_channels: Width of an opcode's embedding.
        layout_channels: Width of the embedding of each of the six places of a layout.
        unknown_opcodes: Share of opcodes that training replaces with 0, unknown, so that 0 gets an embedding too.
        opcodes: How opcodes are embedded: in a learned ``table``, where all opcodes outside the training graphs share
            one vector, or by ``fasttext`` vectors of their names, where each has a different one.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ("channels", "opcode_channels", "layout_channels")

    channels: int = 128
    opcode_channels: int = 16
    layout_channels: int = 4
    unknown_opcodes: float = 0.01
    opcodes: Literal["table", "fasttext"] = "table"

    def __post_init__(self) -> None:
        check_values(self, dict.fromkeys(self.AT_LEAST_ONE, 1))
        if not 0 <= self.unknown_opcodes < 1:
            raise InputError(f"unknown_opcodes is {self.unknown_opcodes}; expected a share below 1")


class OpcodeTable(nn.Module):
    """A learned vector for each opcode; opcodes that no training graph had share the vector of 0, unknown.

    Attributes:
        is_known: bool[121], the opcodes that occur in the training graphs; set it before training.
    """

    is_known: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.table = nn.Embedding(OPCODE_COUNT, channels)
        self.register_buffer("is_known", torch.ones(OPCODE_COUNT, dtype=torch.bool))

    def forward(self, opcode: Tensor) -> Tensor:
        """The vectors, float32[n, channels], of int64[n] opcodes; any number is allowed."""
        shown = opcode.clamp(0, OPCODE_COUNT - 1)
        vectors: Tensor = self.table(shown * (self.is_known[shown] & (opcode < OPCODE_COUNT)))
        return vectors


class OpcodeVectors(nn.Module):
    """Fixed vectors of opcodes, which training does not change.

    Attributes:
        vectors: float32[121, channels]; set it before training.
    """

    vectors: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(OPCODE_COUNT, channels))

    def forward(self, opcode: Tensor) -> Tensor:
        """The vectors, float32[n, channels], of int64[n] opcodes; an unknown number gets that of 0."""
        return self.vectors[opcode * ((opcode >= 0) & (opcode < OPCODE_COUNT))]


class NodeEncoder(nn.Module):
    """Encodes nodes' numbers, opcodes, output layouts and configurations with two linear layers and GELU.

    Each different input is encoded once, wherever it occurs in the graph and its configurations. The first layer is a
    sum of two products, one with the node's features and one with its configuration; each is computed once for all
    inputs that share the features or the configuration.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.is_layout = config.kind == "layout"
        self.opcodes: OpcodeTable | OpcodeVectors
        if config.opcodes == "table":
            self.opcodes = OpcodeTable(config.opcode_channels)
        else:
            self.opcodes = OpcodeVectors(config.opcode_channels)
        self.layouts = nn.Embedding(LAYOUT_SYMBOLS, config.layout_channels)
        static = NODE_NUMBERS + config.opcode_channels + LAYOUT_RANK * config.layout_channels
        self.of_node = nn.Linear(static, config.channels)
        if self.is_layout:
            self.of_config = nn.Linear(LAYOUT_VALUES * config.layout_channels, config.channels, bias=False)
        self.second = nn.Linear(config.channels, config.channels)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[u, channels], one row for each different input: those of ``graph.sharing.encoded``."""
        different, device = graph.sharing.encoded, graph.numbers.device
        node = on_device(different.node, device)
        permutation = self._of_layout(graph.permutation[node])
        of_node = self.of_node(torch.cat([graph.numbers[node], self.opcodes(graph.opcode[node]), permutation], dim=-1))
        x = gather(of_node, on_device(different.node_of, device))
        if self.is_layout:
            # A node without a configuration counts as one whose 18 values are all -1.
            of_layout = self.of_config(self._of_layout(on_device(different.layout, device)))
            x = x + gather(of_layout, on_device(different.layout_of, device))
        return functional.gelu(self.second(functional.gelu(x)))

    def _of_layout(self, layout: Tensor) -> Tensor:
        """float32[u, k layout_channels] of int8[u, k]."""
        vectors: Tensor = self.layouts(layout.long() - NO_DIMENSION)
        return vectors.flatten(-2)


class RankingModel(nn.Module):
    """A model that scores configurations; a higher score means faster.

    Attributes:
        compares: Whether a configuration's score depends on the other configurations that are scored with it.
    """

    compares = False


class ConfigurationModel(RankingModel):
    """A model that computes one vector per configuration; subclasses pool the nodes and score the vectors.

    Args:
        config: How nodes are encoded.
        pooled_channels: Width of what :meth:`pool` returns.
    """

    def __init__(self, config: EncoderConfig, pooled_channels: int) -> None:
        super().__init__()
        self.encoder = NodeEncoder(config)
        self.fusion = None if config.kind == "layout" else nn.Linear(pooled_channels + TILE_VALUES, pooled_channels)

    def pool(self, encoded: Tensor, graph: ConfiguredInput) -> Tensor:
        """Pools the nodes of each configuration; each model defines it.

        Args:
            encoded: float32[u, channels] of :class:`NodeEncoder`.
            graph: The graph.

        Returns:
            float32[c, pooled_channels]; float32[1, pooled_channels] for tiles.
        """
        raise NotImplementedError

    def hidden(self, graph: ConfiguredInput) -> Tensor:
        """The vectors of the configurations, float32[c, pooled_channels]."""
        return self.with_tiles(self.pool(self.encoder(graph), graph), graph)

    def with_tiles(self, pooled: Tensor, graph: ConfiguredInput) -> Tensor:
        """The vectors of the configurations of a pooled graph: tiles join after pooling (late fusion)."""
        if self.fusion is None:
            return pooled
        # Bounds and their products range from 0 to millions.
        sizes = torch.log1p(graph.configs.clamp(min=0))
        return functional.gelu(self.fusion(torch.cat([pooled.expand(len(sizes), -1), sizes], dim=-1)))
