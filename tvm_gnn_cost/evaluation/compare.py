"""Puts cost models side by side on the same measured programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.table import Table

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.evaluation.metrics import METRICS, TaskScore, evaluate
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.training.checkpoint import Checkpoint, Scorer

if TYPE_CHECKING:
    from tvm_gnn_cost.models.auto_scheduler_trees import AutoSchedulerTrees
    from tvm_gnn_cost.models.boosted_trees import BoostedTrees

Array = npt.NDArray[np.float64]

#: Scores, higher is faster, and predicted normalised throughput: float64[P] each.
Prediction = tuple[Array, Array]
Model = Callable[[MeasuredPrograms], Prediction]


@dataclass(frozen=True)
class Evaluation:
    """How one model did: over all tasks of the networks, and task by task."""

    metrics: dict[str, float]
    tasks: list[TaskScore]


def gnn(checkpoint: Checkpoint) -> Model:
    """A trained graph model; the programs' graphs must have the detail that it reads."""
    scorer = Scorer(checkpoint)

    def predict(programs: MeasuredPrograms) -> Prediction:
        scores = scorer.score(programs.graphs)
        return scores, scorer.throughput(scores)

    return predict


def constant(value: float) -> Model:
    """Predicts the same throughput for every program: what an error figure is worth, and ranking by chance."""
    return lambda programs: (np.full(len(programs), value), np.full(len(programs), value))


def random(seed: int) -> Model:
    """Uniform in [0, 1], like MetaSchedule's RandomModel."""

    def predict(programs: MeasuredPrograms) -> Prediction:
        scores = np.random.default_rng(seed).random(len(programs))
        return scores, scores

    return predict


def node_count(value: float) -> Model:
    """The trivial baseline: the smaller the program the faster; predicts a constant throughput."""
    return lambda programs: (-programs.graphs.node_counts.astype(np.float64), np.full(len(programs), value))


def trained_xgb(trees: BoostedTrees | AutoSchedulerTrees) -> Model:
    """TVM's XGBModel on TVM's per-store features."""

    def predict(programs: MeasuredPrograms) -> Prediction:
        predicted = trees.predict(programs)
        return predicted, predicted

    return predict


def saved_xgb(path: Path) -> Model:
    """The same, read from a file that ``train --model xgb`` wrote.

    Raises:
        ValueError: the file is missing or is none of XGBoost's.
    """
    from tvm_gnn_cost.models.boosted_trees import boosted_trees

    trees = boosted_trees()
    trees.load(path)
    return trained_xgb(trees)


@dataclass(frozen=True)
class NamedModel:
    """A model as the command line names it.

    Attributes:
        predict: What it predicts.
        detail: Of the graphs that it reads; any will do for a baseline.
        networks: Those whose tasks it says it was trained on.
    """

    predict: Model
    detail: Detail = "statements"
    networks: tuple[str, ...] = ()


def model_by_name(name: str) -> NamedModel:
    """``random``, ``constant``, ``node-count``, ``xgb:PATH`` or a checkpoint's path.

    Raises:
        ValueError: it is none of these.
    """
    if name == "random":
        return NamedModel(random(0))
    if name == "constant":
        return NamedModel(constant(0.5))
    if name == "node-count":
        return NamedModel(node_count(0.5))
    if name.startswith("xgb:"):
        return NamedModel(saved_xgb(Path(name.removeprefix("xgb:"))))
    checkpoint = Checkpoint.load(Path(name))
    return NamedModel(gnn(checkpoint), checkpoint.config.detail, tuple(checkpoint.card.get("networks", ())))


def compare(models: Mapping[str, Model], programs: MeasuredPrograms, networks: Sequence[str]) -> dict[str, Evaluation]:
    """Evaluates every model on the tasks of the given networks."""
    result = {}
    for name, model in models.items():
        scores, predicted = model(programs)
        result[name] = Evaluation(*evaluate(programs, scores, predicted, tuple(networks)))
    return result


def summarise(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Metric -> mean and standard deviation (of the sample) over runs with different seeds."""
    return {
        name: {
            "mean": float(np.mean([run[name] for run in runs])),
            "std": float(np.std([run[name] for run in runs], ddof=1)) if len(runs) > 1 else 0.0,
        }
        for name in runs[0]
    }


def table(title: str, rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Metrics down, models across, mean and spread in each cell; arrows point to the better end."""
    out = Table(title=title, title_justify="left")
    out.add_column("metric", no_wrap=True)
    for model in rows:
        out.add_column(model, justify="right", overflow="fold")
    for name in (name for name in METRICS if name in next(iter(rows.values()))):
        found = [metrics[name] for metrics in rows.values()]
        cells = [f"{cell['mean']:.3f}" + (f" ±{cell['std']:.3f}" if cell["std"] else "") for cell in found]
        out.add_row(f"{name} {'↑' if METRICS[name] else '↓'}", *cells)
    return out
