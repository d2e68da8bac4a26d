"""Turns measured XLA modules, as protobuf messages, into files as TpuGraphs publishes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tvm_gnn_cost.tpugraphs.featurize import featurize, with_aggregates
from tvm_gnn_cost.tpugraphs.npz import LAYOUT_VALUES
from tvm_gnn_cost.tpugraphs.protos import HloModuleProto, ModuleTuningData, TuningData

#: What a file holds: layouts of one module, tiles of many kernels, or an HLO module that was not measured.
Source = Literal["layout", "tile", "hlo"]

_Fields = dict[str, npt.NDArray[Any]]


def encode(path: Path, source: Source, folder: Path, problems: list[str]) -> Iterator[tuple[Path, int, int]]:
    """Writes one npz file for each module of a file; yields its path, its nodes and its configurations.

    Args:
        path: A serialised ``ModuleTuningData`` (``layout``), ``TuningData`` (``tile``) or ``HloModuleProto`` (``hlo``).
        source: Which of them.
        folder: Where the files go, each under its module's name, that of ``path`` for a layout.
        problems: Told of every kernel that is left out, and why.

    Raises:
        ValueError: the file is none of the kind, or its module refers to what is not in it.
        OSError: it cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = set()
    for name, fields in _encode(path, source, problems):
        # XLA's names are no names of files: they may hold any character.
        out = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name).lstrip('.') or 'module'}.npz"
        if out in written:
            problems.append(f"{path}: the module '{name}' is left out: another one has that name")
            continue
        written.add(out)
        write_npz(out, fields)
        yield out, len(fields["node_opcode"]), len(fields.get("config_runtime", ()))


def write_npz(path: Path, fields: _Fields) -> None:
    """Writes a file whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **fields)
    unfinished.replace(path)


def encode_layouts(data: Any) -> _Fields:
    """The arrays of a ``ModuleTuningData``; runs that failed are left out.

    Raises:
        ValueError: it has no run with layouts, or one that does not fit the module.
    """
    fields = encode_graph(data.module)
    nodes = np.array(data.config_index_to_node, np.int64)
    runs = [
        run for run in data.runs if run.HasField("module_config") and not run.error and run.profile.compute_time_ns > 0
    ]
    if not runs or not len(nodes):
        raise ValueError(f"the module '{data.module.name}' has no measured layout")
    layouts = [run.module_config.layout_config for run in runs]
    if any(len(one.nodes) != len(nodes) for one in layouts):
        raise ValueError(f"a run of '{data.module.name}' has not one layout for each of its {len(nodes)} nodes")
    return fields | {
        "node_config_ids": nodes,
        "node_config_feat": np.array([[_layout(node) for node in one.nodes] for one in layouts], np.float32),
        "config_runtime": np.array([run.profile.compute_time_ns for run in runs], np.int64),
    }


def encode_tiles(data: Any) -> _Fields:
    """The arrays of one kernel of a ``TuningData``; runs that failed are left out.

    Raises:
        ValueError: it has runs without tiles, fewer than two, or none with the default tile.
    """
    if len(data.runs) < 2 or not all(any(_bounds(run)) for run in data.runs):
        raise ValueError("it has not two runs or more, each with tiles")
    runs = [run for run in data.runs if not run.error and run.profile.compute_time_ns > 1]
    default = next((run.profile.compute_time_ns for run in runs if run.is_default), None)
    if default is None:
        raise ValueError("it has no run with the default tile")
    return encode_graph(data.module) | {
        "config_feat": np.array([_tile(run) for run in runs], np.float32),
        "config_runtime": np.array([run.profile.compute_time_ns for run in runs], np.int64),
        "config_runtime_normalizers": np.full(len(runs), default, np.int64),
    }


def _encode(path: Path, source: Source, problems: list[str]) -> Iterator[tuple[str, _Fields]]:
    kind = {"layout": ModuleTuningData, "tile": TuningData, "hlo": HloModuleProto}[source]
    try:
        data = kind.FromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path}: not a serialised {kind.DESCRIPTOR.name} ({error})") from error
    if source == "tile":
        for number, one in enumerate(data.modules):
            try:
                yield one.module.name, encode_tiles(one)
            except ValueError as error:
                problems.append(f"{path}: modules[{number}] ({one.module.name}): {error}")
        return
    try:
        yield (path.stem, encode_layouts(data)) if source == "layout" else (data.name, encode_graph(data))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def encode_graph(module: Any) -> _Fields:
    """The arrays of an ``HloModuleProto`` that has no configurations.

    Raises:
        ValueError: see :func:`~tvm_gnn_cost.tpugraphs.featurize.featurize`.
    """
    graph = featurize(module)
    return {
        "node_feat": graph.node_feat,
        "node_opcode": graph.node_opcode,
        "edge_index": graph.edge_index,
        "node_splits": graph.node_splits,
    }


def _layout(node: Any) -> list[int]:
    """Output, input and kernel; a layout that is short or missing leaves the rest to the compiler."""
    out = [-1] * LAYOUT_VALUES
    for number, tensor in enumerate(node.tensors[:3]):
        dims = list(tensor.dims)[:6]
        out[6 * number : 6 * number + len(dims)] = dims
    return out


def _bounds(run: Any) -> tuple[Sequence[int], ...]:
    tile = run.op_config.tile_size_config
    return tile.kernel_bounds, tile.output_bounds, tile.input_bounds


def _tile(run: Any) -> list[float]:
    return [value for one in _bounds(run) for value in with_aggregates(one, 6, product_if_empty=0)]
