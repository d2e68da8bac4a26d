"""Compares cost models on the same measured programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.evaluation.metrics import METRICS, TaskScore, evaluate
from tvm_gnn_cost.models.tvm_baselines import OfflineMLP, OfflineXGB
from tvm_gnn_cost.scoring.cost_model import CostModel

Array = npt.NDArray[np.float64]

#: Scores (higher is faster) and predicted relative throughputs of P programs: float64[P] each.
Prediction = tuple[Array, Array]
#: Function from measured programs to a prediction.
Model = Callable[[MeasuredPrograms], Prediction]


@dataclass(frozen=True)
class Evaluation:
    """Result of one model.

    Attributes:
        metrics: Metric of ``metrics.METRICS`` -> its value over all tasks of the networks.
        tasks: The metrics of each task.
    """

    metrics: dict[str, float]
    tasks: list[TaskScore]


def gnn(model: CostModel) -> Model:
    """A trained graph model, with its trees if it has some; it raises an InputError for graphs of another detail."""
    scorer = model.scorer

    def predict(programs: MeasuredPrograms) -> Prediction:
        scores = scorer.score(programs.graphs, programs.task)
        return scores, scorer.throughput(scores)

    return predict


def trees(model: CostModel) -> Model:
    """The boosted trees of a graph model, which must have some, without its network."""
    scorer = model.scorer

    def predict(programs: MeasuredPrograms) -> Prediction:
        scores = scorer.tree_scores(programs.graphs)
        return scores, scorer.throughput(scores)

    return predict


def constant(value: float) -> Model:
    """A trivial baseline that predicts the same throughput for every program, so it ranks by chance."""
    return lambda programs: (np.full(len(programs), value), np.full(len(programs), value))


def random(seed: int) -> Model:
    """A trivial baseline whose scores are uniform in [0, 1], like MetaSchedule's RandomModel."""

    def predict(programs: MeasuredPrograms) -> Prediction:
        scores = np.random.default_rng(seed).random(len(programs))
        return scores, scores

    return predict


def node_count(value: float) -> Model:
    """A trivial baseline that ranks smaller programs higher and predicts a constant throughput."""
    return lambda programs: (-programs.graphs.node_counts.astype(np.float64), np.full(len(programs), value))


def trained_xgb(trees: OfflineXGB) -> Model:
    """TVM's XGBoost model, which reads TVM's per-store features."""

    def predict(programs: MeasuredPrograms) -> Prediction:
        predicted = trees.predict(programs)
        return predicted, predicted

    return predict


def trained_mlp(mlp: OfflineMLP, value: float) -> Model:
    """TVM's segment-sum MLP, which ranks, and predicts a constant throughput."""
    return lambda programs: (mlp.predict(programs), np.full(len(programs), value))


def compare(models: Mapping[str, Model], programs: MeasuredPrograms, networks: Sequence[str]) -> dict[str, Evaluation]:
    """Evaluates each model on the tasks of the given networks.

    Raises:
        InputError: no task of these networks has two valid programs, or a model cannot read the programs.
    """
    result = {}
    for name, model in models.items():
        scores, predicted = model(programs)
        result[name] = Evaluation(*evaluate(programs, scores, predicted, tuple(networks)))
    return result


def summarise(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and sample standard deviation of each metric over runs with different seeds.

    >>> summarise([{"top1": 1.0}, {"top1": 3.0}])
    {'top1': {'mean': 2.0, 'std': 1.4142135623730951}}
    """
    return {
        name: {
            "mean": float(np.mean([run[name] for run in runs])),
            "std": float(np.std([run[name] for run in runs], ddof=1)) if len(runs) > 1 else 0.0,
        }
        for name in runs[0]
    }


def table(title: str, rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """A table with a row for each metric and a column for each model; arrows point to the better direction.

    Args:
        title: Title of the table.
        rows: For each model what :func:`summarise` returns.
    """
    # A name in brackets is no markup.
    out = Table(title=Text(title), title_justify="left")
    out.add_column("metric", no_wrap=True)
    for model in rows:
        out.add_column(Text(model), justify="right", overflow="fold")
    for name in (name for name in METRICS if name in next(iter(rows.values()))):
        found = [metrics[name] for metrics in rows.values()]
        cells = [f"{cell['mean']:.3f}" + (f" ±{cell['std']:.3f}" if cell["std"] else "") for cell in found]
        out.add_row(f"{name} {'↑' if METRICS[name] else '↓'}", *cells)
    return out
