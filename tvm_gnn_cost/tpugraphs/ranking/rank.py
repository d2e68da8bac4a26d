"""Ranks all configurations of published graphs, with models of each collection."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_file, replacing
from tvm_gnn_cost.progress import Advanced, Note, Progress, ignore
from tvm_gnn_cost.tpugraphs.format import COUNTED_TILES
from tvm_gnn_cost.tpugraphs.format.collections import collection_kind, graph_files
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.tpugraphs.preparation.prepare import FindKernels, prepare_graph
from tvm_gnn_cost.tpugraphs.ranking.ensemble import load_rankers
from tvm_gnn_cost.tpugraphs.ranking.ranker import Ranker, score_with_all


@dataclass(frozen=True)
class RankedGraph:
    """A graph whose c configurations were scored.

    Attributes:
        name: The graph's name.
        scores: float64[c], one for each configuration of the published file; a higher score means faster.
        runtime: float64[c]: nanoseconds for layouts, a multiple of the default tile's runtime for tiles; None where it
            is secret.
    """

    name: str
    scores: npt.NDArray[np.float64]
    runtime: npt.NDArray[np.float64] | None

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """int64[c], the numbers of the configurations from the best to the worst; equal scores stay in their order."""
        return np.argsort(-self.scores, kind="stable")


@dataclass(frozen=True)
class Ranking:
    """The result of :func:`rank`.

    Attributes:
        collections: The ranked graphs of each collection.
        left_out: A message for each graph that was left out.
    """

    collections: dict[str, list[RankedGraph]]
    left_out: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of ranked graphs."""
        return sum(map(len, self.collections.values()))

    def __str__(self) -> str:
        return f"{self.count} graphs ranked, {len(self.left_out)} left out"

    def write_table(self, path: Path) -> None:
        """Writes the competition's CSV file, whole or not at all: the order of all layouts, and the best five tiles."""
        with replacing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("ID", "TopConfigs"))
            for collection, graphs in self.collections.items():
                kept = COUNTED_TILES if collection_kind(collection) == "tile" else None
                for graph in graphs:
                    writer.writerow((f"{collection}:{graph.name}", ";".join(map(str, graph.order[:kept].tolist()))))


def rank(
    root: str | os.PathLike[str],
    models: Mapping[str, str | os.PathLike[str]],
    *,
    split: str = "test",
    permutations: int = 10,
    find_kernels: FindKernels | None = None,
    table: str | os.PathLike[str] | None = None,
    progress: Progress = ignore,
) -> Ranking:
    """Ranks all configurations of the graphs of one or several collections.

    A graph that can't be read or ranked is left out.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        models: For each collection a model's file or the folder that :func:`~tvm_gnn_cost.tpugraphs.train` wrote.
        split: Which graphs.
        permutations: How often configurations are shuffled into those that are compared at once; scores are averaged.
        find_kernels: Finds the kernels that a ``kernel-costs`` model reads, as in its graphs' preparation.
        table: The competition's CSV file to write, if any.
        progress: Receives how many graphs are done.

    Raises:
        InputError: a name is wrong, models are missing or can't rank together, or no graph could be ranked.
        FileNotFoundError: the root does not hold a collection.
    """
    if table is not None:
        check_file(Path(table))
    rankers = load_models(models, progress)
    problems: list[str] = []
    ranked: dict[str, list[RankedGraph]] = {collection: [] for collection in rankers}
    for collection, graph in rank_collections(
        Path(root), split, rankers, permutations, problems, find_kernels, progress
    ):
        ranked[collection].append(graph)
    ranking = Ranking(ranked, tuple(problems))
    if not ranking.count:
        cause = f": {problems[0]}" if problems else ""
        raise InputError(f"no graph of the split '{split}' in {root} could be ranked{cause}")
    if table is not None:
        ranking.write_table(Path(table))
    return ranking


def load_models(models: Mapping[str, str | os.PathLike[str]], progress: Progress = ignore) -> dict[str, list[Ranker]]:
    """The models that rank each collection.

    Args:
        models: For each collection a model's file or the folder that :func:`~tvm_gnn_cost.tpugraphs.train` wrote.
        progress: Receives a note if models were trained on another collection.

    Raises:
        InputError: there are no such models or there is no such collection, or the models can't rank it together.
    """
    if not models:
        raise InputError("models is empty; expected a model for at least one collection")
    loaded: dict[str, list[Ranker]] = {}
    for collection, path in models.items():
        kind = collection_kind(collection)
        rankers = loaded[collection] = load_rankers(Path(path))
        trained = {ranker.collection or collection for ranker in rankers}
        if trained != {collection}:
            progress(Note(f"{path} was trained on {', '.join(sorted(trained))}, and ranks {collection}"))
        if any(ranker.config.kind != kind for ranker in rankers):
            raise InputError(
                f"{path} ranks {rankers[0].config.kind}s, and the configurations of {collection} are {kind}s"
            )
        if len({ranker.is_pruned for ranker in rankers}) > 1:
            raise InputError(
                f"{path}: some of the models were trained on pruned graphs and some were not: they can't rank together"
            )
    return loaded


def rank_collections(
    root: Path,
    split: str,
    models: Mapping[str, Sequence[Ranker]],
    permutations: int,
    problems: list[str],
    find_kernels: FindKernels | None = None,
    progress: Progress = ignore,
) -> Iterator[tuple[str, RankedGraph]]:
    """Ranks the graphs of several collections and yields each with its collection.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        split: Which graphs.
        models: What :func:`load_models` returned.
        permutations: See :func:`~tvm_gnn_cost.tpugraphs.ranking.ranker.score`.
        problems: Receives a message for each graph that is left out.
        find_kernels: See :func:`rank`.
        progress: Receives how many graphs are done.

    Raises:
        InputError: there is no such split or collection, ``permutations`` is below 1, or ``find_kernels`` is missing.
        FileNotFoundError: the root does not hold a collection.
    """
    if permutations < 1:
        raise InputError(f"permutations is {permutations}; expected 1 or more")
    if find_kernels is None and any(ranker.needs_kernels for rankers in models.values() for ranker in rankers):
        raise InputError(
            "a kernel-costs model reads the kernels of each layout: pass find_kernels, such as xla_cpu.find_kernels"
        )
    files = [(name, path) for name in models for path in graph_files(root, name, split)]
    for number, (collection, path) in enumerate(files, 1):
        try:
            graph = rank_file(path, models[collection], permutations, find_kernels)
        except (InputError, OSError) as error:
            problems.append(str(error))
            continue
        progress(Advanced(number, len(files)))
        yield collection, graph


def rank_file(
    path: Path, rankers: Sequence[Ranker], permutations: int, find_kernels: FindKernels | None = None
) -> RankedGraph:
    """Scores all configurations of a published file, equal ones too.

    Args:
        path: The file.
        rankers: The models of its collection.
        permutations: See :func:`~tvm_gnn_cost.tpugraphs.ranking.ranker.score`.
        find_kernels: See :func:`rank`.

    Raises:
        InputError: the file is damaged or of another kind, or a model cannot score it.
        OSError: the file cannot be read.
    """
    graph = read_graph(path, rankers[0].config.kind)
    prepared = prepare_graph(
        graph,
        keeps_equal=True,
        prunes=rankers[0].is_pruned,
        find_kernels=find_kernels if any(ranker.needs_kernels for ranker in rankers) else None,
    )
    return RankedGraph(graph.path.stem, score_with_all(rankers, prepared, permutations), graph.runtime)
