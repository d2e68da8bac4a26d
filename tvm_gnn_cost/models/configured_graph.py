"""What the models of configured graphs share: the input, the encoding of its nodes, the fusion of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

NUMBERS, PERMUTATION, LAYOUTS, TILE = 134, 6, 18, 24
#: Numbers of opcodes in the data set, with 0 for an unknown one.
OPCODES = 121


@dataclass(frozen=True)
class ConfiguredInput:
    """One graph of n nodes and c of its configurations, on one device.

    Attributes:
        numbers: float32[n, 134], standardised.
        opcode: int64[n].
        permutation: int8[n, 6], -1 to 5.
        edge_index: int64[2, m].
        config_nodes: int64[nc]; empty for tiles.
        configs: int8[c, nc, 18] layouts or float32[c, 24] tiles.
    """

    numbers: Tensor
    opcode: Tensor
    permutation: Tensor
    edge_index: Tensor
    config_nodes: Tensor
    configs: Tensor

    def to(self, device: torch.device) -> ConfiguredInput:
        """The same on another device."""
        return ConfiguredInput(**{name: tensor.to(device) for name, tensor in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How nodes are encoded; every model's settings begin with these.

    Raises:
        ValueError: a size is below 1, or a share none.

    Attributes:
        AT_LEAST_ONE: The names of the sizes.
        kind: What the configurations are.
        channels: Width of the network.
        opcode_channels: Width of an opcode's embedding.
        layout_channels: Width of the embedding of one dimension of a layout, a node's or a configuration's.
        unknown_opcodes: Share of opcodes hidden in training, so that one never seen has an embedding.
        opcodes: What embeds them: a learned ``table``, in which all that were never seen are alike, or ``fasttext``
            vectors of their names, in which each differs.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ("channels", "opcode_channels", "layout_channels")

    kind: Literal["layout", "tile"] = "layout"
    channels: int = 128
    opcode_channels: int = 16
    layout_channels: int = 4
    unknown_opcodes: float = 0.01
    opcodes: Literal["table", "fasttext"] = "table"

    def __post_init__(self) -> None:
        for name in self.AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if not 0 <= self.unknown_opcodes < 1:
            raise ValueError(f"unknown_opcodes is {self.unknown_opcodes}; expected a share below 1")


class OpcodeTable(nn.Module):
    """A learned vector an opcode; one that no training graph had shares the vector that is learned for 0, unknown.

    Attributes:
        is_known: bool[121]; set it to what occurs in the training graphs.
    """

    is_known: Tensor

    def __init__(self, channels: int, hidden_share: float) -> None:
        super().__init__()
        self.table = nn.Embedding(OPCODES, channels)
        self.hidden_share = hidden_share
        self.register_buffer("is_known", torch.ones(OPCODES, dtype=torch.bool))

    def forward(self, opcode: Tensor) -> Tensor:
        """float32[n, channels] of int64[n]; any number is taken."""
        shown = opcode.clamp(0, OPCODES - 1)
        shown = shown * (self.is_known[shown] & (opcode < OPCODES))
        if self.training and self.hidden_share > 0:
            shown = shown * (torch.rand(shown.shape, device=shown.device) >= self.hidden_share)
        vectors: Tensor = self.table(shown)
        return vectors


class OpcodeVectors(nn.Module):
    """Vectors of opcodes that training does not change.

    Attributes:
        vectors: float32[121, channels]; set them before training.
    """

    vectors: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(OPCODES, channels))

    def forward(self, opcode: Tensor) -> Tensor:
        """float32[n, channels] of int64[n]; a number that no opcode has gets that of 0, unknown."""
        return self.vectors[opcode * ((opcode >= 0) & (opcode < OPCODES))]


class NodeEncoder(nn.Module):
    """Numbers, opcode and layouts of each node and its configuration, through two linear layers with GELU.

    The first layer is the sum of what each part contributes: that of the nodes is computed once for all configurations.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.is_layout = config.kind == "layout"
        self.opcodes: OpcodeTable | OpcodeVectors
        if config.opcodes == "table":
            self.opcodes = OpcodeTable(config.opcode_channels, config.unknown_opcodes)
        else:
            self.opcodes = OpcodeVectors(config.opcode_channels)
        self.layouts = nn.Embedding(7, config.layout_channels)
        static = NUMBERS + config.opcode_channels + PERMUTATION * config.layout_channels
        self.of_node = nn.Linear(static, config.channels)
        if self.is_layout:
            self.of_config = nn.Linear(LAYOUTS * config.layout_channels, config.channels, bias=False)
        self.second = nn.Linear(config.channels, config.channels)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[c, n, channels]; [1, n, channels] for tiles, which no node knows of."""
        permutation = self.layouts(graph.permutation.long() + 1).flatten(-2)
        x = self.of_node(torch.cat([graph.numbers, self.opcodes(graph.opcode), permutation], dim=-1))[None]
        if self.is_layout:
            # A node without a configuration has -1 throughout.
            absent = self.of_config(self.layouts.weight[0].repeat(LAYOUTS))
            configured = self.of_config(self.layouts(graph.configs.long() + 1).flatten(-2)) - absent
            x = (x + absent).expand(len(graph.configs), -1, -1).index_add(1, graph.config_nodes, configured)
        return functional.gelu(self.second(functional.gelu(x)))


class ConfigurationModel(nn.Module):
    """A model that makes one vector a configuration; each kind of model pools the nodes in its own way.

    Attributes:
        compares: Whether a configuration's score depends on which others are scored with it.

    Args:
        config: How nodes are encoded.
        pooled_channels: What :meth:`pool` makes.
    """

    compares = False

    def __init__(self, config: EncoderConfig, pooled_channels: int) -> None:
        super().__init__()
        self.encoder = NodeEncoder(config)
        self.fusion = None if config.kind == "layout" else nn.Linear(pooled_channels + TILE, pooled_channels)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[c, n, channels] and int64[2, 2 m], each edge in both directions, become [c, pooled channels]."""
        raise NotImplementedError

    def hidden(self, graph: ConfiguredInput) -> Tensor:
        """float32[c, pooled channels]; tiles join behind the pooling (late fusion)."""
        edges = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
        pooled = self.pool(self.encoder(graph), edges)
        if self.fusion is None:
            return pooled
        # Bounds and their products reach from 0 to millions.
        sizes = torch.log1p(graph.configs.clamp(min=0))
        return functional.gelu(self.fusion(torch.cat([pooled.expand(len(sizes), -1), sizes], dim=-1)))
