"""The graph neural network with TopK pooling: it maps a batch of program graphs to one score for each program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, TopKPooling, global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.utils import softmax

from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.graphs.program_graph import Detail, Relation
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.relational_conv import RelationalConv

#: Far above the channels and layers of any model of programs.
_WIDEST = 65_536


@dataclass(frozen=True)
class TopKGNNConfig:
    """Architecture of a :class:`TopKGNN`.

    Attributes:
        detail: Detail of the graphs that it reads: ``tree`` (all nodes) or ``statements`` (no index arithmetic).
        groups: Groups of node features that it reads (``graphs.values``).
        type_dim: Length of a node type's FastText vector.
        hidden: Number of channels of each convolution.
        layers: Number of convolutions, each followed by TopK pooling.
        ratio: Share of the nodes that each pooling keeps.
        conv: ``graph`` is GraphConv over the undirected tree (TPGNN); ``relational`` has a weight matrix for each
            relation and direction (RGCN, Schlichtkrull et al. 2017, arXiv:1703.06103).
        head: Channels of the hidden layers of the perceptron that computes the score.
        encode: Whether a perceptron encodes type vector and values before the first convolution.
        total: Whether each readout also has the sum over the nodes, because costs of statements add up.
        costs: Number of kinds of cost that the model estimates for each node and sums over the program; 0 for none. See
            :meth:`TopKGNN.log_costs`.
        stores: Whether a score also has the sum of a number that the model estimates for each store of the program.
        dropout: Dropout of the head.
    """

    detail: Detail = "statements"
    groups: tuple[str, ...] = ("constant", "dtype", "loop", "access", "work", "target", "gpu")
    type_dim: int = 16
    hidden: int = 64
    layers: int = 2
    ratio: float = 0.8
    conv: Literal["graph", "relational"] = "relational"
    head: tuple[int, ...] = (128, 64)
    encode: bool = True
    total: bool = True
    costs: int = 8
    stores: bool = True
    dropout: float = 0.1

    def __post_init__(self) -> None:
        """Refuses what torch could not build, or only some of it."""
        for name, least in (("type_dim", 1), ("hidden", 1), ("layers", 1), ("costs", 0)):
            check_range(name, getattr(self, name), least, _WIDEST)
        for size in self.head:
            check_range("a size of head", size, 1, _WIDEST)
        check_range("ratio", self.ratio, 1e-6, 1)
        check_range("dropout", self.dropout, 0, 0.999)


#: TPGNN as published: 18 + 2 inputs for each node, undirected tree, 3 x (GraphConv 128, TopK 0.8), max and mean
#: readout, perceptron 256-128-64-1.
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
    stores=False,
    dropout=0.0,
)

PRESETS: dict[str, TopKGNNConfig] = {"gnn": TopKGNNConfig(), "tpgnn": TPGNN}


class Embedded(NamedTuple):
    """What the scores of G graphs are made of.

    Attributes:
        readout: float32[G, W].
        costs: float32[G, costs], see :meth:`TopKGNN.log_costs`; None for a model without.
        stores: float32[G], the sum over the stores of each; None for a model without.
    """

    readout: Tensor
    costs: Tensor | None
    stores: Tensor | None


class TopKGNN(nn.Module):
    """Scores programs; a higher score means faster.

    Up to a scale and a shift (``scoring.calibration``), a score is the logit of the throughput relative to the task's
    best program.

    Args:
        config: The architecture.
        mean: float32[V], mean of each node feature over the training nodes.
        std: float32[V], standard deviation of each node feature.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: TopKGNNConfig, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.config = config
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
            # The initial weights already say that a program with higher costs is slower.
            self.slower = nn.Linear(config.costs, 1)
            nn.init.constant_(self.slower.weight, -1 / config.costs)
            nn.init.zeros_(self.slower.bias)
            self.latency = nn.Linear(config.costs, 1)
            nn.init.constant_(self.latency.weight, 1 / config.costs)
        if config.stores:
            hidden = config.hidden
            self.store = nn.Sequential(
                nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(2 * hidden, 1)
            )
        names = [VALUES[column][0] for column in columns(config.groups)]
        self.iterations, self.is_store = (
            names.index(name) if name in names else None for name in ("iterations", "is_store")
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Scores the graphs of a batch: float32[G]."""
        return self.score_and_latency(batch)[0]

    def score_and_latency(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Scores and natural logarithms of latencies in milliseconds: float32[G] each; no latency without ``costs``.

        Training also fits the latency, on the machine that measured. Unlike scores, latencies compare programs of
        different tasks, so that the costs of statements are learned from every measurement.
        """
        embedded = self.embed(batch)
        latency = None if embedded.costs is None else self.latency(embedded.costs).squeeze(1)
        return self.score(embedded), latency

    def embed(self, batch: GraphBatch) -> Embedded:
        """What the score of each graph is made of."""
        x = self._encode(batch)
        edge_index, edge_type, graph = self._edges(batch)
        readouts: list[Tensor] = []
        costs = stores = None
        for layer, pool in enumerate(self.pools):
            x = self._convolve(layer, x, edge_index, edge_type)
            # Pooling leaves nodes out: what adds up over the program is read before it.
            if layer == 0:
                costs = self.log_costs(x, batch) if self.config.costs else None
                stores = self._sum_of_stores(x, batch) if self.config.stores else None
            x, edge_index, edge_type, graph, _, _ = pool(x, edge_index, edge_type, graph)
            readouts.append(self._read(x, graph, batch.num_graphs))
        return Embedded(torch.stack(readouts).sum(dim=0), costs, stores)

    def score(self, embedded: Embedded) -> Tensor:
        """Scores what :meth:`embed` gave: float32[G].

        Args:
            embedded: Of G graphs.
        """
        readout, costs, stores = embedded
        x = readout if costs is None else torch.cat([readout, costs], dim=1)
        score: Tensor = self.head(x)
        if costs is not None:
            score = score + self.slower(costs)
        return score.squeeze(1) if stores is None else score.squeeze(1) + stores

    def log_costs(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Logarithms of the costs of each program, shifted and scaled to be near zero: float32[G, costs].

        A program's cost is the sum over its nodes of the number of iterations times the cost of one iteration. The
        number of iterations is a node feature; the model estimates the logarithm of the other factor.

        Args:
            x: float32[N, hidden], the nodes' channels after the first convolution.
            batch: The batch.
        """
        cost = self._node_costs(x, batch)
        # Subtract each graph's largest cost, so that exp() cannot overflow. A graph without nodes costs nothing.
        largest = global_max_pool(cost, batch.batch, batch.num_graphs).detach()
        total = global_add_pool(torch.exp(cost - largest[batch.batch]), batch.batch, batch.num_graphs)
        # A program of about 1 ms has some exp(12) iterations; 4 is about the deviation over programs.
        logarithm: Tensor = (torch.log(total + 1e-9) + largest - 12) / 4
        return logarithm

    def _node_costs(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Logarithms of the costs of each node: float32[N, costs]."""
        cost: Tensor = self.cost(x)
        if self.iterations is not None:
            # Stored as log2(1 + n).
            cost = cost + math.log(2) * batch.x[:, self.iterations, None]
        return cost

    def _sum_of_stores(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """The sum of what each store adds to its program's score: float32[G]; of all nodes if it can't tell stores.

        Args:
            x: float32[N, hidden], the nodes' channels after the first convolution.
            batch: The batch.
        """
        graph = batch.batch
        if self.is_store is not None:
            is_store = batch.x[:, self.is_store] > 0
            x, graph = x[is_store], graph[is_store]
        added: Tensor = global_add_pool(self.store(x).squeeze(1), graph, batch.num_graphs)
        return added

    def cost_shares(self, batch: GraphBatch) -> Tensor:
        """Share of each node in its program's costs: float32[N]; all zero without ``costs``."""
        if not self.config.costs:
            return batch.x.new_zeros(len(batch.node_type))
        edge_index, edge_type, _ = self._edges(batch)
        x = self._convolve(0, self._encode(batch), edge_index, edge_type)
        shares: Tensor = softmax(self._node_costs(x, batch), batch.batch, num_nodes=batch.num_graphs).mean(dim=1)
        return shares

    def kept(self, batch: GraphBatch) -> Tensor:
        """How many of the poolings keep each node: int64[N]."""
        x = self._encode(batch)
        edge_index, edge_type, graph = self._edges(batch)
        node = torch.arange(len(x), device=x.device)
        found = torch.zeros_like(node)
        for layer, pool in enumerate(self.pools):
            x = self._convolve(layer, x, edge_index, edge_type)
            x, edge_index, edge_type, graph, stays, _ = pool(x, edge_index, edge_type, graph)
            node = node[stays]
            found[node] += 1
        return found

    def _encode(self, batch: GraphBatch) -> Tensor:
        x = torch.cat([batch.type_vectors[batch.node_type], (batch.x - self.mean) / self.std], dim=1)
        encoded: Tensor = self.encoder(x)
        return encoded

    def _convolve(self, layer: int, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        if self.config.conv == "graph":
            convolved: Tensor = torch.relu(self.convs[layer](x, edge_index))
            return convolved
        normed: Tensor = self.norms[layer](self.convs[layer](x, edge_index, edge_type))
        return torch.relu(normed) + x

    def _edges(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Edges in both directions, their relations and the nodes' graphs; a reversed edge has another relation."""
        edge_index, edge_type = batch.edge_index, batch.edge_type
        if self.config.conv == "graph":
            tree = edge_type == Relation.CHILD
            edge_index, edge_type = edge_index[:, tree], edge_type[tree]
        return (
            torch.cat([edge_index, edge_index.flip(0)], dim=1),
            torch.cat([edge_type, edge_type + len(Relation)]),
            batch.batch,
        )

    def _read(self, x: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        parts = [global_max_pool(x, batch, num_graphs), global_mean_pool(x, batch, num_graphs)]
        if self.config.total:
            # A usual statement graph has 64 nodes: this gives the sum the size of the other two.
            parts.append(global_add_pool(x, batch, num_graphs) / 64)
        return torch.cat(parts, dim=1)


def check_weights(config: TopKGNNConfig, value_names: tuple[str, ...], state: Mapping[str, Tensor]) -> None:
    """Refuses weights that are not those of an architecture, without building it: a file can claim any size.

    Args:
        config: The architecture.
        value_names: The node features that it reads, in order.
        state: Its weights by name.

    Raises:
        InputError: the names of the node features, or the names, shapes or types of the weights, are others.
    """
    names = [VALUES[column][0] for column in columns(config.groups)]
    if list(value_names) != names:
        other = sorted(set(value_names) ^ set(names)) or ["their order"]
        raise InputError(f"its node features are not those of its groups (differing in {', '.join(other[:3])})")
    claimed = config.layers + len(config.head)
    if claimed > len(state):
        raise InputError(f"the weights do not fit the architecture: {len(state)} tensors for {claimed} layers")
    with torch.device("meta"):  # shapes alone, no memory
        zeros = torch.zeros(len(names))
        wanted = TopKGNN(config, zeros, zeros).state_dict()
    missing, unknown = wanted.keys() - state.keys(), state.keys() - wanted.keys()
    if missing or unknown:
        what = f"no tensor '{min(missing)}'" if missing else f"an unknown tensor '{min(unknown)}'"
        raise InputError(f"the weights do not fit the architecture: {what}")
    for name, tensor in wanted.items():
        if (state[name].shape, state[name].dtype) != (tensor.shape, tensor.dtype):
            raise InputError(
                f"the weights do not fit the architecture: '{name}' is {state[name].dtype}{list(state[name].shape)}, "
                f"not {tensor.dtype}{list(tensor.shape)}"
            )
    if not bool((state["std"] > 0).all()):
        raise InputError("a deviation of its node features is not positive")
