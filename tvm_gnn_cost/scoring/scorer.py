"""Scores program graphs with a checkpoint's network and trees, and says where they see a program's cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.batch import GraphBatch, make_batch
from tvm_gnn_cost.graphs.buffer_stores import BufferStores, buffer_stores
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees
from tvm_gnn_cost.models.topk_gnn import Embedded, TopKGNN
from tvm_gnn_cost.scoring.checkpoint import Checkpoint, columns_of

Scores = npt.NDArray[np.float64]

#: Weight of the network in the mean of its score and the trees'; they are the better part (``benchmarks/LOG.md``).
NETWORK_SHARE = 1 / 3


def _mean(trees: Scores, network: Scores) -> Scores:
    """The weighted mean of both scores; minus infinity where the network's is."""
    return (1 - NETWORK_SHARE) * trees + NETWORK_SHARE * network


class NodeViews(NamedTuple):
    """What a model says of N nodes.

    Attributes:
        share: float64[N], share of the node in the cost that the network predicts for its program.
        kept: int64[N], how many of the network's poolings keep the node.
        trees: float64[N], what the trees add to the score for a store; NaN for other nodes, and without trees.
    """

    share: Scores
    kept: npt.NDArray[np.int64]
    trees: Scores


class Scorer:
    """Scores program graphs with a checkpoint's model.

    Args:
        checkpoint: The model.
        device: The device that computes.

    Raises:
        InputError: the checkpoint reads a node value that this version does not extract, or its weights or node type
            vectors do not fit its architecture.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.config, self.vectors, self.device = checkpoint.config, checkpoint.vectors, torch.device(device)
        self.calibration, self.trees = checkpoint.calibration, checkpoint.trees
        if self.vectors.dim != self.config.type_dim:
            raise InputError(
                f"{checkpoint} has node type vectors of length {self.vectors.dim}, and its architecture reads "
                f"{self.config.type_dim}; train it again"
            )
        self.columns = columns_of(checkpoint.value_names, str(checkpoint))
        zeros = torch.zeros(len(self.columns))
        try:
            # Drawing the initial weights, which are replaced at once, must not advance the caller's generator.
            with torch.random.fork_rng(devices=[]):
                self.model = TopKGNN(self.config, zeros, zeros + 1)
            self.model.load_state_dict(checkpoint.state)
        except (RuntimeError, InputError) as error:
            raise InputError(f"{checkpoint}: the weights do not fit the architecture: {error}") from error
        self.model.to(self.device).eval()

    def batch(self, graphs: ProgramGraphs) -> GraphBatch:
        """A batch of the given graphs, on the CPU; see :func:`~tvm_gnn_cost.graphs.batch.make_batch`.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        if graphs.detail != self.config.detail:
            raise InputError(
                f"the model reads graphs of detail '{self.config.detail}', these are of detail '{graphs.detail}'; "
                f"extract them with detail '{self.config.detail}'"
            )
        return make_batch(graphs, self.vectors, self.columns)

    def score(
        self,
        graphs: ProgramGraphs,
        task: npt.NDArray[Any] | None = None,
        graphs_at_once: int = 256,
        correction: BufferStoreTrees | None = None,
    ) -> Scores:
        """Scores G graphs: float64[G], logits, higher is faster; minus infinity for a graph without nodes.

        Args:
            graphs: The graphs.
            task: int[G], the task of each; by default they are candidates of one task. The candidates of a task are
                compared with each other.
            graphs_at_once: Largest number of graphs in a batch.
            correction: Trees whose scores are added.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        scores = self._network_scores(graphs, task, graphs_at_once)
        if self.trees is None and correction is None:
            return scores
        stores = self.buffer_stores(graphs)
        if self.trees is not None:
            scores = _mean(self.trees.score(stores), scores)
        return scores if correction is None else scores + correction.score(stores)

    def score_shortlist(self, graphs: ProgramGraphs, count: int, correction: BufferStoreTrees | None = None) -> Scores:
        """Scores G candidates of one task like :meth:`score`, but the network sees only those that the trees rank best.

        The scores of the others are the trees', shifted by what the network changes on average, so that all compare.

        Args:
            graphs: The graphs.
            count: The network sees so many, and all where there are fewer or no trees.
            correction: Trees whose scores are added, also in the ranking for the network.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        if self.trees is None or len(graphs) <= count:
            return self.score(graphs, correction=correction)
        stores = self.buffer_stores(graphs)
        scores = np.where(graphs.node_counts > 0, self.trees.score(stores), -np.inf)
        added = np.zeros(len(graphs)) if correction is None else correction.score(stores)
        listed = np.sort(np.argpartition(-(scores + added), count)[:count])
        both = _mean(scores[listed], self._network_scores(graphs.select(listed)))
        changed = (both - scores[listed])[np.isfinite(both)]
        scores += changed.mean() if len(changed) else 0.0
        scores[listed] = both
        return scores + added

    def _network_scores(
        self, graphs: ProgramGraphs, task: npt.NDArray[Any] | None = None, graphs_at_once: int = 256
    ) -> Scores:
        """The network's part of :meth:`score`."""
        scores = np.full(len(graphs), -np.inf)
        if not len(graphs):
            return scores
        with torch.inference_mode():
            chunks = [
                graphs.select(np.arange(start, min(len(graphs), start + graphs_at_once)))
                for start in range(0, len(graphs), graphs_at_once)
            ]
            embedded = [self.model.embed(self.batch(chunk).to(self.device)) for chunk in chunks]
            joined = [None if parts[0] is None else torch.cat(parts) for parts in zip(*embedded, strict=True)]
            numbers = np.zeros(len(graphs), np.int64) if task is None else task
            # One task at a time, as a search scores: the last bit of a product depends on its number of rows.
            for number in np.unique(numbers).tolist():
                rows = np.flatnonzero((numbers == number) & (graphs.node_counts > 0))
                members = torch.from_numpy(rows).to(self.device)
                embedded_task = Embedded._make(None if part is None else part[members] for part in joined)
                scores[rows] = self.model.score(embedded_task).double().cpu().numpy()
        return scores

    def tree_scores(self, graphs: ProgramGraphs) -> Scores:
        """The trees' scores of G graphs: float64[G]; there must be trees."""
        assert self.trees is not None
        return self.trees.score(self.buffer_stores(graphs))

    def buffer_stores(self, graphs: ProgramGraphs) -> BufferStores:
        """The buffer stores of graphs as the trees read them."""
        return buffer_stores(graphs, self.columns)

    def store_shares(self, graphs: ProgramGraphs) -> list[Scores]:
        """For each graph the share of the program's cost at each of its stores: float64[stores], in [0, 1]."""
        if "BufferStore" not in graphs.type_names or not len(graphs.node_type):
            return [np.zeros(0)] * len(graphs)
        with torch.inference_mode():
            shares = self.model.cost_shares(self.batch(graphs).to(self.device)).double().cpu().numpy()
        is_store = graphs.node_type == graphs.type_names.index("BufferStore")
        return [
            shares[begin:end][is_store[begin:end]]
            for begin, end in zip(graphs.node_offsets[:-1], graphs.node_offsets[1:], strict=True)
        ]

    def nodes(self, graphs: ProgramGraphs) -> NodeViews:
        """What the model says of each of the N nodes of some graphs."""
        trees = np.full(len(graphs.node_type), np.nan)
        if not len(trees):
            return NodeViews(np.zeros(0), np.zeros(0, np.int64), trees)
        batch = self.batch(graphs).to(self.device)
        with torch.inference_mode():
            share, kept = self.model.cost_shares(batch), self.model.kept(batch)
        if self.trees is not None and "BufferStore" in graphs.type_names:
            is_store = graphs.node_type == graphs.type_names.index("BufferStore")
            trees[is_store] = self.trees.of_each(self.buffer_stores(graphs))
        return NodeViews(share.double().cpu().numpy(), kept.cpu().numpy(), trees)

    def throughput(self, scores: Scores) -> Scores:
        """Predicted throughput of scores, relative to the task's best program: float64[G] in [0, 1]."""
        scale, shift = self.calibration
        result: Scores = expit(scale * scores + shift)
        return result


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits PyTorch to one thread where other processes are busy: it waits for its threads longer than they help."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
