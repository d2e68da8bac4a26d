"""How well scores rank the configurations of a graph: the metrics of the data set's paper and of its competition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.evaluation.metrics import best_of_top, kendall_tau
from tvm_gnn_cost.tpugraphs.format import COUNTED_TILES

Array = npt.NDArray[np.float64]

_LAYOUT_TOPS = (1, 10, 100)
_TILE_TOPS = (1, COUNTED_TILES, 10)


def slowdown(scores: Array, runtime: Array, k: int) -> float:
    """How much slower the fastest of the ``k`` best-scored configurations is than the fastest of all; 0 is best.

    Args:
        scores: float64[c], higher is faster.
        runtime: float64[c], in any unit.
        k: How many configurations are tried.

    >>> slowdown(np.array([3.0, 2.0, 1.0]), np.array([15.0, 12.0, 10.0]), 2)
    0.19999999999999996
    """
    return best_of_top(scores, runtime, k) / float(runtime.min()) - 1


def graph_metrics(collection: str, scores: Array, runtime: Array) -> dict[str, float]:
    """The metrics of one graph.

    Args:
        collection: The graph's collection, or its kind.
        scores: float64[c], higher is faster.
        runtime: float64[c], of the same configurations, in any unit.

    Returns:
        ``kendall_tau``, three slowdowns (``slowdown1`` and so on), and ``score``, which the competition counts: tau for
        layouts, 1 - slowdown at 5 for tiles.
    """
    is_layout = collection.startswith("layout")
    metrics = {"kendall_tau": kendall_tau(scores, -runtime)}
    metrics |= {f"slowdown{k}": slowdown(scores, runtime, k) for k in (_LAYOUT_TOPS if is_layout else _TILE_TOPS)}
    return metrics | {"score": metrics["kendall_tau"] if is_layout else 1 - metrics[f"slowdown{COUNTED_TILES}"]}


def mean_metrics(graphs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over one or more graphs."""
    return {name: float(np.mean([graph[name] for graph in graphs])) for name in graphs[0]}


def competition_score(collections: Mapping[str, Mapping[str, float]]) -> float:
    """The mean of the collections' scores; with all five collections it is the competition's score."""
    return float(np.mean([metrics["score"] for metrics in collections.values()]))
