"""Explains a cost model's score of measured programs, for each loop and TensorIR store of their text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.graphs.program_graph import Relation
from tvm_gnn_cost.progress import Progress, Stage, ignore
from tvm_gnn_cost.schedulers import scheduler_of
from tvm_gnn_cost.schedulers.scheduler import Listing, MeasuredFolder
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.tuning.models import resolved


@dataclass(frozen=True)
class Line:
    """A line of a program.

    Attributes:
        text: The line.
        share: Share of the network's predicted cost at the loop or TensorIR store that begins here, without what is
            nested in it; None for other lines.
        trees: Contribution of the boosted trees to the score for a TensorIR store; None for other lines.
        kept: Number of the network's poolings that keep the node; None for other lines.
    """

    text: str
    share: float | None = None
    trees: float | None = None
    kept: int | None = None


@dataclass(frozen=True)
class ExplainedProgram:
    """A measured program with the model's explanation.

    Attributes:
        rank: Rank among the measured programs of its task; 1 is the fastest.
        seconds: Its measured latency.
        throughput: Its throughput relative to the fastest program's, in (0, 1].
        predicted: The predicted relative throughput.
        lines: Its text.
    """

    rank: int
    seconds: float
    throughput: float
    predicted: float
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ExplainResult:
    """Programs of a task.

    Attributes:
        task: The task's name.
        measured: Number of its valid programs.
        poolings: Number of the network's poolings.
        programs: The programs.
    """

    task: str
    measured: int
    poolings: int
    programs: tuple[ExplainedProgram, ...]

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON."""
        return asdict(self)


def explain(
    folder: str | os.PathLike[str],
    *,
    task: str = "1",
    ranks: Sequence[int] = (1, -1),
    cost_model: Any = "gnn",
    hardware: str | None = None,
    progress: Progress = ignore,
) -> ExplainResult:
    """Explains a cost model's score of measured programs of a task.

    Args:
        folder: A MetaSchedule database, such as a work directory of ``tune``, or a folder in TenSet's layout.
        task: The number of a task, sorted by the latency of its fastest program with the slowest task as 1; or a part
            of its name.
        ranks: Ranks of the programs among the task's valid programs: 1 is the fastest, -1 the slowest.
        cost_model: A :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, a ``GNNCostModel``, a checkpoint's path, or
            ``gnn`` for the checkpoint that ships.
        hardware: In TenSet's layout, the folder in ``measure_records``; only needed if there are several.
        progress: Receives events.

    Raises:
        InputError: there is no such task, rank or checkpoint, or the folder is damaged.
        FileNotFoundError: the folder has no measure records.
        WrongTVMError: the installed TVM cannot replay the records.

    >>> explained = explain(records, task="softmax")
    >>> [program.rank for program in explained.programs], explained.measured
    ([1, 3], 3)
    """
    progress(Stage("loading the cost model"))
    chosen = scheduler_of(Path(folder))
    model = resolved(cost_model)
    if not isinstance(model, CostModel):
        raise InputError(f"cost_model must be a CostModel, a GNNCostModel, a checkpoint's path or 'gnn', not {model!r}")
    model.check_scheduler(chosen.name)
    scorer = model.scorer
    progress(Stage("reading the records"))
    opened = chosen.measured(Path(folder), hardware)
    name, measured = _task_of(opened, Path(folder), task)
    programs = []
    for rank in ranks:
        if not 0 < abs(rank) <= len(measured):
            raise InputError(f"{name} has {len(measured)} valid programs; there is no rank {rank}")
        place = (rank - 1 if rank > 0 else rank) % len(measured)
        seconds, record = measured[place]
        progress(Stage(f"reading program {place + 1} of {len(measured)}"))
        listing = opened.listing(record)
        (predicted,) = scorer.throughput(scorer.score(listing.graphs)).tolist()
        lines = lines_of(listing, scorer)
        programs.append(ExplainedProgram(place + 1, seconds, measured[0][0] / seconds, predicted, lines))
    return ExplainResult(name, len(measured), scorer.config.layers, tuple(programs))


def _task_of(folder: MeasuredFolder, path: Path, wanted: str) -> tuple[str, list[tuple[float, Any]]]:
    """A task's name, and its valid records with their seconds, the fastest first.

    Raises:
        InputError: there is no such task.
    """
    tasks: dict[tuple[str, ...], tuple[str, list[tuple[float, Any]]]] = {}
    for _, record in folder.records():
        info, seconds = folder.task_info(record), folder.seconds(record)
        if info is not None and np.isfinite(seconds):
            tasks.setdefault(info.identity, (info.name, []))[1].append((seconds, record))
    for _, records in tasks.values():
        records.sort(key=lambda record: record[0])
    ordered = sorted(tasks.values(), key=lambda task: -task[1][0][0])
    if not ordered:
        raise InputError(f"{path} has no valid program")
    if wanted.isdecimal():
        if len(wanted) > 9 or not 0 < int(wanted) <= len(ordered):
            raise InputError(f"{path} has {len(ordered)} tasks; there is no task {wanted[:20]}")
        return ordered[int(wanted) - 1]
    matching = [task for task in ordered if wanted in task[0]]
    if not matching:
        slowest = ", ".join(name for name, _ in ordered[:10])
        raise InputError(f"no task of {path} has '{wanted}' in its name; the slowest tasks are {slowest}")
    return matching[0]


def lines_of(listing: Listing, scorer: Scorer) -> tuple[Line, ...]:
    """The lines of a program, with the explanation of the loop or TensorIR store that begins in each.

    TVM prints perfectly nested loops in one line, which counts for all of them. Nodes outside of loops belong to the
    first line.
    """
    graphs, nodes = listing.graphs, scorer.nodes(listing.graphs)
    parent = np.full(len(graphs.node_type), -1)
    source, target = graphs.edge_index[:, graphs.edge_type == Relation.CHILD]
    parent[target] = source
    at = {node: line for line, (_, node) in enumerate(listing.lines) if node >= 0}
    # A node comes after its parent.
    line_of: list[int] = []
    for node in range(len(parent)):
        line_of.append(at.get(node, line_of[parent[node]] if parent[node] >= 0 else 0))
    share = np.bincount(line_of, nodes.share, len(listing.lines))
    described = []
    for number, (text, node) in enumerate(listing.lines):
        has = number == 0 or node >= 0
        trees = float(nodes.trees[node]) if node >= 0 and np.isfinite(nodes.trees[node]) else None
        kept = int(nodes.kept[node]) if node >= 0 else None
        described.append(Line(text, float(share[number]) if has else None, trees, kept))
    return tuple(described)


def write_page(explanation: ExplainResult, path: Path) -> None:
    """Writes an explanation as a self-contained HTML page."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    write_text(path, environment.get_template("explain.html.j2").render(explanation=explanation))
