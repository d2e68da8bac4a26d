"""Metrics of how well scores rank measured programs and how well throughputs are predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.split import networks_named
from tvm_gnn_cost.errors import InputError

Array = npt.NDArray[np.float64]

#: Metric -> whether higher is better, in the order of tables.
METRICS: dict[str, bool] = {
    "rmse": False,
    "r2": True,
    "huber": False,
    "pairwise_accuracy": True,
    "pairwise_repeatable": True,
    "kendall_tau": True,
    "top1": True,
    "top5": True,
    "top1_pooled": True,
    "top5_pooled": True,
    "peak1": True,
    "peak5": True,
    "regret": False,
    "regret_90": False,
    "regret_99": False,
}


def rmse(predicted: Array, target: Array) -> float:
    """Root mean squared error of the relative throughput."""
    return float(np.sqrt(np.mean((predicted - target) ** 2)))


def r2(predicted: Array, target: Array) -> float:
    """Coefficient of determination; NaN if all targets are equal."""
    spread = np.sum((target - target.mean()) ** 2)
    return float(1 - np.sum((predicted - target) ** 2) / spread) if spread > 0 else float("nan")


def huber(predicted: Array, target: Array, delta: float = 1.0) -> float:
    """Mean Huber loss of the relative throughput."""
    error = np.abs(predicted - target)
    return float(np.mean(np.where(error <= delta, 0.5 * error**2, delta * (error - 0.5 * delta))))


def pairwise_accuracy(scores: Array, target: Array, halves: Array | None = None) -> float:
    """Share of the pairs with different targets that the scores order correctly; a tie of scores counts half.

    Args:
        scores: float64[P], higher is faster.
        target: float64[P], higher is faster.
        halves: float64[P, 2], the latency in each half of the repeats; only pairs that both halves order alike count.

    Returns:
        The share; NaN without such a pair.

    >>> pairwise_accuracy(np.array([3.0, 1.0, 1.0]), np.array([1.0, 0.5, 0.2]))
    0.8333333333333334
    >>> pairwise_accuracy(np.array([2.0, 3.0, 1.0]), np.array([1.0, 0.9, 0.2]), np.array([[1, 3], [2, 2], [5, 5.0]]))
    1.0
    """
    first, second = np.triu_indices(len(scores), 1)
    counts = target[first] != target[second]
    if halves is not None:
        # Comparisons with the NaN of a single repeat are false.
        counts &= np.sign(halves[first] - halves[second]).prod(1) > 0
    if not counts.any():
        return float("nan")
    sign = np.sign(target[first] - target[second]) * np.sign(scores[first] - scores[second])
    return float(((sign[counts] + 1) / 2).mean())


def kendall_tau(scores: Array, target: Array) -> float:
    """Kendall's tau-b; 0 if all scores or all targets are equal."""
    if len(np.unique(scores)) < 2 or len(np.unique(target)) < 2:
        return 0.0
    return float(stats.kendalltau(scores, target).statistic)


def best_of_top(scores: Array, latency: Array, k: int) -> float:
    """Lowest latency among the ``k`` programs with the highest scores.

    With equal scores it is the mean over 64 fixed random orders of the programs, so that a constant model does as well
    as chance.
    """
    rng = np.random.default_rng(0)
    draws = 1 if len(np.unique(scores)) == len(scores) else 64
    found = []
    for _ in range(draws):
        shuffled = rng.permutation(len(scores))
        order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
        found.append(latency[order[:k]].min())
    return float(np.mean(found))


@dataclass(frozen=True)
class TaskScore:
    """The metrics of one task.

    Attributes:
        task: Name of the task.
        programs: Number of its valid programs.
        metrics: The metrics of ``METRICS`` that are defined for a single task.
    """

    task: str
    programs: int
    metrics: dict[str, float]


def evaluate(
    programs: MeasuredPrograms, scores: Array, predicted: Array, networks: tuple[str, ...]
) -> tuple[dict[str, float], list[TaskScore]]:
    """All metrics of ``METRICS`` over the tasks of the given networks, and the metrics of each task.

    Only tasks with at least two valid programs count, and failed programs are ignored.

    - ``rmse``, ``r2`` and ``huber`` are over all programs; ``pairwise_accuracy`` and ``kendall_tau`` are means over
      tasks. ``pairwise_repeatable`` counts only the pairs whose order both halves of the repeats agree on; it is
      missing if the programs have fewer than two repeats.
    - ``top1`` and ``top5`` are TenSet's (``eval_model_on_dataset.py``): for each network the weighted sum of its tasks'
      lowest latencies, divided by the weighted sum of the lowest latencies among the k programs with the highest
      scores; then the mean over networks. ``top1_pooled`` and ``top5_pooled`` add up the sums of all networks first
      (TLP, Zhai et al. 2023).
    - ``peak1`` and ``peak5`` are the task's lowest latency divided by the lowest among its k programs with the highest
      scores, as a mean over tasks weighted by their number of programs (TenSet's ``train_model.py``).
    - ``regret`` is what the program with the highest score takes longer than the task's fastest, relative to it: the
      geometric mean over tasks of the ratio, minus 1. ``regret_90`` and ``regret_99`` are its percentiles.

    Args:
        programs: P measured programs.
        scores: float64[P], higher is faster.
        predicted: float64[P], predicted relative throughput.
        networks: Names of the networks whose tasks count, see :func:`~tvm_gnn_cost.datasets.split.networks_named`.

    Raises:
        InputError: no task of these networks has two valid programs.
    """
    known = sorted(programs.networks)
    counted = tuple(network for name in networks for network in networks_named(name, known))
    target = programs.throughput().astype(np.float64)
    valid = np.isfinite(programs.latency)
    used: list[int] = []
    tasks: list[TaskScore] = []
    best: dict[int, dict[int, float]] = {}
    for number, info in enumerate(programs.tasks):
        rows = np.flatnonzero((programs.task == number) & valid)
        if len(rows) < 2 or not any(network in info.weights for network in counted):
            continue
        used += rows.tolist()
        latency = programs.latency[rows]
        repeatable = math.nan
        if programs.halves is not None:
            repeatable = pairwise_accuracy(scores[rows], target[rows], programs.halves[rows])
        best[number] = {0: float(latency.min()), **{k: best_of_top(scores[rows], latency, k) for k in (1, 5)}}
        tasks.append(
            TaskScore(
                info.name,
                len(rows),
                {
                    "rmse": rmse(predicted[rows], target[rows]),
                    "huber": huber(predicted[rows], target[rows]),
                    "pairwise_accuracy": pairwise_accuracy(scores[rows], target[rows]),
                    **({} if math.isnan(repeatable) else {"pairwise_repeatable": repeatable}),
                    "kendall_tau": kendall_tau(scores[rows], target[rows]),
                    **{f"peak{k}": best[number][0] / best[number][k] for k in (1, 5)},
                },
            )
        )
    if not tasks:
        raise InputError(f"no task of {', '.join(networks)} has two valid programs; nothing to evaluate")
    metrics: dict[str, float] = {
        "rmse": rmse(predicted[used], target[used]),
        "r2": r2(predicted[used], target[used]),
        "huber": huber(predicted[used], target[used]),
    }
    for name in ("pairwise_accuracy", "kendall_tau"):
        metrics[name] = float(np.nanmean([task.metrics[name] for task in tasks]))
    repeated = [task.metrics["pairwise_repeatable"] for task in tasks if "pairwise_repeatable" in task.metrics]
    if repeated:
        metrics["pairwise_repeatable"] = float(np.mean(repeated))
    picked = np.array([found[1] / found[0] for found in best.values()])
    metrics["regret"] = float(stats.gmean(picked)) - 1
    metrics |= {f"regret_{q}": float(np.percentile(picked, q)) - 1 for q in (90, 99)}
    for k in (1, 5):
        sums = []
        for network in counted:
            weights = {i: programs.tasks[i].weights[network] for i in best if network in programs.tasks[i].weights}
            if weights:
                sums.append(
                    (sum(w * best[i][0] for i, w in weights.items()), sum(w * best[i][k] for i, w in weights.items()))
                )
        metrics[f"top{k}"] = float(np.mean([low / found for low, found in sums]))
        metrics[f"top{k}_pooled"] = sum(low for low, _ in sums) / sum(found for _, found in sums)
        metrics[f"peak{k}"] = float(
            np.average([t.metrics[f"peak{k}"] for t in tasks], weights=[t.programs for t in tasks])
        )
    return {name: metrics[name] for name in METRICS if name in metrics}, tasks
