"""Checkpoints: all that a trained model of programs is, in one file."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.buffer_stores import row_width
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.values import COLUMN
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees
from tvm_gnn_cost.models.topk_gnn import TopKGNNConfig, check_weights
from tvm_gnn_cost.scoring.calibration import Calibration
from tvm_gnn_cost.scoring.tensor_file import check_finite, read_tensors, with_prefix, write_tensors
from tvm_gnn_cost.typed_json import from_json

#: Increased whenever this code would misread the files of an older version.
FORMAT_VERSION = 4

#: What the names of a checkpoint's tensors begin with, but for the trees'.
_PARTS = ("model.", "vectors.", "extra.")

#: What every file of this format says: scores depend on a program alone.
_NO_CONTEXT = {"context": "none"}

_SHIPPED = Path(__file__).parent.parent / "checkpoints"

#: The checkpoints that the package ships, for MetaSchedule and for ``auto_scheduler``.
DEFAULT, DEFAULT_AUTO_SCHEDULER = _SHIPPED / "default.safetensors", _SHIPPED / "auto-scheduler.safetensors"


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
        value_names: The node features that the model reads, in the order of its inputs.
        vectors: FastText vectors of node types.
        state: The module's state dict: the weights, and the mean and deviation of the node features.
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
        targets = self.card.get("targets", ())
        schedulers = {"meta-schedule" if target.startswith("{") else "auto-scheduler" for target in targets}
        return schedulers.pop() if len(schedulers) == 1 else None

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint atomically, as safetensors with a JSON header."""
        arrays, vector_info = self.vectors.to_arrays()
        tensors = {f"model.{name}": tensor for name, tensor in self.state.items()}
        tensors |= {f"vectors.{name}": torch.from_numpy(array) for name, array in arrays.items()}
        tensors |= {f"extra.{name}": tensor for name, tensor in self.extra.items()}
        info = {
            "version": FORMAT_VERSION,
            "config": asdict(self.config) | _NO_CONTEXT,
            "value_names": self.value_names,
            "vectors": vector_info,
            "calibration": self.calibration,
            "card": self.card,
            "extra": self.extra_info,
        }
        if self.trees is not None:
            tensors["trees"], info["trees_scale"] = self.trees.to_tensor(), self.trees.scale
        write_tensors(Path(path), tensors, info)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Checkpoint:
        """Reads a checkpoint.

        Raises:
            InputError: the file is missing or damaged, is not a checkpoint, or has another version.
        """
        path = Path(path)
        tensors, info = read_tensors(path, "tvm-gnn-cost train")
        if info.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{path}: checkpoint format {info.get('version')}, and this version of tvm-gnn-cost reads "
                f"{FORMAT_VERSION}; train it again or install the version that wrote it"
            )
        try:
            config = info.get("config")
            if isinstance(config, dict) and config.pop("context", "none") != "none":
                raise InputError("it was trained with a population context, which this version does not have")
            header = from_json(_Header, info)
            from_json(_CardsData, {name: header.card[name] for name in ("networks", "targets") if name in header.card})
            if len(header.calibration) != 2:
                raise InputError("the field 'calibration' is not two numbers")
            for name in ("calibration", "trees_scale"):
                if not np.isfinite(getattr(header, name)).all():
                    raise InputError(f"the field '{name}' is infinite")
            columns_of(header.value_names, "it")
            state, extra = with_prefix(tensors, "model."), with_prefix(tensors, "extra.")
            check_weights(header.config, header.value_names, state)
            unknown = [name for name in tensors if not name.startswith(_PARTS) and name != "trees"]
            if unknown:
                raise InputError(f"the tensor '{unknown[0]}' is unknown")
            # A node feature that never varied has an infinite deviation, a failed program an infinite latency.
            finite = (name for name in tensors if not name.startswith("extra.buffer.") and not name.endswith(".std"))
            check_finite({name: tensors[name] for name in finite})
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


def columns_of(value_names: tuple[str, ...], reader: str) -> npt.NDArray[np.int64]:
    """The columns of the node features with these names.

    Raises:
        InputError: this version has no such node feature.
    """
    missing = [name for name in value_names if name not in COLUMN]
    if missing:
        raise InputError(f"{reader} reads the node feature '{missing[0]}', which is not extracted any more")
    return np.array([COLUMN[name] for name in value_names], dtype=np.int64)
