"""The public model object: it scores programs, learns from measured ones, and is saved in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from tvm_gnn_cost.datasets.programs import relative_throughput
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.buffer_stores import row_width
from tvm_gnn_cost.graphs.extension import OnError
from tvm_gnn_cost.graphs.extraction import extract_graphs, extract_states
from tvm_gnn_cost.graphs.program_graph import FILE_NAMES, Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.installed import has
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees, grow_trees
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, DEFAULT_AUTO_SCHEDULER, Checkpoint
from tvm_gnn_cost.scoring.exploration import explore, structures
from tvm_gnn_cost.scoring.scorer import Scorer, one_thread

#: Least number and share of a population's candidates that the network scores; trees take a fraction of its time.
_LEAST_LISTED, _SHARE_LISTED = 32, 0.25


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of a model that learns in a search, with :meth:`CostModel.update`.

    Attributes:
        trees: Number of trees of an update; 0 for a model that does not learn in a search.
        max_depth: Maximum depth of a tree.
        learning_rate: Factor of each tree's output.
        weight: Weight of a pair of programs of the task that was just measured, relative to other tasks' pairs.
        others: Maximum number of programs of other tasks: the newest ones of each, the same number for each.
        buffer_size: Maximum number of programs in the replay buffer.
        seed: Seeds the choice of the pairs and of the features.
        explored: Number of measured programs up to which :meth:`CostModel.predict` prefers candidates of a structure;
            0 for scores without exploration.
    """

    trees: int = 20
    max_depth: int = 4
    learning_rate: float = 0.1
    weight: float = 4.0
    others: int = 512
    buffer_size: int = 4096
    seed: int = 0
    explored: int = 3


@dataclass
class _TaskBuffer:
    """Measured programs of one task, the oldest first.

    Attributes:
        graphs: The graphs of P programs.
        latency: float64[P] in seconds, infinite for a failed one.
        score: float64[P], scores of the model before any update.
    """

    graphs: ProgramGraphs
    latency: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]

    def keep(self, rows: npt.NDArray[np.int64]) -> _TaskBuffer:
        return _TaskBuffer(self.graphs.select(rows), self.latency[rows], self.score[rows])

    def joined(self, other: _TaskBuffer) -> _TaskBuffer:
        graphs = ProgramGraphs.concatenate([self.graphs, other.graphs])
        latency, score = np.concatenate([self.latency, other.latency]), np.concatenate([self.score, other.score])
        return _TaskBuffer(graphs, latency, score)


class CostModel:
    """A trained model of programs: a graph neural network with boosted trees beside it.

    The trained model stays as it is in a search. An update grows a few trees that start from its scores, on the
    measured programs of the task and of other tasks in a replay buffer; their sum is added to later scores.

    Args:
        checkpoint: The content of its file; with :meth:`load` a path is enough.
        settings: Settings of the updates.
        history: See the attribute.

    Attributes:
        checkpoint: The pre-trained model.
        settings: Settings of the updates.
        history: Metric -> its value after each epoch of the training that made this object; empty if it was loaded.

    Raises:
        InputError: the checkpoint does not fit this version, or what it learned in a search is damaged.

    >>> model = CostModel.load()
    >>> model.detail, model.card["training"]["loss"]
    ('statements', 'hinge+mse+top1')

    Score a TensorIR module, here an element-wise addition:

    >>> import tvm
    >>> from tvm import te
    >>> a = te.placeholder((64, 64))
    >>> mod = tvm.IRModule({"main": te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1)])})
    >>> scores = model.predict([mod], tvm.target.Target({"kind": "llvm", "num-cores": 2}))
    >>> scores.shape, scores.dtype
    ((1,), dtype('float64'))
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: UpdateSettings | None = None,
        history: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self.settings = settings or UpdateSettings()
        self.history: dict[str, list[float]] = {name: list(values) for name, values in (history or {}).items()}
        self.checkpoint = replace(checkpoint, extra={}, extra_info={})
        self.scorer = Scorer(self.checkpoint)
        self.buffers: dict[str, _TaskBuffer] = {}
        self.correction: BufferStoreTrees | None = None
        self.updates = 0
        if checkpoint.extra_info:
            self._restore(checkpoint)

    @staticmethod
    def load(path: str | os.PathLike[str] = "gnn", settings: UpdateSettings | None = None) -> CostModel:
        """Loads a model, with what it has learned in a search.

        Args:
            path: A file of ``tvm-gnn-cost train`` or :meth:`save`; ``gnn`` for the checkpoint that ships for the
                scheduler of the installed TVM, which is MetaSchedule's without TVM.
            settings: Settings of the updates.

        Raises:
            InputError: the file is missing or damaged, is not a checkpoint, or has another version.
        """
        if path == "gnn":
            path = DEFAULT_AUTO_SCHEDULER if has("auto_scheduler") else DEFAULT
        return CostModel(Checkpoint.load(Path(path)), settings)

    @property
    def card(self) -> dict[str, Any]:
        """The training data, settings and result, as JSON."""
        return self.checkpoint.card

    @property
    def detail(self) -> Detail:
        """The detail of the graphs that the model reads."""
        return self.scorer.config.detail

    @property
    def buffered(self) -> int:
        """Number of programs in the replay buffer."""
        return sum(len(buffer.latency) for buffer in self.buffers.values())

    def predict(
        self, programs: ProgramGraphs | Sequence[Any], target: Any = None, *, task: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Scores n candidates of one task: float64[n] in [0, 1], higher is faster; 0 for a graph without nodes.

        In a large population the network sees only the candidates that the trees rank best. The scores are not
        calibrated: a search draws the parents of its next candidates in proportion to them, and calibrated scores lie
        closer together.

        Args:
            programs: TensorIR modules of the installed TVM, states of ``auto_scheduler``, or their graphs in the
                model's detail.
            target: Of modules the ``tvm.target.Target`` that they are built for; of states their ``SearchTask``.
            task: Name of the task, see :meth:`update`. With it the candidates are scored for the next round of a
                search: the best ones of structures with few measured programs (``scoring.exploration``) are raised, to
                at most every fifth place.

        Raises:
            InputError: the graphs have another detail than the model reads, or states come without their task.
            TypeError: a program is neither a module nor a state.
            ValueError: a program cannot be read; the message gives its position.
        """
        graphs = self.graphs(programs, target)
        count = max(_LEAST_LISTED, math.ceil(_SHARE_LISTED * len(graphs)))
        # Threads gain little for few graphs, and take 0.5 s instead of 8 ms while a measured program's still spin.
        with one_thread() if count == _LEAST_LISTED else nullcontext():
            scores = self.scorer.score_shortlist(graphs, count, self.correction)
        if task is not None:
            measured = self.buffers[task].graphs if task in self.buffers else graphs.select([])
            scores = explore(scores, structures(graphs), structures(measured), self.settings.explored)
        probability: npt.NDArray[np.float64] = expit(scores)
        return probability

    def update(
        self,
        programs: ProgramGraphs | Sequence[Any],
        latencies: npt.ArrayLike,
        target: Any = None,
        *,
        task: str,
    ) -> None:
        """Adds measured programs to the replay buffer, and grows the trees that correct the scores.

        Args:
            programs: See :meth:`predict`; graphs without nodes are ignored.
            latencies: float64[n], seconds of each program; infinite for a failed one.
            target: See :meth:`predict`.
            task: Name of the programs' task; latencies are compared within a task.

        Raises:
            InputError: there is not one latency per program, or one is not positive; and see :meth:`predict`.
        """
        graphs = self.graphs(programs, target)
        latency = np.asarray(latencies, np.float64)
        if latency.shape != (len(graphs),) or not (latency > 0).all():
            raise InputError(f"latencies must be {len(graphs)} positive numbers of seconds, one per program")
        usable = np.flatnonzero(graphs.node_counts > 0)
        if not len(usable):
            return
        graphs = graphs.select(usable)
        # The processes that build and run programs are busy.
        with one_thread():
            new = _TaskBuffer(graphs, latency[usable], self.scorer.score(graphs))
            old = self.buffers.get(task)
            self.buffers[task] = new if old is None else old.joined(new)
            self._forget()
            self._correct(task)
        self.updates += 1

    def graphs(
        self, programs: ProgramGraphs | Sequence[Any], target: Any = None, on_error: OnError = "raise"
    ) -> ProgramGraphs:
        """The programs as graphs in the model's detail.

        Args:
            programs: See :meth:`predict`.
            target: See :meth:`predict`.
            on_error: ``skip`` gives a program that cannot be read an empty graph, and its reason in ``errors``.

        Raises:
            Exception: see :meth:`predict`.
        """
        if isinstance(programs, ProgramGraphs):
            return programs
        if hasattr(target, "compute_dag"):
            text = str(target.target)
            return extract_states(target.compute_dag, programs, text, detail=self.detail, on_error=on_error)
        if any(type(program).__name__ in ("State", "StateObject") for program in programs):
            raise InputError("target must be the SearchTask of the states, which has their compute DAG")
        return extract_graphs(programs, target, detail=self.detail, on_error=on_error)

    def check_scheduler(self, scheduler: str) -> None:
        """Refuses to score the programs of a scheduler with a model of the other one's.

        Raises:
            InputError: the model was trained on programs of the other scheduler alone.
        """
        self.checkpoint.check_scheduler(scheduler)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to one file, after updates with what it has learned and the replay buffer.

        Raises:
            OSError: the file cannot be written; the message names it.
        """
        self.to_checkpoint().save(path)

    def _forget(self) -> None:
        """Shrinks the buffer to its size: drops the oldest programs of the largest task, but not its fastest one."""
        while (excess := self.buffered - self.settings.buffer_size) > 0:
            task = max(self.buffers, key=lambda name: len(self.buffers[name].latency))
            buffer = self.buffers[task]
            others = sorted(len(b.latency) for b in self.buffers.values())
            runner_up = others[-2] if len(others) > 1 else 0
            drop = min(excess, max(1, len(buffer.latency) - runner_up), len(buffer.latency) - 1)
            rows = np.arange(len(buffer.latency))
            oldest = rows[rows != np.argmin(buffer.latency)][:drop]
            self.buffers[task] = buffer.keep(np.setdiff1d(rows, oldest))

    def _correct(self, current: str) -> None:
        """Grows the correction anew, for the next programs of a task."""
        settings = self.settings
        others = [buffer for name, buffer in self.buffers.items() if name != current]
        each = settings.others // max(1, len(others))
        newest = [buffer.keep(np.arange(max(0, len(buffer.latency) - each), len(buffer.latency))) for buffer in others]
        parts = [self.buffers[current], *newest]
        sizes = [len(part.latency) for part in parts]
        graphs = ProgramGraphs.concatenate([part.graphs for part in parts])
        latency = np.concatenate([part.latency for part in parts])
        task = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        self.correction = grow_trees(
            self.scorer.buffer_stores(graphs),
            relative_throughput(latency, task),
            task,
            settings.trees,
            settings.seed,
            start=np.concatenate([part.score for part in parts]),
            weight=np.where(task == 0, settings.weight, 1.0),
            settings={
                "max_depth": settings.max_depth,
                "eta": settings.learning_rate,
                "subsample": 1.0,
                "colsample_bytree": 0.5,
                # Few pairs have little weight, and the regularization of the leaves is enough.
                "min_child_weight": 1e-3,
            },
        )

    def to_checkpoint(self) -> Checkpoint:
        """The pre-trained model; after updates with the correction and the replay buffer."""
        if self.correction is None:
            return self.checkpoint
        extra = {"correction": self.correction.to_tensor()}
        tasks: list[dict[str, Any]] = []
        for number, (task, buffer) in enumerate(self.buffers.items()):
            tasks.append({"task": task, "type_names": list(buffer.graphs.type_names)})
            extra[f"buffer.{number}.latency"] = torch.from_numpy(buffer.latency)
            extra[f"buffer.{number}.score"] = torch.from_numpy(buffer.score)
            for attribute, name in FILE_NAMES.items():
                array = np.ascontiguousarray(getattr(buffer.graphs, attribute))
                extra[f"buffer.{number}.{name}"] = torch.from_numpy(array)
        return replace(self.checkpoint, extra=extra, extra_info={"updates": self.updates, "tasks": tasks})

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Takes the correction and the replay buffer from a checkpoint of :meth:`to_checkpoint`."""
        extra, info = checkpoint.extra, checkpoint.extra_info
        try:
            self.updates = int(info["updates"])
            for number, entry in enumerate(info["tasks"]):
                arrays: dict[str, Any] = {
                    attribute: extra[f"buffer.{number}.{name}"].numpy() for attribute, name in FILE_NAMES.items()
                }
                graphs = ProgramGraphs(type_names=tuple(entry["type_names"]), detail=self.detail, **arrays)
                if graphs.x.shape[1] != len(VALUES):
                    raise ValueError(f"{graphs.x.shape[1]} features per node, expected {len(VALUES)}")
                latency, score = (extra[f"buffer.{number}.{name}"].numpy() for name in ("latency", "score"))
                wrong = graphs.wrong()
                if latency.shape != (len(graphs),) or not (latency > 0).all():
                    wrong = "latency"
                if score.shape != (len(graphs),) or not np.isfinite(score).all():
                    wrong = "score"
                if wrong is not None:
                    raise ValueError(f"the {FILE_NAMES.get(wrong, wrong)} of task {number}")
                self.buffers[entry["task"]] = _TaskBuffer(graphs, latency, score)
            self.correction = BufferStoreTrees.from_tensor(
                extra["correction"], 1.0, row_width(len(self.scorer.columns))
            )
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{checkpoint}: what it learned in a search is damaged or missing ({error})") from error
