"""TGraph's preparation (Maksimov et al. 2024, section 2.2): prunes graphs, de-duplicates and packs configurations."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.progress import Advanced, Progress, ignore
from tvm_gnn_cost.tpugraphs.format import FIRST_DIMENSION_COLUMN, LAYOUT_RANK, NO_DIMENSION, NODE_NUMBERS, Kind
from tvm_gnn_cost.tpugraphs.format.collections import SPLITS, collection_kind, collections_in, graph_files
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph, content_id, read_graph
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import (
    Kernels,
    PreparedGraph,
    graph_file,
    has_kernels,
    pack,
    packed_form,
    prepared_folder,
    read_arrays,
    unpack,
    write_prepared,
)

#: Returns the kernels that a compiler makes of a whole graph in each of several int8[nc, 18] layouts, such as
#: :func:`tvm_gnn_cost.xla_cpu.find_kernels`, for XLA on a CPU.
FindKernels = Callable[[ConfiguredGraph, Iterable[npt.NDArray[np.int8]]], Kernels]


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
class PrepareResult:
    """The result of :func:`prepare`.

    Attributes:
        collections: What was kept of each collection.
        left_out: A message for each file that was left out.
    """

    collections: dict[str, Savings]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{name}: {saved.graphs} graphs, kept {saved.kept_nodes} of {saved.nodes} nodes, {saved.kept_configs} of "
            f"{saved.configs} configurations, {saved.kept_bytes / 2**20:.1f} of {saved.bytes / 2**20:.1f} MiB"
            for name, saved in self.collections.items()
        ]
        return "\n".join([*lines, f"{len(self.left_out)} left out"])


def prepare(
    root: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    collections: Sequence[str] | None = None,
    *,
    prunes: bool = True,
    find_kernels: FindKernels | None = None,
    progress: Progress = ignore,
) -> PrepareResult:
    """Prepares the graphs of published collections; graphs that are already prepared are not prepared again.

    A file that can't be read is left out.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        folder: Where the prepared graphs go.
        collections: Which collections; by default all that the root holds.
        prunes: See :func:`prepare_graph`.
        find_kernels: See :func:`prepare_graph`.
        progress: Receives how many graphs are done.

    Raises:
        InputError: there is no such collection, it has tiles and ``find_kernels`` is given, or a prepared graph in
            ``folder`` is damaged, was prepared with the other ``prunes`` or without kernels, or from another file of
            the same name.
        FileNotFoundError: the root holds no file of the collections.
    """
    root, folder = Path(root), Path(folder)
    check_folder(folder)
    names = collections_in(root) if collections is None else tuple(dict.fromkeys(collections))
    if not names:
        raise FileNotFoundError(f"{root} holds no collection; expected npz/layout/... or npz/tile/... below it")
    files = [(name, split, graph_files(root, name, split)) for name in names for split in SPLITS]
    tiles = [name for name in names if collection_kind(name) == "tile"]
    if find_kernels is not None and tiles:
        raise InputError(f"{tiles[0]} has tiles; kernels can only be found for layouts")
    total = sum(len(paths) for _, _, paths in files)
    if not total:
        raise FileNotFoundError(f"{root} holds no npz file of {', '.join(names)}")
    problems: list[str] = []
    saved = dict.fromkeys(names, Savings())
    for name, split, paths in files:
        there, kind = prepared_folder(folder, name, split), collection_kind(name)
        for _, savings in prepare_files(paths, there, problems, kind=kind, prunes=prunes, find_kernels=find_kernels):
            saved[name] = saved[name] + savings
            progress(Advanced(sum(part.graphs for part in saved.values()) + len(problems), total))
    return PrepareResult(saved, tuple(problems))


def prepare_files(
    files: Iterable[Path],
    folder: Path,
    problems: list[str],
    *,
    kind: Kind | None = None,
    prunes: bool = True,
    find_kernels: FindKernels | None = None,
) -> Iterator[tuple[Path, Savings]]:
    """Prepares files one by one and yields each with its savings, also if it was prepared before.

    Args:
        files: Published files.
        folder: Where the prepared graphs go.
        problems: Receives a message for each file that is left out, because it can't be read.
        kind: What the files' collection holds; by default what each file's fields tell.
        prunes: See :func:`prepare_graph`.
        find_kernels: See :func:`prepare_graph`.

    Raises:
        InputError: a prepared graph in ``folder`` is damaged, was prepared with the other ``prunes`` or without
            kernels, or from another file of the same name.
    """
    for path in files:
        if graph_file(folder, path.stem).exists():
            yield path, _read_savings(folder, path, prunes, find_kernels is not None)
            continue
        start = time.perf_counter()
        try:
            graph = read_graph(path, kind)
            prepared = prepare_graph(graph, prunes=prunes, find_kernels=find_kernels)
            source = content_id(path)
        except (InputError, OSError) as error:
            problems.append(str(error))
            continue
        nodes, kept_nodes = len(graph.node_feat), len(prepared.opcode)
        count, kept, size = graph.configs_shape[0], len(prepared.config_rows), 4 * math.prod(graph.configs_shape)
        seconds = time.perf_counter() - start
        saved = Savings(1, nodes, kept_nodes, count, kept, size, prepared.packed.nbytes, seconds)
        write_prepared(prepared, folder, np.array(astuple(saved)), source)
        yield path, saved


def prepare_graph(
    graph: ConfiguredGraph,
    *,
    keeps_equal: bool = False,
    prunes: bool = True,
    find_kernels: FindKernels | None = None,
) -> PreparedGraph:
    """Prepares a graph in memory, where its packed configurations take a sixth of their published size.

    Args:
        graph: The graph.
        keeps_equal: Keep equal configurations too; ranking needs all of them, training does not.
        prunes: Keep only the configurable nodes and their neighbours, see :func:`prune`.
        find_kernels: Finds the kernels of each configuration of layouts, in the whole graph: the model
            ``kernel-costs`` reads them.

    Raises:
        InputError: the configurations are damaged.
        OSError: the file cannot be read.
    """
    is_layout = graph.kind == "layout"
    packed: npt.NDArray[Any] = np.empty(*packed_form(graph.kind, graph.configs_shape[0], len(graph.config_nodes)))
    done = 0
    for chunk in graph.configs():
        packed[done : done + len(chunk)] = pack(chunk) if is_layout else chunk
        done += len(chunk)
    rows = np.arange(len(packed))
    runtime = graph.runtime
    if runtime is not None and not keeps_equal:
        rows = fastest_of_equal(packed, runtime)
        packed, runtime = packed[rows], runtime[rows]
    nodes = prune(graph) if prunes else np.arange(len(graph.node_feat))
    renumber = np.full(len(graph.node_feat), -1, np.int64)
    renumber[nodes] = np.arange(len(nodes))
    edges = renumber[graph.edge_index]
    return PreparedGraph(
        graph.path.stem,
        graph.kind,
        graph.node_feat[nodes, :NODE_NUMBERS],
        padded_permutation(graph.node_feat[nodes]),
        graph.node_opcode[nodes],
        edges[:, (edges >= 0).all(axis=0)],
        renumber[graph.config_nodes],
        rows,
        runtime,
        packed,
        prunes,
        None if find_kernels is None else find_kernels(graph, map(unpack, packed)),
    )


def prune(graph: ConfiguredGraph) -> npt.NDArray[np.int64]:
    """The nodes that training keeps, sorted: the configurable ones and their neighbours; all nodes of a tile graph."""
    if graph.kind == "tile":
        return np.arange(len(graph.node_feat))
    consumer, producer = graph.edge_index
    configurable = np.zeros(len(graph.node_feat), bool)
    configurable[graph.config_nodes] = True
    kept = configurable.copy()
    kept[consumer[configurable[producer]]] = True
    kept[producer[configurable[consumer]]] = True
    return np.flatnonzero(kept)


def fastest_of_equal(packed: npt.NDArray[Any], runtime: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The configurations that training keeps, int64[k], sorted: the fastest of equal ones.

    Args:
        packed: [c, ...], equal configurations have equal bytes.
        runtime: float64[c].
    """
    fastest: dict[bytes, int] = {}
    for row, config in enumerate(packed):
        # Digests, so that the dictionary does not hold the configurations once more.
        digest = hashlib.blake2b(config.tobytes(), digest_size=16).digest()
        known = fastest.setdefault(digest, row)
        if runtime[row] < runtime[known]:
            fastest[digest] = row
    return np.array(sorted(fastest.values()), np.int64)


def padded_permutation(node_feat: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """The layouts of the nodes' outputs, int8[n, 6], padded with -1; ``node_feat`` pads them with 0.

    A layout of rank r is a permutation of 0 to r - 1, so its greatest value gives r. Where that is 0, the output's
    first dimension distinguishes a vector from a scalar.

    Args:
        node_feat: float32[n, 140].
    """
    values = node_feat[:, NODE_NUMBERS:]
    # An output with more than six dimensions may name a seventh, which has no embedding.
    layout = np.where((values >= 0) & (values < LAYOUT_RANK), values, NO_DIMENSION).astype(np.int8)
    largest = layout.max(axis=1)
    rank = np.where(largest > 0, largest + 1, node_feat[:, FIRST_DIMENSION_COLUMN] > 0)
    return np.where(np.arange(LAYOUT_RANK) < rank[:, None], layout, NO_DIMENSION).astype(np.int8)


def _read_savings(folder: Path, path: Path, prunes: bool, kernels: bool) -> Savings:
    """The savings of a graph that was prepared before."""
    there = graph_file(folder, path.stem)
    arrays = read_arrays(there)
    if bool(arrays["is_pruned"]) != prunes:
        how = "pruned" if arrays["is_pruned"] else "not pruned"
        raise InputError(f"{there}: it was {how} when it was prepared; choose another folder")
    if kernels and not has_kernels(arrays):
        raise InputError(f"{there}: it was prepared without kernels; choose another folder")
    if str(arrays.get("source")) != content_id(path):
        raise InputError(f"{there} was not prepared from {path}, which differs; choose another folder")
    *counts, seconds = arrays["savings"].tolist()
    return replace(Savings(*map(int, counts)), seconds=seconds)
