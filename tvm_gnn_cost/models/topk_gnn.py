"""The TopK-pooling graph neural network: a batch of program graphs in, one score a program out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, TopKPooling, global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.utils import softmax

from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.graphs.program_graph import Detail, Relation
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.relational_conv import RelationalConv


@dataclass(frozen=True)
class TopKGNNConfig:
    """What a :class:`TopKGNN` is made of.

    Attributes:
        detail: Which nodes it reads, ``tree`` (all) or ``statements`` (none of the index arithmetic).
        groups: Groups of node values it reads (``graphs.values``).
        type_dim: Length of a node type's FastText vector.
        hidden: Channels of each convolution.
        layers: Convolutions, each followed by TopK pooling.
        ratio: Share of the nodes that each pooling keeps.
        conv: ``graph`` is GraphConv over the undirected tree (TPGNN); ``relational`` has one weight for each
            relation and direction (RGCN, Schlichtkrull et al. 2017, arXiv:1703.06103).
        head: Channels of the perceptron that makes the score.
        encode: Whether a perceptron makes the first channels out of vector and values before any convolution.
        total: Whether a readout also has the sum over the nodes: costs of statements add up.
        costs: Kinds of cost that the model estimates for one iteration of each node and adds up over the program;
            0 for none. See :meth:`TopKGNN.log_costs`.
        dropout: In the head.
    """

    detail: Detail = "statements"
    groups: tuple[str, ...] = ("constant", "dtype", "loop", "access", "work")
    type_dim: int = 16
    hidden: int = 64
    layers: int = 2
    ratio: float = 0.8
    conv: Literal["graph", "relational"] = "relational"
    head: tuple[int, ...] = (128, 64)
    encode: bool = True
    total: bool = True
    costs: int = 8
    dropout: float = 0.3


#: As published: 18 + 2 values a node, undirected tree, 3 x (GraphConv 128, TopK 0.8), max || mean, 256-128-64-1.
TPGNN = TopKGNNConfig(
    detail="tree",
    groups=("constant",),
    type_dim=18,
    hidden=128,
    layers=3,
    conv="graph",
    head=(128, 64),
    encode=False,
    total=False,
    costs=0,
    dropout=0.0,
)

PRESETS: dict[str, TopKGNNConfig] = {"gnn": TopKGNNConfig(), "tpgnn": TPGNN}


class TopKGNN(nn.Module):
    """Scores programs; higher is faster.

    The scores are logits of the throughput relative to the task's best program, up to a scale and a shift
    (``training.calibration``).

    Args:
        config: The architecture.
        type_vectors: float32[T, config.type_dim], one row a node type; not trained.
        mean: float32[V], of each value over the training nodes.
        std: float32[V], likewise.
    """

    type_vectors: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, config: TopKGNNConfig, type_vectors: Tensor, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("type_vectors", type_vectors, persistent=False)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        channels = config.type_dim + len(mean)
        self.encoder: nn.Module = nn.Identity()
        if config.encode:
            self.encoder = nn.Sequential(
                nn.Linear(channels, 2 * config.hidden), nn.ReLU(), nn.Linear(2 * config.hidden, config.hidden)
            )
            channels = config.hidden
        self.convs, self.pools, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in range(config.layers):
            if config.conv == "graph":
                self.convs.append(GraphConv(channels, config.hidden))
                self.norms.append(nn.Identity())
            else:
                self.convs.append(RelationalConv(channels, config.hidden, 2 * len(Relation)))
                self.norms.append(nn.LayerNorm(config.hidden))
            self.pools.append(TopKPooling(config.hidden, ratio=config.ratio))
            channels = config.hidden
        width = config.hidden * (3 if config.total else 2) + config.costs
        layers: list[nn.Module] = []
        for size in config.head:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(config.dropout)]
            width = size
        self.head = nn.Sequential(*layers, nn.Linear(width, 1))
        if config.costs:
            hidden = config.hidden
            self.cost = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, config.costs))
            # Before any training already: what costs more is slower.
            self.slower = nn.Linear(config.costs, 1)
            nn.init.constant_(self.slower.weight, -1 / config.costs)
            nn.init.zeros_(self.slower.bias)
            self.latency = nn.Linear(config.costs, 1)
            nn.init.constant_(self.latency.weight, 1 / config.costs)
        names = [VALUES[column][0] for column in columns(config.groups)]
        self.iterations = names.index("iterations") if "iterations" in names else None

    def forward(self, batch: GraphBatch) -> Tensor:
        """float32[G]: a score for each graph."""
        return self.score_and_latency(batch)[0]

    def score_and_latency(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """float32[G] each: scores, and logarithms of the latency in milliseconds; no latency without ``costs``.

        The latency is that on the machine which was trained on. It is there to be learned: it compares the programs of
        different tasks, which the scores don't, so that every measurement says what the costs of statements are.
        """
        x = self._encode(batch)
        edge_index, relation, graph = self._edges(batch)
        readouts: list[Tensor] = []
        costs: Tensor | None = None
        for layer, pool in enumerate(self.pools):
            x = self._convolve(layer, x, edge_index, relation)
            if self.config.costs and costs is None:
                costs = self.log_costs(x, batch)
            x, edge_index, relation, graph, _, _ = pool(x, edge_index, relation, graph)
            readouts.append(self._read(x, graph, batch.size))
        readout = torch.stack(readouts).sum(dim=0)
        if costs is None:
            return self.head(readout).squeeze(1), None
        score = self.head(torch.cat([readout, costs], dim=1)) + self.slower(costs)
        return score.squeeze(1), self.latency(costs).squeeze(1)

    def log_costs(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """float32[G, costs]: logarithms of costs that add up over the nodes, brought near to zero.

        A program's time is the sum over its statements of how often each runs times what one run of it costs. The
        model estimates the logarithm of the second out of a node's channels ``x`` float32[N, hidden] after the first
        convolution, and is given the first: that need not be learned from few programs.
        """
        cost = self._node_costs(x, batch)
        # Shifted by each graph's largest: exp() must not overflow. A graph without nodes costs nothing.
        largest = global_max_pool(cost, batch.graph, batch.size).detach()
        total = global_add_pool(torch.exp(cost - largest[batch.graph]), batch.graph, batch.size)
        # Programs of 1 ms or so run some exp(12) iterations; 4 is about the deviation.
        logarithm: Tensor = (torch.log(total + 1e-9) + largest - 12) / 4
        return logarithm

    def _node_costs(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """float32[N, costs]: the logarithms of the nodes' costs."""
        cost: Tensor = self.cost(x)
        if self.iterations is not None:
            # Stored as log2(1 + n).
            cost = cost + math.log(2) * batch.values[:, self.iterations, None]
        return cost

    def cost_shares(self, batch: GraphBatch) -> Tensor:
        """float32[N]: each node's share of its program's costs; 0 everywhere without ``costs``."""
        if not self.config.costs:
            return torch.zeros(len(batch.node_type))
        edge_index, relation, _ = self._edges(batch)
        x = self._convolve(0, self._encode(batch), edge_index, relation)
        shares: Tensor = softmax(self._node_costs(x, batch), batch.graph, num_nodes=batch.size).mean(dim=1)
        return shares

    def _encode(self, batch: GraphBatch) -> Tensor:
        x = torch.cat([self.type_vectors[batch.node_type], (batch.values - self.mean) / self.std], dim=1)
        encoded: Tensor = self.encoder(x)
        return encoded

    def _convolve(self, layer: int, x: Tensor, edge_index: Tensor, relation: Tensor) -> Tensor:
        if self.config.conv == "graph":
            convolved: Tensor = torch.relu(self.convs[layer](x, edge_index))
            return convolved
        normed: Tensor = self.norms[layer](self.convs[layer](x, edge_index, relation))
        return torch.relu(normed) + x

    def _edges(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The edges in both directions; a reversed edge's relation is a relation of its own."""
        edge_index, relation = batch.edge_index, batch.relation
        if self.config.conv == "graph":
            tree = relation == Relation.CHILD
            edge_index, relation = edge_index[:, tree], relation[tree]
        return (
            torch.cat([edge_index, edge_index.flip(0)], dim=1),
            torch.cat([relation, relation + len(Relation)]),
            batch.graph,
        )

    def _read(self, x: Tensor, graph: Tensor, size: int) -> Tensor:
        parts = [global_max_pool(x, graph, size), global_mean_pool(x, graph, size)]
        if self.config.total:
            # Scaled to the size of the other two for a usual statement graph of 64 nodes.
            parts.append(global_add_pool(x, graph, size) / 64)
        return torch.cat(parts, dim=1)
