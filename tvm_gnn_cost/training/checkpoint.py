"""A trained model of programs in one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor

from tvm_gnn_cost.graphs.batch import GraphBatch, make_batch
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.models.topk_gnn import TopKGNN, TopKGNNConfig
from tvm_gnn_cost.training.calibration import Calibration
from tvm_gnn_cost.training.tensor_file import part, read_tensors, write_tensors

#: Raised when a file of an older version could not be read right by this code any more.
FORMAT_VERSION = 3

#: The checkpoints that ship with the package, for MetaSchedule and for ``auto_scheduler``.
DEFAULT = Path(__file__).parent.parent / "checkpoints" / "default.safetensors"
DEFAULT_AUTO_SCHEDULER = DEFAULT.with_name("auto-scheduler.safetensors")


@dataclass
class Checkpoint:
    """Everything that is needed to score programs and to go on training.

    Attributes:
        config: The architecture.
        value_names: The node values that the model reads, in its order.
        vectors: FastText vectors of node types.
        state: The module's state dict: weights and the normalisation of the values.
        calibration: What makes a throughput of a score.
        card: What it was trained on and how; JSON-able.
        extra: Further tensors, such as a cost model's replay buffer.
        extra_info: What describes them; JSON-able.
    """

    config: TopKGNNConfig
    value_names: tuple[str, ...]
    vectors: NodeTypeVectors
    state: dict[str, Tensor]
    calibration: Calibration = (1.0, 0.0)
    card: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)
    extra_info: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes the file; whoever reads it meanwhile sees the old one or the new one, never a part."""
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
        write_tensors(path, tensors, info)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Reads a checkpoint.

        Raises:
            ValueError: the file is missing, is no checkpoint, or is one of another version.
        """
        tensors, info = read_tensors(path, "tvm-gnn-cost train")
        if info.get("version") != FORMAT_VERSION:
            raise ValueError(
                f"{path}: checkpoint format {info.get('version')}, and this version of tvm-gnn-cost reads "
                f"{FORMAT_VERSION}; train it again or install the version that wrote it"
            )

        try:
            known = {f.name for f in fields(TopKGNNConfig)}
            settings: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in info["config"].items() if k in known
            }
            scale, shift = info["calibration"]
            arrays = {name: tensor.numpy() for name, tensor in part(tensors, "vectors.").items()}
            return Checkpoint(
                TopKGNNConfig(**settings),
                tuple(info["value_names"]),
                NodeTypeVectors.from_arrays(arrays, info["vectors"]),
                part(tensors, "model."),
                (scale, shift),
                info["card"],
                part(tensors, "extra."),
                info["extra"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: the checkpoint lacks or misstates the field {error}") from error


class Scorer:
    """A model ready to score program graphs.

    Args:
        checkpoint: Its weights and vocabulary.
        device: Where it runs.

    Raises:
        ValueError: the checkpoint reads a node value that this version does not extract, or its weights do not fit.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.config, self.vectors, self.device = checkpoint.config, checkpoint.vectors, torch.device(device)
        self.calibration = checkpoint.calibration
        known = {name: i for i, (name, _) in enumerate(VALUES)}
        missing = [name for name in checkpoint.value_names if name not in known]
        if missing:
            raise ValueError(f"the checkpoint reads the node value '{missing[0]}', which is not extracted any more")
        self.columns = np.array([known[name] for name in checkpoint.value_names], dtype=np.int64)
        zeros = torch.zeros(len(self.columns))
        with torch.random.fork_rng(devices=[]):  # initial weights, replaced at once, must not cost random numbers
            self.model = TopKGNN(self.config, torch.zeros(0, self.config.type_dim), zeros, zeros + 1)
        try:
            self.model.load_state_dict(checkpoint.state)
        except RuntimeError as error:
            raise ValueError(f"the checkpoint's weights do not fit its architecture: {error}") from error
        self.model.to(self.device).eval()

    def batch(self, graphs: ProgramGraphs) -> GraphBatch:
        """The tensors of the given graphs, and the model set up for their node types.

        Raises:
            ValueError: the graphs have another detail than the model reads.
        """
        if graphs.detail != self.config.detail:
            raise ValueError(
                f"the model reads graphs of detail '{self.config.detail}', these are of detail '{graphs.detail}'; "
                f"extract them with --detail {self.config.detail}"
            )
        self.model.type_vectors = torch.from_numpy(self.vectors.matrix(graphs.type_names)).to(self.device)
        return make_batch(graphs, self.columns).to(self.device)

    def score(self, graphs: ProgramGraphs, graphs_at_once: int = 256) -> npt.NDArray[np.float64]:
        """float64[G]: logits, higher is faster; minus infinity for a graph without nodes."""
        parts = []
        with torch.inference_mode():
            for start in range(0, len(graphs), graphs_at_once):
                part = graphs.select(np.arange(start, min(len(graphs), start + graphs_at_once)))
                parts.append(self.model(self.batch(part)).double().cpu().numpy())
        scores = np.concatenate([*parts, np.zeros(0)])
        return np.where(graphs.node_counts > 0, scores, -np.inf)

    def store_shares(self, graphs: ProgramGraphs) -> list[npt.NDArray[np.float64]]:
        """For each graph the shares of its program's cost that its stores have, in their order: float64[stores]."""
        if "BufferStore" not in graphs.type_names or not len(graphs.node_type):
            return [np.zeros(0)] * len(graphs)
        with torch.inference_mode():
            shares = self.model.cost_shares(self.batch(graphs)).double().cpu().numpy()
        is_store = graphs.node_type == graphs.type_names.index("BufferStore")
        return [
            shares[begin:end][is_store[begin:end]]
            for begin, end in zip(graphs.node_offsets[:-1], graphs.node_offsets[1:], strict=True)
        ]

    def throughput(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """float64[G] in [0, 1], the throughput relative to the task's best program that scores stand for."""
        scale, shift = self.calibration
        result: npt.NDArray[np.float64] = expit(scale * scores + shift)
        return result


def normalisation(graphs: ProgramGraphs, columns: npt.NDArray[np.int64]) -> Mapping[str, Tensor]:
    """Mean and standard deviation of node values, float32[C] each; a value that never varies has deviation 1."""
    values = graphs.values[:, columns].astype(np.float64)
    std = values.std(axis=0)
    return {
        "mean": torch.from_numpy(values.mean(axis=0).astype(np.float32)),
        "std": torch.from_numpy(np.where(std > 1e-6, std, 1.0).astype(np.float32)),
    }
