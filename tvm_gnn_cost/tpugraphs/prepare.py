"""TGraph's preparation (Maksimov et al. 2024, section 2.2): graphs pruned, configurations de-duplicated and packed.

A prepared graph is two files. ``NAME.npy`` holds the configurations that are kept, packed, to be read by memory map;
``NAME.npz`` all the rest, and is written last: where it is, the graph is whole.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.npz import LAYOUT_VALUES, TILE_VALUES, ConfiguredGraph, Kind, content_id, read_graphs
from tvm_gnn_cost.tpugraphs.pack import pack, unpack

#: Columns of ``node_feat`` that are numbers; what follows is the layout of the node's output.
NUMBERS = 134


@dataclass(frozen=True)
class Savings:
    """What the preparation of some graphs left of them, and what it took.

    Attributes:
        graphs: Their number.
        nodes: Nodes before and after pruning.
        kept_nodes: See ``nodes``.
        configs: Configurations before and after de-duplication.
        kept_configs: See ``configs``.
        bytes: Of all configurations, as published in float32, and as kept and packed.
        kept_bytes: See ``bytes``.
        seconds: Spent.
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
class PreparedGraph:
    """A graph of n nodes and c configurations, as the models take it.

    Attributes:
        name: Of the published file.
        kind: ``layout`` or ``tile``.
        numbers: float32[n, 134], as published: see :class:`~tvm_gnn_cost.tpugraphs.scale.Scale`.
        permutation: int8[n, 6], the layout of each node's output, minor to major, padded with -1.
        opcode: int64[n].
        edge_index: int64[2, m]; a column (u, v): u consumes v's output.
        config_nodes: int64[nc], the nodes that a layout is for; empty for tiles.
        config_rows: int64[c], the number that each configuration has in the published file.
        runtime: float64[c], or None where it is kept secret.
        configs_file: Holds int32[c, nc, 3] for layouts, float32[c, 24] for tiles.
        is_pruned: Whether nodes were left out; a model ranks graphs like those that it was trained on.
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

    @property
    def packed(self) -> npt.NDArray[Any]:
        """What ``configs_file`` holds, mapped; anew each time, since a collection has more files than may be open."""
        return _map_configs(self.configs_file)

    def configs(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Some configurations: int8[k, nc, 18] for layouts, float32[k, 24] for tiles."""
        found: npt.NDArray[Any] = np.asarray(self.packed[rows])
        return unpack(found) if self.kind == "layout" else found


def prune(graph: ConfiguredGraph) -> npt.NDArray[np.int64]:
    """The nodes that are kept, in order: the configurable ones and what they are linked to; of a tile graph all."""
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
    """The configurations that training keeps, in order: of equal ones the fastest; all where runtimes are secret.

    Raises:
        ValueError: the file is damaged.
    """
    if graph.runtime is None:
        return np.arange(len(graph.configs))
    # Digests and not the configurations themselves: those of a large graph do not fit into memory.
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
    """int8[n, 6]: the output layouts of float32[n, 140] with -1 and not 0 behind their ends.

    A layout of rank r is a permutation of 0 to r - 1, so that its greatest value tells its end; where that is 0, the
    output's first dimension tells a vector from a scalar.
    """
    values = node_feat[:, NUMBERS:]
    # The first six of an output with more dimensions may name a seventh one, which no embedding has.
    layout = np.where((values >= 0) & (values < values.shape[1]), values, -1).astype(np.int8)
    largest = layout.max(axis=1)
    rank = np.where(largest > 0, largest + 1, node_feat[:, 21] > 0)
    return np.where(np.arange(layout.shape[1]) < rank[:, None], layout, -1).astype(np.int8)


def prepare_graph(graph: ConfiguredGraph, folder: Path, *, keeps_equal: bool = False, prunes: bool = True) -> Savings:
    """Writes a graph's two files.

    Args:
        graph: The graph.
        folder: Where they go.
        keeps_equal: Leave equal configurations in: to rank all of them, and not to train.
        prunes: Leave out nodes that no configurable one is linked to; see :func:`prune`.

    Raises:
        ValueError: the configurations are damaged.
    """
    start = time.perf_counter()
    nodes = prune(graph) if prunes else np.arange(len(graph.node_feat))
    rows = np.arange(len(graph.configs)) if keeps_equal else deduplicate(graph)
    renumber = np.full(len(graph.node_feat), -1, np.int64)
    renumber[nodes] = np.arange(len(nodes))
    edges = renumber[graph.edge_index]
    folder.mkdir(parents=True, exist_ok=True)
    configs_file = _configs_file(folder, graph.name)
    unfinished = configs_file.with_suffix(".unfinished")
    kept_bytes = _write_configs(graph, rows, unfinished)
    unfinished.replace(configs_file)
    width = LAYOUT_VALUES * len(graph.config_nodes) if graph.configs.kind == "layout" else TILE_VALUES
    count = len(graph.configs)
    seconds = time.perf_counter() - start
    saved = Savings(1, len(graph.node_feat), len(nodes), count, len(rows), 4 * count * width, kept_bytes, seconds)
    with unfinished.open("wb") as file:
        np.savez(
            file,
            kind=graph.configs.kind,
            numbers=graph.node_feat[nodes, :NUMBERS],
            permutation=padded_permutation(graph.node_feat[nodes]),
            opcode=graph.node_opcode[nodes],
            edge_index=edges[:, (edges >= 0).all(axis=0)],
            config_nodes=renumber[graph.config_nodes],
            config_rows=rows,
            runtime=np.zeros(0) if graph.runtime is None else graph.runtime[rows],
            savings=np.array(astuple(saved)),
            is_pruned=prunes,
            source=content_id(graph.path),
        )
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(_graph_file(folder, graph.name))
    return saved


def prepared_folder(folder: Path, collection: str, split: str) -> Path:
    """Where the graphs of one split of a collection are kept."""
    return folder / collection.replace(":", "-") / split


def prepare_files(
    files: Iterable[Path], folder: Path, problems: list[str], *, kind: Kind | None = None, prunes: bool = True
) -> Iterator[tuple[Path, Savings]]:
    """Prepares one file after the other, but those that were prepared before; yields each with what it saved.

    What is wrong with a file that can't be read is added to ``problems``, and the rest goes on.

    Args:
        files: As published.
        folder: Where the prepared graphs go.
        problems: Told of every file that is left out.
        kind: What the files' collection is of; where it is not given, what each looks like.
        prunes: See :func:`prepare_graph`.

    Raises:
        ValueError: a prepared graph in ``folder`` is damaged, pruned where this one should not be, or of another file
            of the same name.
    """
    for path in files:
        if _graph_file(folder, path.stem).exists():
            yield path, _read_savings(folder, path, prunes)
            continue
        for graph in read_graphs([path], problems, kind):
            try:
                saved = prepare_graph(graph, folder, prunes=prunes)
            except ValueError as error:
                problems.append(str(error))
                continue
            yield path, saved


def read_all_prepared(folder: Path, collection: str, split: str) -> list[PreparedGraph]:
    """The prepared graphs of one split of a collection, in the order of their names; none where there are none.

    Raises:
        ValueError: one is damaged.
    """
    there = prepared_folder(folder, collection, split)
    return [read_prepared(there, path.stem) for path in sorted(there.glob("*.npz"))]


def read_prepared(folder: Path, name: str) -> PreparedGraph:
    """Reads a prepared graph; its configurations stay on the disk.

    Raises:
        ValueError: there is no such graph, or it is damaged.
    """
    found = _load(_graph_file(folder, name))
    kind: Kind = "layout" if str(found["kind"]) == "layout" else "tile"
    runtime = found["runtime"]
    configs_file = _configs_file(folder, name)
    _map_configs(configs_file)  # a damaged file is named now and not in the middle of a training
    return PreparedGraph(
        name,
        kind,
        found["numbers"],
        found["permutation"],
        found["opcode"],
        found["edge_index"],
        found["config_nodes"],
        found["config_rows"],
        runtime if len(runtime) else None,
        configs_file,
        bool(found["is_pruned"]),
    )


def _write_configs(graph: ConfiguredGraph, rows: npt.NDArray[np.int64], path: Path) -> int:
    is_layout = graph.configs.kind == "layout"
    shape = (len(rows), len(graph.config_nodes), LAYOUT_VALUES // 6) if is_layout else (len(rows), TILE_VALUES)
    out = np.lib.format.open_memmap(path, "w+", np.int32 if is_layout else np.float32, shape)
    start = done = 0
    for chunk in graph.configs.iterate():
        end = int(np.searchsorted(rows, start + len(chunk)))
        kept = chunk[rows[done:end] - start]
        out[done:end] = pack(kept) if is_layout else kept
        start, done = start + len(chunk), end
    out.flush()
    return int(out.nbytes)


def _graph_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npz"


def _configs_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _map_configs(path: Path) -> npt.NDArray[Any]:
    try:
        packed: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; delete {path.with_suffix('.npz').name} and prepare again") from error
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: no prepared configurations ({error}); delete both files of it") from error
    return packed


def _read_savings(folder: Path, path: Path, prunes: bool) -> Savings:
    there = _graph_file(folder, path.stem)
    found = _load(there)
    if bool(found["is_pruned"]) != prunes:
        how = "pruned" if found["is_pruned"] else "not pruned"
        raise ValueError(f"{there}: it was {how} when it was prepared; choose another folder")
    if str(found.get("source")) != content_id(path):
        raise ValueError(f"{there} was not prepared from {path}, which differs; choose another folder")
    *counts, seconds = found["savings"].tolist()
    return replace(Savings(*map(int, counts)), seconds=seconds)


def _load(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as npz:
            return dict(npz)
    # A damaged archive fails with nearly any error.
    except Exception as error:
        raise ValueError(f"{path}: no prepared graph ({error}); delete it and prepare again") from error
