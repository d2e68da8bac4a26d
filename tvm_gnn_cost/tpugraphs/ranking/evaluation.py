"""Evaluates models on published graphs whose runtimes are known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Progress, ignore
from tvm_gnn_cost.tpugraphs.preparation.prepare import FindKernels
from tvm_gnn_cost.tpugraphs.ranking.metrics import competition_score, graph_metrics, mean_metrics
from tvm_gnn_cost.tpugraphs.ranking.rank import load_models, rank_collections


@dataclass(frozen=True)
class EvaluateResult:
    """How well models rank graphs.

    Attributes:
        score: The mean of the collections' scores; with all five collections it is the competition's score.
        collections: The mean metrics of each collection, see ``metrics.graph_metrics``.
        graphs: The metrics of each graph of each collection.
        trained_on: The names of the graphs of each collection that one of its models was trained on.
        left_out: A message for each graph that was left out.
    """

    score: float
    collections: dict[str, dict[str, float]]
    graphs: dict[str, dict[str, dict[str, float]]]
    trained_on: dict[str, list[str]]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"score {self.score:.4f}"]
        for name, metrics in self.collections.items():
            listed = ", ".join(f"{metric} {value:.3f}" for metric, value in metrics.items())
            lines.append(f"{name}, {len(self.graphs[name])} graphs: {listed}")
        return "\n".join(lines)


def evaluate(
    root: str | os.PathLike[str],
    models: Mapping[str, str | os.PathLike[str]],
    *,
    split: str = "valid",
    permutations: int = 10,
    find_kernels: FindKernels | None = None,
    progress: Progress = ignore,
) -> EvaluateResult:
    """Ranks graphs whose runtimes are known and computes Kendall's tau, slowdowns and the competition's score.

    A graph that can't be read or ranked, or whose runtimes are secret, is left out. Beware of graphs that the models
    were trained on: ``trained_on`` names them.

    Args:
        root: The folder that holds ``npz`` or ``npz_all``, as published.
        models: For each collection a model's file or the folder that :func:`~tvm_gnn_cost.tpugraphs.train` wrote.
        split: Which graphs.
        permutations: How often configurations are shuffled into those that are compared at once; scores are averaged.
        find_kernels: Finds the kernels that a ``kernel-costs`` model reads, as in its graphs' preparation.
        progress: Receives how many graphs are done.

    Raises:
        InputError: a name is wrong, models are missing or can't rank together, or no graph of a collection could be
            evaluated.
        FileNotFoundError: the root does not hold a collection.
    """
    rankers = load_models(models, progress)
    problems: list[str] = []
    graphs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in rankers}
    for name, graph in rank_collections(Path(root), split, rankers, permutations, problems, find_kernels, progress):
        if graph.runtime is None:
            problems.append(f"{graph.name}: its runtimes are secret")
        else:
            graphs[name][graph.name] = graph_metrics(name, graph.scores, graph.runtime)
    empty = [name for name, metrics in graphs.items() if not metrics]
    if empty:
        cause = f": {problems[0]}" if problems else ""
        raise InputError(f"no graph of {empty[0]} in {root} can be evaluated on its split '{split}'{cause}")
    collections = {name: mean_metrics(list(metrics.values())) for name, metrics in graphs.items()}
    trained_on = {}
    for name, metrics in graphs.items():
        same = [ranker for ranker in rankers[name] if ranker.collection == name]
        trained = {graph for ranker in same for graph in ranker.training.get("train_graphs", ())}
        trained_on[name] = sorted(trained & set(metrics))
    return EvaluateResult(competition_score(collections), collections, graphs, trained_on, tuple(problems))
