"""Checkpoints: a trained model of programs in one file, and a scorer that runs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.batch import GraphBatch, make_batch
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores, row_width
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees
from tvm_gnn_cost.models.topk_gnn import Embedded, TopKGNN, TopKGNNConfig, check_weights
from tvm_gnn_cost.scoring.calibration import Calibration
from tvm_gnn_cost.scoring.tensor_file import check_finite, read_tensors, with_prefix, write_tensors
from tvm_gnn_cost.typed_json import from_json

#: Increased whenever this code would misread the files of an older version.
FORMAT_VERSION = 4

_Scores = TypeVar("_Scores", Tensor, npt.NDArray[np.float64])

#: Weight of the network in the mean of its score and the trees'; they are the better part (``benchmarks/LOG.md``).
NETWORK_SHARE = 1 / 3

#: What the names of a checkpoint's tensors begin with, but for the trees'.
_PARTS = ("model.", "vectors.", "extra.")

#: The checkpoints that the package ships, for MetaSchedule and for ``auto_scheduler``.
DEFAULT = Path(__file__).parent.parent / "checkpoints" / "default.safetensors"
DEFAULT_AUTO_SCHEDULER = DEFAULT.with_name("auto-scheduler.safetensors")


@dataclass(frozen=True)
class _Header:
    """The JSON of a checkpoint."""

    version: int
    config: TopKGNNConfig
    value_names: tuple[str, ...]
    vectors: dict[str, Any]
    calibration: tuple[float, ...]
    card: dict[str, Any]
    extra: dict[str, Any]
    trees_scale: float = 1.0


@dataclass(frozen=True)
class _CardsData:
    """What a card says of the training data."""

    networks: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass
class Checkpoint:
    """A model with everything that scoring programs and further training need.

    Attributes:
        config: The architecture.
        value_names: The node values that the model reads, in the order of its inputs.
        vectors: FastText vectors of node types.
        state: The module's state dict: the weights, and the mean and deviation of the node values.
        trees: Boosted trees; a program's score is a mean of theirs and the network's. None for the network alone.
        calibration: Scale and shift that turn a score into a relative throughput.
        card: The training data, settings and result, as JSON.
        extra: Further tensors, such as a cost model's replay buffer.
        extra_info: JSON that describes them.
        source: The file that it was read from, for error messages; not saved.
    """

    config: TopKGNNConfig
    value_names: tuple[str, ...]
    vectors: NodeTypeVectors
    state: dict[str, Tensor]
    trees: BufferStoreTrees | None = None
    calibration: Calibration = (1.0, 0.0)
    card: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)
    extra_info: dict[str, Any] = field(default_factory=dict)
    source: Path | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return str(self.source or "the checkpoint")

    @property
    def scheduler(self) -> str | None:
        """The scheduler whose programs it was trained on, told by their targets: JSON for MetaSchedule, else options.

        None if the card names no target, or targets of both.
        """
        found = {"meta-schedule" if target.startswith("{") else "auto-scheduler" for target in self._targets}
        return found.pop() if len(found) == 1 else None

    @property
    def _targets(self) -> tuple[str, ...]:
        return tuple(self.card.get("targets", ()))

    def check_scheduler(self, scheduler: str) -> None:
        """Refuses to score the programs of a scheduler with a model of the other one's.

        Raises:
            InputError: the model was trained on programs of the other scheduler alone.
        """
        if self.scheduler not in (None, scheduler):
            raise InputError(
                f"{self} was trained on programs of {self.scheduler}, and these are of {scheduler}; "
                "use a cost model of the same scheduler"
            )

    def save(self, path: Path) -> None:
        """Writes a checkpoint atomically, as safetensors with a JSON header."""
        arrays, vector_info = self.vectors.to_arrays()
        tensors = {f"model.{name}": tensor for name, tensor in self.state.items()}
        tensors |= {f"vectors.{name}": torch.from_numpy(array) for name, array in arrays.items()}
        tensors |= {f"extra.{name}": tensor for name, tensor in self.extra.items()}
        info = {
            "version": FORMAT_VERSION,
            "config": asdict(self.config),
            "value_names": self.value_names,
            "vectors": vector_info,
            "calibration": self.calibration,
            "card": self.card,
            "extra": self.extra_info,
        }
        if self.trees is not None:
            tensors["trees"], info["trees_scale"] = self.trees.to_tensor(), self.trees.scale
        write_tensors(path, tensors, info)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Reads a checkpoint.

        Raises:
            InputError: the file is missing or damaged, is not a checkpoint, or has another version.
        """
        tensors, info = read_tensors(path, "tvm-gnn-cost train")
        if info.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{path}: checkpoint format {info.get('version')}, and this version of tvm-gnn-cost reads "
                f"{FORMAT_VERSION}; train it again or install the version that wrote it"
            )
        try:
            header = from_json(_Header, info)
            from_json(_CardsData, {name: header.card[name] for name in ("networks", "targets") if name in header.card})
            if len(header.calibration) != 2:
                raise InputError("the field 'calibration' is not two numbers")
            for name in ("calibration", "trees_scale"):
                if not np.isfinite(getattr(header, name)).all():
                    raise InputError(f"the field '{name}' is infinite")
            _columns(header.value_names, "it")
            state, extra = with_prefix(tensors, "model."), with_prefix(tensors, "extra.")
            check_weights(header.config, header.value_names, state)
            unknown = [name for name in tensors if not name.startswith(_PARTS) and name != "trees"]
            if unknown:
                raise InputError(f"the tensor '{unknown[0]}' is unknown")
            # A node value that never varied has an infinite deviation, a failed program an infinite latency.
            own = (name for name in tensors if not name.startswith("extra.buffer.") and not name.endswith(".std"))
            check_finite({name: tensors[name] for name in own})
            arrays = {name: tensor.numpy() for name, tensor in with_prefix(tensors, "vectors.").items()}
            vectors = NodeTypeVectors.from_arrays(arrays, header.vectors)
            trees = None
            if "trees" in tensors:
                width = row_width(len(header.value_names))
                trees = BufferStoreTrees.from_tensor(tensors["trees"], header.trees_scale, width)
        except InputError as error:
            raise InputError(f"{path}: the checkpoint is damaged: {error}") from error
        return Checkpoint(
            header.config,
            header.value_names,
            vectors,
            state,
            trees,
            (header.calibration[0], header.calibration[1]),
            header.card,
            extra,
            header.extra,
            path,
        )


def _columns(value_names: tuple[str, ...], reader: str) -> npt.NDArray[np.int64]:
    """The columns of the node values with these names.

    Raises:
        InputError: this version has no such node value.
    """
    known = {name: i for i, (name, _) in enumerate(VALUES)}
    missing = [name for name in value_names if name not in known]
    if missing:
        raise InputError(f"{reader} reads the node value '{missing[0]}', which is not extracted any more")
    return np.array([known[name] for name in value_names], dtype=np.int64)


def _mean(trees: _Scores, network: _Scores) -> _Scores:
    """The weighted mean of both scores; minus infinity where the network's is."""
    return (1 - NETWORK_SHARE) * trees + NETWORK_SHARE * network


class NodeViews(NamedTuple):
    """What a model says of N nodes.

    Attributes:
        share: float64[N], share of the node in the cost that the network predicts for its program.
        kept: int64[N], how many of the network's poolings keep the node.
        trees: float64[N], what the trees add to the score for a store; NaN for other nodes, and without trees.
    """

    share: npt.NDArray[np.float64]
    kept: npt.NDArray[np.int64]
    trees: npt.NDArray[np.float64]


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
        self.columns = _columns(checkpoint.value_names, str(checkpoint))
        zeros = torch.zeros(len(self.columns))
        try:
            # Drawing the initial weights, which are replaced at once, must not advance the caller's generator.
            with torch.random.fork_rng(devices=[]):
                self.model = TopKGNN(self.config, zeros, zeros + 1)
            self.model.load_state_dict(checkpoint.state)
        except (RuntimeError, InputError) as error:
            raise InputError(f"{checkpoint}: the weights do not fit the architecture: {error}") from error
        self.model.to(self.device).eval()

    def batch(self, graphs: ProgramGraphs, population: npt.NDArray[np.int64] | None = None) -> GraphBatch:
        """A batch of the given graphs, on the CPU; see :func:`~tvm_gnn_cost.graphs.batch.make_batch`.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        if graphs.detail != self.config.detail:
            raise InputError(
                f"the model reads graphs of detail '{self.config.detail}', these are of detail '{graphs.detail}'; "
                f"extract them with --detail {self.config.detail}"
            )
        return make_batch(graphs, self.vectors, self.columns, population)

    def score(
        self, graphs: ProgramGraphs, task: npt.NDArray[Any] | None = None, graphs_at_once: int = 256
    ) -> npt.NDArray[np.float64]:
        """Scores G graphs: float64[G], logits, higher is faster; minus infinity for a graph without nodes.

        Args:
            graphs: The graphs.
            task: int[G], the task of each; by default they are candidates of one task. The candidates of a task are
                compared with each other.
            graphs_at_once: Largest number of graphs in a batch.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        scores = self._network_scores(graphs, task, graphs_at_once)
        return self.with_trees(torch.from_numpy(scores), graphs).numpy()

    def score_shortlist(self, graphs: ProgramGraphs, count: int) -> npt.NDArray[np.float64]:
        """Scores G candidates of one task like :meth:`score`, but the network sees only those that the trees rank best.

        The scores of the others are the trees', shifted by what the network changes on average, so that all compare.

        Args:
            graphs: The graphs.
            count: The network sees so many, and all where there are fewer or no trees.

        Raises:
            InputError: the graphs have another detail than the model reads.
        """
        if self.trees is None or len(graphs) <= count:
            return self.score(graphs)
        scores = np.where(graphs.node_counts > 0, self.tree_scores(graphs), -np.inf)
        listed = np.sort(np.argpartition(-scores, count)[:count])
        both = _mean(scores[listed], self._network_scores(graphs.select(listed)))
        changed = (both - scores[listed])[np.isfinite(both)]
        scores += changed.mean() if len(changed) else 0.0
        scores[listed] = both
        return scores

    def _network_scores(
        self, graphs: ProgramGraphs, task: npt.NDArray[Any] | None = None, graphs_at_once: int = 256
    ) -> npt.NDArray[np.float64]:
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
            for number in np.unique(numbers).tolist():
                rows = np.flatnonzero((numbers == number) & (graphs.node_counts > 0))
                own = torch.from_numpy(rows).to(self.device)
                one = own.new_zeros(len(rows))
                some = Embedded._make(None if part is None else part[own] for part in joined)
                found = self.model.score(some, one)
                scores[rows] = found.double().cpu().numpy()
        return scores

    def with_trees(self, scores: Tensor, graphs: ProgramGraphs) -> Tensor:
        """The mean of G network scores and the trees' scores: float[G]; the network's scores alone without trees."""
        return scores if self.trees is None else _mean(torch.from_numpy(self.tree_scores(graphs)).to(scores), scores)

    def tree_scores(self, graphs: ProgramGraphs) -> npt.NDArray[np.float64]:
        """The trees' scores of G graphs: float64[G]; there must be trees."""
        assert self.trees is not None
        return self.trees.score(buffer_stores(graphs, self.columns))

    def store_shares(self, graphs: ProgramGraphs) -> list[npt.NDArray[np.float64]]:
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
            trees[is_store] = self.trees.of_each(buffer_stores(graphs, self.columns))
        return NodeViews(share.double().cpu().numpy(), kept.cpu().numpy(), trees)

    def throughput(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Predicted throughput of scores, relative to the task's best program: float64[G] in [0, 1]."""
        scale, shift = self.calibration
        result: npt.NDArray[np.float64] = expit(scale * scores + shift)
        return result


def checkpoint_named(cost_model: str) -> str | None:
    """Path of a cost model's checkpoint: None, which means the shipped one, for ``gnn``, else the path itself.

    Raises:
        InputError: there is no such file.
    """
    if cost_model == "gnn":
        return None
    if not Path(cost_model).is_file():
        raise InputError(f"cost model '{cost_model}': neither gnn, xgb or random nor the path of a checkpoint file")
    return cost_model
