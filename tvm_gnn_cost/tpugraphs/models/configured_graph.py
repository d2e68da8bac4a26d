"""What the models share: their input, the encoding of its nodes and configurations, and the fusion of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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
from tvm_gnn_cost.tpugraphs.settings import check_values


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
    """

    numbers: Tensor
    opcode: Tensor
    permutation: Tensor
    edge_index: Tensor
    config_nodes: Tensor
    configs: Tensor

    def to(self, device: torch.device) -> ConfiguredInput:
        """The same input on another device."""
        return ConfiguredInput(**{name: tensor.to(device) for name, tensor in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How nodes are encoded; the settings of every model begin with these.

    Raises:
        InputError: a value is out of range.

    Attributes:
        AT_LEAST_ONE: The names of the fields that are sizes.
        kind: What the configurations are.
        channels: Width of the network.
        opcode_channels: Width of an opcode's embedding.
        layout_channels: Width of the embedding of each of the six places of a layout.
        unknown_opcodes: Share of opcodes that training replaces with 0, unknown, so that 0 gets an embedding too.
        opcodes: How opcodes are embedded: in a learned ``table``, where all opcodes that training never saw share one
            vector, or by ``fasttext`` vectors of their names, where each has its own.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ("channels", "opcode_channels", "layout_channels")

    kind: Kind = "layout"
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

    def __init__(self, channels: int, hidden_share: float) -> None:
        super().__init__()
        self.table = nn.Embedding(OPCODE_COUNT, channels)
        self.hidden_share = hidden_share
        self.register_buffer("is_known", torch.ones(OPCODE_COUNT, dtype=torch.bool))

    def forward(self, opcode: Tensor) -> Tensor:
        """The vectors, float32[n, channels], of int64[n] opcodes; any number is allowed."""
        shown = opcode.clamp(0, OPCODE_COUNT - 1)
        shown = shown * (self.is_known[shown] & (opcode < OPCODE_COUNT))
        if self.training and self.hidden_share > 0:
            shown = shown * (torch.rand(shown.shape, device=shown.device) >= self.hidden_share)
        vectors: Tensor = self.table(shown)
        return vectors


class OpcodeVectors(nn.Module):
    """Given vectors of opcodes, which training does not change.

    Attributes:
        vectors: float32[121, channels]; set it before training.
    """

    vectors: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(OPCODE_COUNT, channels))

    def forward(self, opcode: Tensor) -> Tensor:
        """The vectors, float32[n, channels], of int64[n] opcodes; a number that no opcode has gets that of 0."""
        return self.vectors[opcode * ((opcode >= 0) & (opcode < OPCODE_COUNT))]


class NodeEncoder(nn.Module):
    """Encodes each node's numbers, opcode, output layout and configuration with two linear layers and GELU.

    The first layer is a sum of two products, one with the node's features and one with its configuration; the former is
    computed once for all configurations.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.is_layout = config.kind == "layout"
        self.opcodes: OpcodeTable | OpcodeVectors
        if config.opcodes == "table":
            self.opcodes = OpcodeTable(config.opcode_channels, config.unknown_opcodes)
        else:
            self.opcodes = OpcodeVectors(config.opcode_channels)
        self.layouts = nn.Embedding(LAYOUT_SYMBOLS, config.layout_channels)
        static = NODE_NUMBERS + config.opcode_channels + LAYOUT_RANK * config.layout_channels
        self.of_node = nn.Linear(static, config.channels)
        if self.is_layout:
            self.of_config = nn.Linear(LAYOUT_VALUES * config.layout_channels, config.channels, bias=False)
        self.second = nn.Linear(config.channels, config.channels)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[c, n, channels] for layouts; float32[1, n, channels] for tiles, which are no features of nodes."""
        permutation = self.layouts(graph.permutation.long() - NO_DIMENSION).flatten(-2)
        x = self.of_node(torch.cat([graph.numbers, self.opcodes(graph.opcode), permutation], dim=-1))[None]
        if self.is_layout:
            # A node without a configuration counts as one whose 18 values are all -1.
            absent = self.of_config(self.layouts.weight[0].repeat(LAYOUT_VALUES))
            configured = self.of_config(self.layouts(graph.configs.long() - NO_DIMENSION).flatten(-2)) - absent
            x = (x + absent).expand(len(graph.configs), -1, -1).index_add(1, graph.config_nodes, configured)
        return functional.gelu(self.second(functional.gelu(x)))


class ConfigurationModel(nn.Module):
    """A model that computes one vector per configuration; subclasses pool the nodes and score the vectors.

    Attributes:
        compares: Whether a configuration's score depends on the other configurations that are scored with it.

    Args:
        config: How nodes are encoded.
        pooled_channels: Width of what :meth:`pool` returns.
    """

    compares = False

    def __init__(self, config: EncoderConfig, pooled_channels: int) -> None:
        super().__init__()
        self.encoder = NodeEncoder(config)
        self.fusion = None if config.kind == "layout" else nn.Linear(pooled_channels + TILE_VALUES, pooled_channels)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Pools the nodes of each configuration; each model defines it.

        Args:
            x: float32[c, n, channels], the encoded nodes.
            edge_index: int64[2, 2 m], each edge in both directions.

        Returns:
            float32[c, pooled_channels].
        """
        raise NotImplementedError

    def hidden(self, graph: ConfiguredInput) -> Tensor:
        """The vectors of the configurations, float32[c, pooled_channels]; tiles join after pooling (late fusion)."""
        edges = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
        pooled = self.pool(self.encoder(graph), edges)
        if self.fusion is None:
            return pooled
        # Bounds and their products range from 0 to millions.
        sizes = torch.log1p(graph.configs.clamp(min=0))
        return functional.gelu(self.fusion(torch.cat([pooled.expand(len(sizes), -1), sizes], dim=-1)))
