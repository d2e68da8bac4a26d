"""Turns measured XLA modules, given as protobuf messages, into npz files like the published ones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.progress import Advanced, Progress, ignore
from tvm_gnn_cost.tpugraphs.format import CONFIGURED_TENSORS, LAYOUT_RANK, LAYOUT_VALUES, NO_DIMENSION, TILE_RANK
from tvm_gnn_cost.tpugraphs.format.featurize import featurize, with_aggregates
from tvm_gnn_cost.tpugraphs.format.npz import Fields, write_npz
from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto, ModuleTuningData, TuningData

#: What a file holds: one module with measured layouts, many kernels with measured tiles, or a module without either.
Source = Literal["layout", "tile", "hlo"]

_MESSAGES = {"layout": ModuleTuningData, "tile": TuningData, "hlo": HloModuleProto}


@dataclass(frozen=True)
class EncodedFile:
    """An npz file that was written.

    Attributes:
        path: The file.
        nodes: Nodes of its graph.
        configs: Its configurations; 0 for a module that was not measured.
    """

    path: Path
    nodes: int
    configs: int

    def __str__(self) -> str:
        return f"{self.path}: {self.nodes} nodes, {self.configs} configurations"


@dataclass(frozen=True)
class Encoded:
    """The result of :func:`encode`.

    Attributes:
        files: The files that were written.
        left_out: A message for each kernel that was left out.
    """

    files: tuple[EncodedFile, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.files), f"{len(self.left_out)} left out"])


def encode(
    file: str | os.PathLike[str], folder: str | os.PathLike[str], source: Source, *, progress: Progress = ignore
) -> Encoded:
    """Writes one npz file for each measured module of a serialised protobuf message.

    A kernel without usable measurements is left out.

    Args:
        file: A serialised ``ModuleTuningData`` (``layout``), ``TuningData`` (``tile``) or ``HloModuleProto`` (``hlo``).
        folder: Where the npz files go, named after their modules, for a layout after ``file``.
        source: Which message ``file`` holds.
        progress: Receives how many modules are done.

    Raises:
        InputError: the file holds no such message, or its only module cannot be encoded.
        OSError: the file cannot be read.
    """
    file, folder = Path(file), Path(folder)
    message = _MESSAGES[source]
    try:
        data = message.FromString(file.read_bytes())
    except DecodeError as error:
        raise InputError(f"{file}: not a serialised {message.DESCRIPTOR.name} ({error})") from error
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[Path, EncodedFile] = {}
    left_out: list[str] = []
    modules = list(data.modules) if source == "tile" else [data]
    for number, module in enumerate(modules):
        try:
            name, fields = _encode(module, source, file.stem)
        except InputError as error:
            if source != "tile":
                raise InputError(f"{file}: {error}") from error
            left_out.append(f"{file}: modules[{number}] ({module.module.name}): {error}")
            continue
        # A module's name may hold characters that a file's name must not.
        out = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name).lstrip('.') or 'module'}.npz"
        if out in written:
            left_out.append(f"{file}: the module '{name}' is left out: another module has the same name")
            continue
        write_npz(out, fields)
        written[out] = EncodedFile(out, len(fields["node_opcode"]), len(fields.get("config_runtime", ())))
        progress(Advanced(number + 1, len(modules)))
    return Encoded(tuple(written.values()), tuple(left_out))


def encode_configured(
    module: Any, nodes: npt.NDArray[np.int64], configs: npt.NDArray[Any], runtime: npt.NDArray[np.int64]
) -> Fields:
    """The arrays of an ``HloModuleProto`` with measured layouts.

    Args:
        module: The module.
        nodes: int64[nc], the nodes that have layouts.
        configs: [c, nc, 18], the layouts, as numbers of any type.
        runtime: int64[c], nanoseconds.

    Raises:
        InputError: see :func:`~tvm_gnn_cost.tpugraphs.format.featurize.featurize`.
    """
    return featurize(module) | {
        "node_config_ids": nodes,
        "node_config_feat": configs.astype(np.float32),
        "config_runtime": runtime,
    }


def encode_layouts(data: Any) -> Fields:
    """The arrays of a ``ModuleTuningData``; runs that failed are left out.

    Raises:
        InputError: no run has layouts, or a run or a node does not fit the module.
    """
    module, nodes = data.module, list(data.config_index_to_node)
    runs = [
        run for run in data.runs if run.HasField("module_config") and not run.error and run.profile.compute_time_ns > 0
    ]
    if not runs or not nodes:
        raise InputError(f"the module '{module.name}' has no measured layout")
    layouts = [run.module_config.layout_config for run in runs]
    if any(len(layout.nodes) != len(nodes) for layout in layouts):
        raise InputError(f"a run of '{module.name}' does not have a layout for each of its {len(nodes)} nodes")
    count = sum(len(computation.instructions) for computation in module.computations)
    if max(nodes) >= count:
        raise InputError(f"'{module.name}' has layouts for node {max(nodes)}, but only {count} instructions")
    return encode_configured(
        module,
        np.array(nodes, np.int64),
        np.array([[_layout(node) for node in layout.nodes] for layout in layouts], np.float32),
        np.array([run.profile.compute_time_ns for run in runs], np.int64),
    )


def encode_tiles(data: Any) -> Fields:
    """The arrays of one kernel of a ``TuningData``; runs that failed are left out.

    Raises:
        InputError: the kernel has fewer than two runs, a run without tiles, or no run with the default tile.
    """
    if len(data.runs) < 2 or not all(any(_bounds(run)) for run in data.runs):
        raise InputError("it does not have at least two runs, each with tiles")
    runs = [run for run in data.runs if not run.error and run.profile.compute_time_ns > 1]
    default = next((run.profile.compute_time_ns for run in runs if run.is_default), None)
    if default is None:
        raise InputError("it has no run with the default tile")
    return featurize(data.module) | {
        "config_feat": np.array([_tile(run) for run in runs], np.float32),
        "config_runtime": np.array([run.profile.compute_time_ns for run in runs], np.int64),
        "config_runtime_normalizers": np.full(len(runs), default, np.int64),
    }


def _encode(data: Any, source: Source, stem: str) -> tuple[str, Fields]:
    """The name of a module's file and its arrays."""
    if source == "layout":
        return stem, encode_layouts(data)
    if source == "tile":
        return data.module.name, encode_tiles(data)
    return data.name, featurize(data)


def _layout(node: Any) -> list[int]:
    """The 18 values of a node; a layout that is short or missing leaves the rest to the compiler."""
    out = [NO_DIMENSION] * LAYOUT_VALUES
    for number, tensor in enumerate(node.tensors[:CONFIGURED_TENSORS]):
        dims = list(tensor.dims)[:LAYOUT_RANK]
        out[LAYOUT_RANK * number : LAYOUT_RANK * number + len(dims)] = dims
    return out


def _bounds(run: Any) -> tuple[Sequence[int], ...]:
    tile = run.op_config.tile_size_config
    return tile.kernel_bounds, tile.output_bounds, tile.input_bounds


def _tile(run: Any) -> list[float]:
    return [value for bounds in _bounds(run) for value in with_aggregates(bounds, TILE_RANK, product_if_empty=0)]
