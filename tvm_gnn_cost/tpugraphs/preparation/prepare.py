"""TGraph's preparation (Maksimov et al. 2024, section 2.2): prunes graphs, de-duplicates and packs configurations."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder, replacing
from tvm_gnn_cost.progress import Advanced, Progress, ignore
from tvm_gnn_cost.tpugraphs.format import (
    FIRST_DIMENSION_COLUMN,
    LAYOUT_RANK,
    LAYOUT_VALUES,
    NO_DIMENSION,
    NODE_NUMBERS,
    TILE_VALUES,
    Kind,
)
from tvm_gnn_cost.tpugraphs.format.collections import SPLITS, collection_kind, collections_in, graph_files
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph, content_id, read_graphs
from tvm_gnn_cost.tpugraphs.kernels import KERNEL_FEATURES, Kernels, find_kernels
from tvm_gnn_cost.tpugraphs.layout_assignment import ConfigurableInstructions
from tvm_gnn_cost.tpugraphs.preparation.pack import pack
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import (
    configs_file,
    configs_shape,
    graph_file,
    has_kernels,
    prepared_folder,
    read_arrays,
)


@dataclass(frozen=True)
class Savings:
    """What preparation kept of some graphs, and how long it took.

    Attributes:
        graphs: Number of graphs.
        nodes: Nodes as published.
        kept_nodes: Nodes after pruning.
        configs: Configurations as published.
        kept_configs: Configurations after de-duplication.
        bytes: Size of all configurations as published, in float32.
        kept_bytes: Size of the kept configurations, packed.
        seconds: Time that the preparation took.
    """

    graphs: int = 0
    nodes: int = 0
    kept_nodes: int = 0
    configs: int = 0
    kept_configs: int = 0
    bytes: int = 0
    kept_bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: Savings) -> Savings:
        return Savings(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Preparation:
    """The result of :func:`prepare`.

    Attributes:
        collections: What was kept of each collection.
        left_out: A message for each file that was left out.
    """

    collections: dict[str, Savings]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{name}: {one.graphs} graphs, kept {one.kept_nodes} of {one.nodes} nodes, {one.kept_configs} of "
            f"{one.configs} configurations, {one.kept_bytes / 2**20:.1f} of {one.bytes / 2**20:.1f} MiB"
            for name, one in self.collections.items()
        ]
        return "\n".join([*lines, f"{len(self.left_out)} left out"])


def prepare(
    root: Path,
    folder: Path,
    collections: Sequence[str] | None = None,
    *,
    prunes: bool = True,
    kernels: bool = False,
    progress: Progress = ignore,
) -> Preparation:
    """Prepares the graphs of published collections; graphs that are already prepared are not prepared again.

    A file that can't be read is left out.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        folder: Where the prepared graphs go.
        collections: Which collections; by default all that the root holds.
        prunes: See :func:`prepare_graph`.
        kernels: See :func:`prepare_graph`.
        progress: Receives how many graphs are done.

    Raises:
        InputError: there is no such collection, it has tiles and ``kernels`` is true, or a prepared graph in ``folder``
            is damaged, was prepared with the other ``prunes`` or without ``kernels``, or from another file of the same
            name.
        FileNotFoundError: the root holds no file of the collections.
    """
    check_folder(folder)
    names = collections_in(root) if collections is None else tuple(dict.fromkeys(collections))
    if not names:
        raise FileNotFoundError(f"{root} holds no collection; expected npz/layout/... or npz/tile/... below it")
    files = [(name, split, graph_files(root, name, split)) for name in names for split in SPLITS]
    tiles = [name for name in names if collection_kind(name) == "tile"]
    if kernels and tiles:
        raise InputError(f"{tiles[0]} has tiles; kernels can be found for layouts alone")
    total = sum(len(paths) for _, _, paths in files)
    if not total:
        raise FileNotFoundError(f"{root} holds no npz file of {', '.join(names)}")
    problems: list[str] = []
    saved = dict.fromkeys(names, Savings())
    for name, split, paths in files:
        there = prepared_folder(folder, name, split)
        for _, one in prepare_files(paths, there, problems, kind=collection_kind(name), prunes=prunes, kernels=kernels):
            saved[name] = saved[name] + one
            progress(Advanced(sum(each.graphs for each in saved.values()) + len(problems), total))
    return Preparation(saved, tuple(problems))


def prepare_files(
    files: Iterable[Path],
    folder: Path,
    problems: list[str],
    *,
    kind: Kind | None = None,
    prunes: bool = True,
    kernels: bool = False,
) -> Iterator[tuple[Path, Savings]]:
    """Prepares files one by one and yields each with its savings, also if it was prepared before.

    Args:
        files: Published files.
        folder: Where the prepared graphs go.
        problems: Receives a message for each file that is left out, because it can't be read.
        kind: What the files' collection holds; by default what each file's fields tell.
        prunes: See :func:`prepare_graph`.
        kernels: See :func:`prepare_graph`.

    Raises:
        InputError: a prepared graph in ``folder`` is damaged, was prepared with the other ``prunes`` or without
            ``kernels``, or from another file of the same name.
    """
    for path in files:
        if graph_file(folder, path.stem).exists():
            yield path, _read_savings(folder, path, prunes, kernels)
            continue
        for graph in read_graphs([path], problems, kind):
            try:
                saved = prepare_graph(graph, folder, prunes=prunes, kernels=kernels)
            except InputError as error:
                problems.append(str(error))
                continue
            yield path, saved


def prepare_graph(
    graph: ConfiguredGraph, folder: Path, *, keeps_equal: bool = False, prunes: bool = True, kernels: bool = False
) -> Savings:
    """Writes the two files of a prepared graph.

    Args:
        graph: The graph.
        folder: Where the files go.
        keeps_equal: Keep equal configurations too; ranking needs all of them, training does not.
        prunes: Keep only the configurable nodes and their neighbours, see :func:`prune`.
        kernels: Find the kernels of each configuration of layouts too, in the whole graph: the model ``kernel-costs``
            reads them. It takes some milliseconds for each configuration of 200 nodes.

    Raises:
        InputError: the configurations are damaged.
    """
    start = time.perf_counter()
    kind, count = graph.configs.kind, len(graph.configs)
    nodes = prune(graph) if prunes else np.arange(len(graph.node_feat))
    rows = np.arange(count) if keeps_equal else deduplicate(graph)
    renumber = np.full(len(graph.node_feat), -1, np.int64)
    renumber[nodes] = np.arange(len(nodes))
    edges = renumber[graph.edge_index]
    kept_bytes = _write_configs(graph, rows, configs_file(folder, graph.name))
    values = LAYOUT_VALUES * len(graph.config_nodes) if kind == "layout" else TILE_VALUES
    found = _kernels(graph, rows) if kernels else None
    seconds = time.perf_counter() - start
    saved = Savings(1, len(graph.node_feat), len(nodes), count, len(rows), 4 * count * values, kept_bytes, seconds)
    with replacing(graph_file(folder, graph.name)) as unfinished, unfinished.open("wb") as file:
        np.savez(
            file,
            kind=kind,
            numbers=graph.node_feat[nodes, :NODE_NUMBERS],
            permutation=padded_permutation(graph.node_feat[nodes]),
            opcode=graph.node_opcode[nodes],
            edge_index=edges[:, (edges >= 0).all(axis=0)],
            config_nodes=renumber[graph.config_nodes],
            config_rows=rows,
            runtime=np.zeros(0) if graph.runtime is None else graph.runtime[rows],
            savings=np.array(astuple(saved)),
            is_pruned=prunes,
            kernel_features=np.zeros((0, KERNEL_FEATURES), np.float32) if found is None else found.features,
            kernels=np.zeros(0, np.int64) if found is None else found.of,
            kernel_begins=np.zeros(0, np.int64) if found is None else found.begins,
            source=content_id(graph.path),
        )
    return saved


def prune(graph: ConfiguredGraph) -> npt.NDArray[np.int64]:
    """The nodes that training keeps, sorted: the configurable ones and their neighbours; all nodes of a tile graph."""
    if graph.configs.kind == "tile":
        return np.arange(len(graph.node_feat))
    consumer, producer = graph.edge_index
    configurable = np.zeros(len(graph.node_feat), bool)
    configurable[graph.config_nodes] = True
    kept = configurable.copy()
    kept[consumer[configurable[producer]]] = True
    kept[producer[configurable[consumer]]] = True
    return np.flatnonzero(kept)


def deduplicate(graph: ConfiguredGraph) -> npt.NDArray[np.int64]:
    """The configurations that training keeps, sorted: the fastest of equal ones; all if the runtimes are secret.

    Raises:
        InputError: the file is damaged.
    """
    if graph.runtime is None:
        return np.arange(len(graph.configs))
    # Compares digests, because the configurations of a large graph do not fit into memory.
    fastest: dict[bytes, int] = {}
    row = 0
    for chunk in graph.configs.iterate():
        for config in chunk:
            digest = hashlib.blake2b(config.tobytes(), digest_size=16).digest()
            known = fastest.setdefault(digest, row)
            if graph.runtime[row] < graph.runtime[known]:
                fastest[digest] = row
            row += 1
    return np.array(sorted(fastest.values()), np.int64)


def padded_permutation(node_feat: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """The layouts of the nodes' outputs, int8[n, 6], padded with -1; ``node_feat`` pads them with 0.

    A layout of rank r is a permutation of 0 to r - 1, so its greatest value tells r. Where that is 0, the output's
    first dimension tells a vector from a scalar.

    Args:
        node_feat: float32[n, 140].
    """
    values = node_feat[:, NODE_NUMBERS:]
    # An output with more than six dimensions may name a seventh, which has no embedding.
    layout = np.where((values >= 0) & (values < LAYOUT_RANK), values, NO_DIMENSION).astype(np.int8)
    largest = layout.max(axis=1)
    rank = np.where(largest > 0, largest + 1, node_feat[:, FIRST_DIMENSION_COLUMN] > 0)
    return np.where(np.arange(LAYOUT_RANK) < rank[:, None], layout, NO_DIMENSION).astype(np.int8)


def _write_configs(graph: ConfiguredGraph, rows: npt.NDArray[np.int64], path: Path) -> int:
    """Writes the given configurations and returns their size in bytes."""
    is_layout = graph.configs.kind == "layout"
    shape = configs_shape(graph.configs.kind, len(rows), len(graph.config_nodes))
    with replacing(path) as unfinished:
        out = np.lib.format.open_memmap(unfinished, "w+", np.int32 if is_layout else np.float32, shape)
        done = 0
        for kept in _kept(graph, rows):
            out[done : done + len(kept)] = pack(kept) if is_layout else kept
            done += len(kept)
        out.flush()
    return int(out.nbytes)


def _kept(graph: ConfiguredGraph, rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[Any]]:
    """The given configurations, some at a time."""
    start = done = 0
    for chunk in graph.configs.iterate():
        end = int(np.searchsorted(rows, start + len(chunk)))
        yield chunk[rows[done:end] - start]
        start, done = start + len(chunk), end


def _kernels(graph: ConfiguredGraph, rows: npt.NDArray[np.int64]) -> Kernels:
    """The kernels of the given configurations."""
    numbers, opcode = graph.node_feat[:, :NODE_NUMBERS], graph.node_opcode.astype(np.int64)
    whole = ConfigurableInstructions(numbers, opcode, graph.edge_index, graph.config_nodes)
    return find_kernels(whole, (config.astype(np.int8) for kept in _kept(graph, rows) for config in kept))


def _read_savings(folder: Path, path: Path, prunes: bool, kernels: bool) -> Savings:
    """The savings of a graph that was prepared before."""
    there = graph_file(folder, path.stem)
    found = read_arrays(there)
    if bool(found["is_pruned"]) != prunes:
        how = "pruned" if found["is_pruned"] else "not pruned"
        raise InputError(f"{there}: it was {how} when it was prepared; choose another folder")
    if kernels and not has_kernels(found):
        raise InputError(f"{there}: it was prepared without kernels; choose another folder")
    if str(found.get("source")) != content_id(path):
        raise InputError(f"{there} was not prepared from {path}, which differs; choose another folder")
    *counts, seconds = found["savings"].tolist()
    return replace(Savings(*map(int, counts)), seconds=seconds)
