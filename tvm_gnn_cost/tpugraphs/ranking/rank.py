"""Ranks all configurations of published graphs, with models of each collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_file
from tvm_gnn_cost.progress import Advanced, Note, Progress, ignore
from tvm_gnn_cost.tpugraphs.format.collections import collection_kind, graph_files
from tvm_gnn_cost.tpugraphs.format.npz import read_graphs
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_graph
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import read_prepared
from tvm_gnn_cost.tpugraphs.ranking.ensemble import load_rankers
from tvm_gnn_cost.tpugraphs.ranking.ranker import Ranker, score_with_all
from tvm_gnn_cost.tpugraphs.ranking.submission import row, write_submission


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
        """int64[c], the numbers of the configurations from the best to the worst."""
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


def rank(
    root: Path,
    models: Mapping[str, Path],
    *,
    split: str = "test",
    permutations: int = 10,
    table: Path | None = None,
    progress: Progress = ignore,
) -> Ranking:
    """Ranks all configurations of the graphs of one or several collections.

    A graph that can't be read or ranked is left out.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        models: For each collection a model's file or the folder that :func:`~tvm_gnn_cost.tpugraphs.train` wrote.
        split: Which graphs.
        permutations: How often configurations are shuffled into those that are compared at once; scores are averaged.
        table: The competition's CSV file to write, if any.
        progress: Receives how many graphs are done.

    Raises:
        InputError: a name is wrong, models are missing or can't rank together, or no graph could be ranked.
        FileNotFoundError: the root does not hold a collection.
    """
    if table is not None:
        check_file(table)
    rankers = load_models(models, progress)
    problems: list[str] = []
    ranked: dict[str, list[RankedGraph]] = {collection: [] for collection in rankers}
    for collection, graph in rank_collections(root, split, rankers, permutations, problems, progress):
        ranked[collection].append(graph)
    ranking = Ranking(ranked, tuple(problems))
    if not ranking.count:
        cause = f": {problems[0]}" if problems else ""
        raise InputError(f"no graph of the split '{split}' in {root} could be ranked{cause}")
    if table is not None:
        write_submission(
            table, (row(name, graph.name, graph.scores) for name, graphs in ranked.items() for graph in graphs)
        )
    return ranking


def load_models(models: Mapping[str, Path], progress: Progress = ignore) -> dict[str, list[Ranker]]:
    """The models that rank each collection.

    Args:
        models: For each collection a model's file or the folder that :func:`~tvm_gnn_cost.tpugraphs.train` wrote.
        progress: Receives a note if models were trained on another collection.

    Raises:
        InputError: there are no such models or there is no such collection, or the models can't rank it together.
    """
    if not models:
        raise InputError("there is no model to rank with")
    found: dict[str, list[Ranker]] = {}
    for collection, path in models.items():
        kind = collection_kind(collection)
        rankers = found[collection] = load_rankers(path)
        trained = {ranker.collection or collection for ranker in rankers}
        if trained != {collection}:
            progress(Note(f"{path} was trained on {', '.join(sorted(trained))}, and ranks {collection}"))
        if any(ranker.config.kind != kind for ranker in rankers):
            raise InputError(
                f"{path} ranks {rankers[0].config.kind}s, and the configurations of {collection} are {kind}s"
            )
    return found


def rank_collections(
    root: Path,
    split: str,
    rankers: Mapping[str, Sequence[Ranker]],
    permutations: int,
    problems: list[str],
    progress: Progress = ignore,
) -> Iterator[tuple[str, RankedGraph]]:
    """Ranks the graphs of several collections and yields each with its collection.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        split: Which graphs.
        rankers: The models of each collection.
        permutations: See :func:`~tvm_gnn_cost.tpugraphs.ranking.ranker.score`.
        problems: Receives a message for each graph that is left out.
        progress: Receives how many graphs are done.

    Raises:
        InputError: there is no such split or collection, or models can't rank together.
        FileNotFoundError: the root does not hold a collection.
    """
    files = {collection: graph_files(root, collection, split) for collection in rankers}
    total = sum(map(len, files.values()))
    done = 0
    for collection, paths in files.items():
        left_out: list[str] = []
        for graph in rank_files(paths, rankers[collection], permutations, left_out):
            done += 1
            progress(Advanced(done + len(left_out), total))
            yield collection, graph
        done += len(left_out)
        problems += left_out


def rank_files(
    files: Sequence[Path], rankers: Sequence[Ranker], permutations: int, problems: list[str]
) -> Iterator[RankedGraph]:
    """Scores all configurations of each file, equal ones too.

    Args:
        files: Published files of one collection.
        rankers: The models of this collection.
        permutations: See :func:`~tvm_gnn_cost.tpugraphs.ranking.ranker.score`.
        problems: Receives a message for each file that is left out, because it can't be read or ranked.

    Raises:
        InputError: only some of the models were trained on pruned graphs, some rank layouts and some tiles, or
            ``permutations`` is below 1.
    """
    if permutations < 1:
        raise InputError(f"permutations is {permutations}; expected 1 or more")
    prunes = rankers[0].is_pruned
    if any(ranker.is_pruned != prunes for ranker in rankers):
        raise InputError("some of the models were trained on pruned graphs and some were not: they can't rank together")
    kind = rankers[0].config.kind
    if any(ranker.config.kind != kind for ranker in rankers):
        raise InputError("some of the models rank layouts and some tiles: they can't rank together")
    kernels = any(ranker.needs_kernels for ranker in rankers)
    for graph in read_graphs(files, problems, kind):
        # Through a file, because the configurations of a graph may not fit into memory.
        with TemporaryDirectory() as scratch:
            try:
                prepare_graph(graph, Path(scratch), keeps_equal=True, prunes=prunes, kernels=kernels)
                scores = score_with_all(rankers, read_prepared(Path(scratch), graph.name), permutations)
            except InputError as error:
                problems.append(str(error))
                continue
        yield RankedGraph(graph.name, scores, graph.runtime)
