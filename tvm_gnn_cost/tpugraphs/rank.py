"""Ranks all configurations of published graphs, with a model of each collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.npz import read_graphs
from tvm_gnn_cost.tpugraphs.prepare import prepare_graph, read_prepared
from tvm_gnn_cost.tpugraphs.ranker import Ranker, score_with_all

#: A graph's name, float64[c] scores of all its configurations and their runtimes, None where these are secret.
Ranked = tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64] | None]


def rank_files(
    files: Sequence[Path], rankers: Sequence[Ranker], permutations: int, problems: list[str]
) -> Iterator[Ranked]:
    """Scores every configuration of every file, equal ones too.

    What is wrong with a file that can't be read or ranked is added to ``problems``, and the rest goes on.

    Args:
        files: As published.
        rankers: Models of the files' collection, which rank together.
        permutations: See :func:`~tvm_gnn_cost.tpugraphs.ranker.score`.
        problems: Told of every file that is left out.

    Raises:
        ValueError: some of the models are of pruned graphs and some are not, or some of layouts and some of tiles.
    """
    prunes = rankers[0].is_pruned
    if any(ranker.is_pruned != prunes for ranker in rankers):
        raise ValueError("some of the models were trained on pruned graphs and some were not: they can't rank together")
    kind = rankers[0].config.kind
    if any(ranker.config.kind != kind for ranker in rankers):
        raise ValueError("some of the models rank layouts and some tiles: they can't rank together")
    for graph in read_graphs(files, problems, kind):
        # Through a file, because the configurations of a graph may not fit into memory.
        with TemporaryDirectory() as scratch:
            try:
                prepare_graph(graph, Path(scratch), keeps_equal=True, prunes=prunes)
                scores = score_with_all(rankers, read_prepared(Path(scratch), graph.name), permutations)
            except ValueError as error:
                problems.append(str(error))
                continue
        yield graph.name, scores, graph.runtime
