"""Prepared graphs: what training and ranking read instead of the published files.

A prepared graph is two files. ``NAME.npy`` holds the configurations, packed, and is memory-mapped; ``NAME.npz`` holds
everything else and is written last: where it exists, the graph is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import (
    CONFIGURED_TENSORS,
    LAYOUT_RANK,
    NODE_NUMBERS,
    OPCODE_LIMIT,
    TILE_VALUES,
    Kind,
)
from tvm_gnn_cost.tpugraphs.kernels import KERNEL_FEATURES, Kernels
from tvm_gnn_cost.tpugraphs.preparation.pack import unpack

#: The arrays of an npz file: their types and shapes. A letter is the same size wherever it stands.
_ARRAYS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "kind": ("U", ()),
    "numbers": ("float32", ("n", NODE_NUMBERS)),
    "permutation": ("int8", ("n", LAYOUT_RANK)),
    "opcode": ("int64", ("n",)),
    "edge_index": ("int64", (2, "m")),
    "config_nodes": ("int64", ("k",)),
    "config_rows": ("int64", ("c",)),
    "runtime": ("float64", ("r",)),
    "savings": ("float64", ("s",)),
    "is_pruned": ("bool", ()),
    "kernel_features": ("float32", ("u", KERNEL_FEATURES)),
    "kernels": ("int64", ("z",)),
    "kernel_begins": ("int64", ("b",)),
}


@dataclass(frozen=True)
class PreparedGraph:
    """A graph of n nodes and c configurations, as the models read it.

    Attributes:
        name: The published file's name without its suffix.
        kind: ``layout`` or ``tile``.
        numbers: float32[n, 134], as published; :class:`~tvm_gnn_cost.training.scale.Scale` standardises them.
        permutation: int8[n, 6], the layout of each node's output, minor to major, padded with -1.
        opcode: int64[n].
        edge_index: int64[2, m]; a column (u, v) means that u consumes v's output.
        config_nodes: int64[nc], the nodes that have layouts; empty for tiles.
        config_rows: int64[c], the number of each configuration in the published file.
        runtime: float64[c]: nanoseconds for layouts, a multiple of the default tile's runtime for tiles; None where it
            is secret.
        configs_file: The file of configurations: int32[c, nc, 3] packed layouts or float32[c, 24] tiles.
        is_pruned: Whether nodes were left out; a model ranks graphs that were prepared like those it was trained on.
        kernels: The kernels of each configuration, in the whole graph; None where it was prepared without them.
    """

    name: str
    kind: Kind
    numbers: npt.NDArray[np.float32]
    permutation: npt.NDArray[np.int8]
    opcode: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int64]
    config_nodes: npt.NDArray[np.int64]
    config_rows: npt.NDArray[np.int64]
    runtime: npt.NDArray[np.float64] | None
    configs_file: Path
    is_pruned: bool = True
    kernels: Kernels | None = None

    @property
    def packed(self) -> npt.NDArray[Any]:
        """The content of ``configs_file``, memory-mapped.

        It is mapped anew each time, because a collection has more files than a process may keep open.
        """
        return _map_configs(self.configs_file)

    def configs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Some configurations, int8[k, nc, 18] layouts or float32[k, 24] tiles.

        Args:
            rows: int64[k], numbers from 0 to c - 1.
        """
        found: npt.NDArray[Any] = np.asarray(self.packed[rows])
        return unpack(found) if self.kind == "layout" else found


def graph_file(folder: Path, name: str) -> Path:
    """The file of a prepared graph that is written last."""
    return folder / f"{name}.npz"


def configs_file(folder: Path, name: str) -> Path:
    """The file of a prepared graph's configurations."""
    return folder / f"{name}.npy"


def configs_shape(kind: Kind, configs: int, config_nodes: int) -> tuple[int, ...]:
    """The shape of a prepared graph's configurations: layouts are packed, tiles are not."""
    return (configs, config_nodes, CONFIGURED_TENSORS) if kind == "layout" else (configs, TILE_VALUES)


def prepared_folder(folder: Path, collection: str, split: str) -> Path:
    """The folder of the prepared graphs of one split of a collection."""
    return folder / collection.replace(":", "-") / split


def read_all_prepared(folder: Path, collection: str, split: str) -> list[PreparedGraph]:
    """The prepared graphs of one split of a collection, sorted by name; an empty list where there are none.

    Raises:
        InputError: a graph is damaged.
    """
    there = prepared_folder(folder, collection, split)
    return [read_prepared(there, path.stem) for path in sorted(there.glob("*.npz"))]


def read_prepared(folder: Path, name: str) -> PreparedGraph:
    """Reads a prepared graph, except for its configurations, which stay on the disk.

    Raises:
        InputError: there is no such graph, or it is damaged.
    """
    found = read_arrays(graph_file(folder, name))
    kind: Kind = "layout" if str(found["kind"]) == "layout" else "tile"
    runtime = found["runtime"]
    graph = PreparedGraph(
        name,
        kind,
        found["numbers"],
        found["permutation"],
        found["opcode"],
        found["edge_index"],
        found["config_nodes"],
        found["config_rows"],
        runtime if len(runtime) else None,
        configs_file(folder, name),
        bool(found["is_pruned"]),
        Kernels(found["kernel_features"], found["kernels"], found["kernel_begins"]) if has_kernels(found) else None,
    )
    # Damage is found here and not in the middle of a training.
    limits = {"opcode": OPCODE_LIMIT, "edge_index": len(graph.numbers), "config_nodes": len(graph.numbers)}
    limits["kernels"] = len(found["kernel_features"])
    for field, limit in limits.items():
        if found[field].size and not (found[field].min() >= 0 and found[field].max() < limit):
            raise _damaged(folder / f"{name}.npz", f"{field} holds something else than numbers from 0 to {limit - 1}")
    if len(runtime) not in (0, len(graph.config_rows)):
        raise _damaged(folder / f"{name}.npz", f"{len(runtime)} runtimes of {len(graph.config_rows)} configurations")
    begins = found["kernel_begins"]
    ends = [0, len(found["kernels"])]
    if len(begins) and (len(begins) != len(graph.config_rows) + 1 or begins[[0, -1]].tolist() != ends):
        raise _damaged(folder / f"{name}.npz", "the kernels are not those of its configurations")
    if (np.diff(begins) < 0).any():
        raise _damaged(folder / f"{name}.npz", "the kernels of its configurations are in no order")
    packed = graph.packed
    shape, expected = packed.shape, configs_shape(kind, len(graph.config_rows), len(graph.config_nodes))
    if packed.dtype != (np.int32 if kind == "layout" else np.float32):
        raise InputError(f"{graph.configs_file} holds {packed.dtype}; delete both of its files and prepare again")
    if shape != expected:
        raise InputError(
            f"{graph.configs_file} has the shape {list(shape)}, not {list(expected)} as {name}.npz says; "
            "delete both and prepare again"
        )
    return graph


def has_kernels(found: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether a graph was prepared with kernels.

    Args:
        found: What :func:`read_arrays` returned.
    """
    return len(found["kernel_begins"]) > 0


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a prepared graph's npz file.

    Raises:
        InputError: the file is missing or damaged, or an array is missing or has another type or shape.
    """
    try:
        with np.load(path, allow_pickle=False) as npz:
            found = dict(npz)
    # NumPy and zipfile raise nearly any error for a damaged archive.
    except Exception as error:
        raise _damaged(path, str(error)) from error
    sizes: dict[str, int] = {}
    for name, (dtype, expected) in _ARRAYS.items():
        if name not in found:
            raise _damaged(path, f"it lacks {name}")
        array = found[name]
        if not isinstance(array, np.ndarray):  # NumPy gives the bytes of a member that is no array
            raise _damaged(path, f"{name} is no array")
        wanted = [
            sizes.setdefault(one, have) if isinstance(one, str) else one
            for one, have in zip(expected, array.shape, strict=False)
        ]
        is_type = array.dtype.kind == "U" if dtype == "U" else array.dtype == np.dtype(dtype)
        if not is_type or array.ndim != len(expected) or list(array.shape) != wanted:
            raise _damaged(path, f"{name} is {array.dtype}{list(array.shape)}")
    return found


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: no prepared graph ({reason}); delete it and prepare again")


def _map_configs(path: Path) -> npt.NDArray[Any]:
    try:
        packed: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; delete {path.with_suffix('.npz').name} and prepare again") from error
    # NumPy evaluates the header as a Python literal, which raises nearly any error.
    except Exception as error:
        raise InputError(f"{path}: no prepared configurations ({error}); delete both of its files") from error
    return packed
