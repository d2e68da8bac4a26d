"""How well scores rank the configurations of a graph: what the data set's paper and competition count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.evaluation.metrics import best_of_top, kendall_tau

Array = npt.NDArray[np.float64]

LAYOUT_TOPS = (1, 10, 100)
TILE_TOPS = (1, 5, 10)


def slowdown(scores: Array, runtime: Array, k: int) -> float:
    """The fastest of the ``k`` configurations scored best over the fastest of all, less 1."""
    return best_of_top(scores, runtime, k) / float(runtime.min()) - 1


def graph_metrics(collection: str, scores: Array, runtime: Array) -> dict[str, float]:
    """The metrics of one graph.

    Args:
        collection: Which says whether its configurations are layouts or tiles.
        scores: float64[c], higher is faster.
        runtime: float64[c], of the same configurations.

    Returns:
        ``kendall_tau``, ``slowdown1`` and two more, and ``score``, what the competition counts: tau for layouts, one
        less slowdown at 5 for tiles.
    """
    is_layout = collection.startswith("layout")
    found = {"kendall_tau": kendall_tau(scores, -runtime)}
    found |= {f"slowdown{k}": slowdown(scores, runtime, k) for k in (LAYOUT_TOPS if is_layout else TILE_TOPS)}
    return found | {"score": found["kendall_tau"] if is_layout else 1 - found["slowdown5"]}


def mean_metrics(graphs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over the graphs of a collection."""
    return {name: float(np.mean([graph[name] for graph in graphs])) for name in graphs[0]}


def competition_score(collections: Mapping[str, Mapping[str, float]]) -> float:
    """The mean of the collections' scores; the competition's own where they are all five."""
    return float(np.mean([metrics["score"] for metrics in collections.values()]))
