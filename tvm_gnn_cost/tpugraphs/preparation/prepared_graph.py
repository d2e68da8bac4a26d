"""Prepared graphs, which training and ranking read instead of the published files, in memory and on the disk.

On the disk, a prepared graph is two files. ``NAME.npy`` holds the packed configurations and is memory-mapped;
``NAME.npz`` holds everything else and is written last: where it exists, the graph is complete. A layout is packed into
one number in base 7, six values from -1 to 5 (TGraph, Maksimov et al. 2024, section 2.2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.tpugraphs.format import (
    CONFIGURED_TENSORS,
    KERNEL_FEATURES,
    LAYOUT_RANK,
    LAYOUT_SYMBOLS,
    NO_DIMENSION,
    NODE_NUMBERS,
    OPCODE_LIMIT,
    TILE_VALUES,
    Kind,
)

_POWERS = LAYOUT_SYMBOLS ** np.arange(LAYOUT_RANK, dtype=np.int32)

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
class Kernels:
    """The fused kernels that a compiler makes of a graph in each configuration; equal kernels are described once.

    Attributes:
        features: float32[u, 43], u different kernels; the first feature is the logarithm of a kernel's work.
        of: int64[z], the kernels of all configurations, one configuration after the other.
        begins: int64[c + 1], where each of c configurations begins in ``of``, and finally z.
    """

    features: npt.NDArray[np.float32]
    of: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]

    def of_configs(
        self, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The kernels of some configurations.

        Args:
            rows: int64[k], numbers from 0 to c - 1.

        Returns:
            float32[v, 43], the different kernels; int64[y], the kernels of all k configurations; int64[y], the
            configuration that each of them belongs to, from 0 to k - 1.
        """
        counts = self.begins[rows + 1] - self.begins[rows]
        ends = np.cumsum(counts)
        first = np.repeat(self.begins[rows] - (ends - counts), counts)
        used, of = np.unique(self.of[first + np.arange(len(first))], return_inverse=True)
        return self.features[used], of, np.repeat(np.arange(len(rows)), counts)


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
        stored: The configurations, int32[c, nc, 3] packed layouts or float32[c, 24] tiles, or the file that holds them.
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
    stored: npt.NDArray[Any] | Path
    is_pruned: bool = True
    kernels: Kernels | None = None

    @property
    def packed(self) -> npt.NDArray[Any]:
        """The configurations, int32[c, nc, 3] packed layouts or float32[c, 24] tiles.

        A file is mapped anew each time, because a collection has more files than a process may keep open.
        """
        return _map_configs(self.stored) if isinstance(self.stored, Path) else self.stored

    def configs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Some configurations, int8[k, nc, 18] layouts or float32[k, 24] tiles.

        Args:
            rows: int64[k], numbers from 0 to c - 1.
        """
        packed: npt.NDArray[Any] = np.asarray(self.packed[rows])
        return unpack(packed) if self.kind == "layout" else packed


def pack(layouts: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Turns int8[..., 6 k] layouts, values from -1 to 5, into int32[..., k].

    >>> pack(np.array([-1, -1, -1, -1, -1, -1, 1, 0, -1, -1, -1, -1], np.int8)).tolist()
    [0, 9]
    """
    *outer, values = layouts.shape
    digits = layouts.reshape(*outer, values // LAYOUT_RANK, LAYOUT_RANK).astype(np.int32) - NO_DIMENSION
    return np.asarray(digits @ _POWERS, dtype=np.int32)


def unpack(packed: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Turns int32[..., k] from :func:`pack` back into int8[..., 6 k].

    >>> unpack(np.array([9])).tolist()
    [1, 0, -1, -1, -1, -1]
    """
    digits = packed[..., None] // _POWERS % LAYOUT_SYMBOLS + NO_DIMENSION
    *outer, count = packed.shape
    return digits.astype(np.int8).reshape(*outer, count * LAYOUT_RANK)


def packed_form(kind: Kind, configs: int, config_nodes: int) -> tuple[tuple[int, ...], type[np.generic]]:
    """The shape and the type of a prepared graph's configurations: layouts are packed, tiles are not."""
    if kind == "layout":
        return (configs, config_nodes, CONFIGURED_TENSORS), np.int32
    return (configs, TILE_VALUES), np.float32


def graph_file(folder: Path, name: str) -> Path:
    """The file of a prepared graph that is written last."""
    return folder / f"{name}.npz"


def prepared_folder(folder: Path, collection: str, split: str) -> Path:
    """The folder of the prepared graphs of one split of a collection."""
    return folder / collection.replace(":", "-") / split


def write_prepared(graph: PreparedGraph, folder: Path, savings: npt.NDArray[np.float64], source: str) -> None:
    """Writes the two files of a prepared graph.

    Args:
        graph: The graph.
        folder: Where the files go.
        savings: What preparation kept, for a later call that finds the graph prepared.
        source: Identifies the published file's content.
    """
    with replacing(_configs_file(folder, graph.name)) as unfinished, unfinished.open("wb") as file:
        np.save(file, graph.packed)
    kernels = graph.kernels or Kernels(np.zeros((0, KERNEL_FEATURES), np.float32), *[np.zeros(0, np.int64)] * 2)
    with replacing(graph_file(folder, graph.name)) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            kind=graph.kind,
            numbers=graph.numbers,
            permutation=graph.permutation,
            opcode=graph.opcode,
            edge_index=graph.edge_index,
            config_nodes=graph.config_nodes,
            config_rows=graph.config_rows,
            runtime=np.zeros(0) if graph.runtime is None else graph.runtime,
            savings=savings,
            is_pruned=graph.is_pruned,
            kernel_features=kernels.features,
            kernels=kernels.of,
            kernel_begins=kernels.begins,
            source=source,
        )


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
    path = graph_file(folder, name)
    arrays = read_arrays(path)
    kind: Kind = "layout" if str(arrays["kind"]) == "layout" else "tile"
    runtime, begins = arrays["runtime"], arrays["kernel_begins"]
    graph = PreparedGraph(
        name,
        kind,
        arrays["numbers"],
        arrays["permutation"],
        arrays["opcode"],
        arrays["edge_index"],
        arrays["config_nodes"],
        arrays["config_rows"],
        runtime if len(runtime) else None,
        _configs_file(folder, name),
        bool(arrays["is_pruned"]),
        Kernels(arrays["kernel_features"], arrays["kernels"], begins) if has_kernels(arrays) else None,
    )
    # Damage is found here and not in the middle of a training.
    limits = {"opcode": OPCODE_LIMIT, "edge_index": len(graph.numbers), "config_nodes": len(graph.numbers)}
    limits["kernels"] = len(arrays["kernel_features"])
    for field, limit in limits.items():
        if arrays[field].size and not (arrays[field].min() >= 0 and arrays[field].max() < limit):
            raise _damaged(path, f"{field} holds values other than numbers from 0 to {limit - 1}")
    if len(runtime) not in (0, len(graph.config_rows)):
        raise _damaged(path, f"{len(runtime)} runtimes of {len(graph.config_rows)} configurations")
    ends = [0, len(arrays["kernels"])]
    if len(begins) and (len(begins) != len(graph.config_rows) + 1 or begins[[0, -1]].tolist() != ends):
        raise _damaged(path, "the kernels are not those of its configurations")
    if (np.diff(begins) < 0).any():
        raise _damaged(path, "the kernels of its configurations are not in order")
    packed, (shape, dtype) = graph.packed, packed_form(kind, len(graph.config_rows), len(graph.config_nodes))
    if packed.dtype != dtype:
        raise InputError(f"{graph.stored} holds {packed.dtype}; delete both of its files and prepare again")
    if packed.shape != shape:
        raise InputError(
            f"{graph.stored} has the shape {list(packed.shape)}, not {list(shape)} as {path.name} says; "
            "delete both and prepare again"
        )
    return graph


def has_kernels(arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether a graph was prepared with kernels.

    Args:
        arrays: What :func:`read_arrays` returned.
    """
    return len(arrays["kernel_begins"]) > 0


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a prepared graph's npz file.

    Raises:
        InputError: the file is missing or damaged, or an array is missing or has another type or shape.
    """
    try:
        with np.load(path, allow_pickle=False) as npz:
            arrays = dict(npz)
    # NumPy and zipfile raise nearly any error for a damaged archive.
    except Exception as error:
        raise _damaged(path, str(error)) from error
    sizes: dict[str, int] = {}
    for name, (dtype, expected) in _ARRAYS.items():
        if name not in arrays:
            raise _damaged(path, f"{name} is missing")
        array = arrays[name]
        if not isinstance(array, np.ndarray):  # NumPy gives the bytes of a member that is not an array
            raise _damaged(path, f"{name} is not an array")
        wanted = [
            sizes.setdefault(axis, have) if isinstance(axis, str) else axis
            for axis, have in zip(expected, array.shape, strict=False)
        ]
        is_type = array.dtype.kind == "U" if dtype == "U" else array.dtype == np.dtype(dtype)
        if not is_type or array.ndim != len(expected) or list(array.shape) != wanted:
            raise _damaged(path, f"{name} is {array.dtype}{list(array.shape)}")
    return arrays


def _configs_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: not a prepared graph ({reason}); delete it and prepare again")


def _map_configs(path: Path) -> npt.NDArray[Any]:
    try:
        packed: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; delete {path.with_suffix('.npz').name} and prepare again") from error
    # NumPy evaluates the header as a Python literal, which raises nearly any error.
    except Exception as error:
        raise InputError(f"{path}: not prepared configurations ({error}); delete both of its files") from error
    return packed
