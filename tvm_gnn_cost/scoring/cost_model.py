"""The public model object: it scores programs, learns from measured ones, and is saved in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extension import OnError
from tvm_gnn_cost.graphs.extraction import extract_graphs, extract_states
from tvm_gnn_cost.graphs.program_graph import FILE_NAMES, Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.installed import has
from tvm_gnn_cost.models.losses import combine
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, DEFAULT_AUTO_SCHEDULER, Checkpoint
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.scoring.tensor_file import with_prefix

#: Least number and share of a population's candidates that the network scores; trees take a fraction of its time.
_LEAST_LISTED, _SHARE_LISTED = 64, 0.25


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of :meth:`CostModel.update`.

    Attributes:
        nodes_per_update: Maximum number of graph nodes of an update. It bounds nodes, not seconds, so that a seed gives
            the same search on a busy machine too.
        steps_per_program: Number of steps of an update for each program that was just measured.
        batch_size: Number of programs in a step, half of them of the task that was just measured.
        buffer_size: Maximum number of programs in the replay buffer.
        learning_rate: Learning rate of AdamW.
        anchor: Strength of the pull towards the pre-trained weights (L2-SP, Li et al. 2018, arXiv:1802.01483).
        loss: One of ``models.losses.LOSSES``, or several joined by ``+``.
        seed: Seeds the draws from the buffer.
    """

    nodes_per_update: int = 20_000
    steps_per_program: float = 0.5
    batch_size: int = 16
    buffer_size: int = 4096
    learning_rate: float = 1e-4
    anchor: float = 1e-2
    loss: str = "hinge+mse"
    seed: int = 0


@dataclass
class _TaskBuffer:
    """Measured programs of one task, the oldest first; latencies float64[P] in seconds, infinite for a failed one."""

    graphs: ProgramGraphs
    latency: npt.NDArray[np.float64]

    def keep(self, rows: npt.NDArray[np.int64]) -> _TaskBuffer:
        return _TaskBuffer(self.graphs.select(rows), self.latency[rows])


class CostModel:
    """A trained model of programs: a graph neural network with boosted trees beside it.

    An update takes a few steps from the network's present weights, half on the task that was just measured and half on
    others from a replay buffer, and is pulled towards the pre-trained weights, so that it costs little and does not
    drift away in a long search. The trees stay as they are.

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
        self.updates = 0
        self._pretrained = [parameter.detach().clone() for parameter in self.scorer.model.parameters()]
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

    def predict(self, programs: ProgramGraphs | Sequence[Any], target: Any = None) -> npt.NDArray[np.float64]:
        """Scores n candidates of one task: float64[n] in [0, 1], higher is faster; 0 for a graph without nodes.

        In a large population the network sees only the candidates that the trees rank best. The scores are not
        calibrated: a search draws the parents of its next candidates in proportion to them, and calibrated scores lie
        closer together.

        Args:
            programs: TensorIR modules of the installed TVM, states of ``auto_scheduler``, or their graphs in the
                model's detail.
            target: Of modules the ``tvm.target.Target`` that they are built for; of states their ``SearchTask``.

        Raises:
            InputError: the graphs have another detail than the model reads, or states come without their task.
            TypeError: a program is neither a module nor a state.
            ValueError: a program cannot be read; the message gives its position.
        """
        graphs = self.graphs(programs, target)
        count = max(_LEAST_LISTED, math.ceil(_SHARE_LISTED * len(graphs)))
        scores: npt.NDArray[np.float64] = expit(self.scorer.score_shortlist(graphs, count))
        return scores

    def update(
        self,
        programs: ProgramGraphs | Sequence[Any],
        latencies: npt.ArrayLike,
        target: Any = None,
        *,
        task: str,
    ) -> None:
        """Adds measured programs to the replay buffer and trains the network on it for a few steps.

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
        new = _TaskBuffer(graphs.select(usable), latency[usable])
        old = self.buffers.get(task)
        if old is not None:
            joined = ProgramGraphs.concatenate([old.graphs, new.graphs])
            new = _TaskBuffer(joined, np.concatenate([old.latency, new.latency]))
        self.buffers[task] = new
        self._forget()
        self._train(task, math.ceil(self.settings.steps_per_program * len(usable)))
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
        """Writes the model to one file: after updates with both its weights and the replay buffer.

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

    def _train(self, current: str, most: int) -> None:
        names = [name for name, b in self.buffers.items() if np.isfinite(b.latency).any() and len(b.latency) > 1]
        if not names:
            return
        settings, rng = self.settings, np.random.default_rng([self.settings.seed, self.updates])
        loss_of = combine(settings.loss)
        model = self.scorer.model
        # Without the momentum of earlier updates: what is saved with the weights and the buffer is all there is.
        optimizer = torch.optim.AdamW(model.parameters(), settings.learning_rate, weight_decay=0.0)
        nodes = steps = 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            model.train()
            while nodes < settings.nodes_per_update and steps < most:
                graphs, target, task = self._draw(names, current, rng)
                batch = self.scorer.batch(graphs)
                scores = self.scorer.with_trees(model(batch), graphs)
                loss = loss_of(scores, torch.from_numpy(target), torch.from_numpy(task))
                for parameter, start in zip(model.parameters(), self._pretrained, strict=True):
                    loss = loss + settings.anchor * (parameter - start).square().sum()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                nodes += max(1, int(graphs.node_offsets[-1]))
                steps += 1
            model.eval()
        if not all(bool(p.isfinite().all()) for p in model.parameters()):
            # Training changes the parameters in place, so it must work on copies of the loaded tensors.
            model.load_state_dict({name: t.clone() for name, t in self.checkpoint.state.items()})

    def _draw(
        self, names: list[str], current: str, rng: np.random.Generator
    ) -> tuple[ProgramGraphs, npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """One step, half of it from the current task and half from up to three others: graphs, throughput and task."""
        half = self.settings.batch_size // 2
        others = [name for name in names if name != current]
        chosen = [(current, half if others else 2 * half)] if current in names else []
        if others:
            some = rng.choice(len(others), min(3, len(others)), replace=False)
            chosen += [(others[i], max(2, half // len(some))) for i in some]
        parts, targets, tasks = [], [], []
        for number, (name, count) in enumerate(chosen):
            buffer = self.buffers[name]
            rows = rng.permutation(len(buffer.latency))[:count]
            parts.append(buffer.graphs.select(rows))
            targets.append((np.min(buffer.latency) / buffer.latency[rows]).astype(np.float32))
            tasks.append(np.full(len(rows), number, np.int64))
        return ProgramGraphs.concatenate(parts), np.concatenate(targets), np.concatenate(tasks)

    def to_checkpoint(self) -> Checkpoint:
        """The pre-trained model; after updates with the present weights and the replay buffer."""
        if not self.buffers:
            return self.checkpoint
        extra = {f"now.{name}": tensor for name, tensor in self.scorer.model.state_dict().items()}
        tasks: list[dict[str, Any]] = []
        for number, (task, buffer) in enumerate(self.buffers.items()):
            tasks.append({"task": task, "type_names": list(buffer.graphs.type_names)})
            extra[f"buffer.{number}.latency"] = torch.from_numpy(buffer.latency)
            for attribute, name in FILE_NAMES.items():
                array = np.ascontiguousarray(getattr(buffer.graphs, attribute))
                extra[f"buffer.{number}.{name}"] = torch.from_numpy(array)
        return replace(self.checkpoint, extra=extra, extra_info={"updates": self.updates, "tasks": tasks})

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Takes the present weights and the replay buffer from a checkpoint of :meth:`to_checkpoint`."""
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
                latency = extra[f"buffer.{number}.latency"].numpy()
                wrong = "latency" if latency.shape != (len(graphs),) or not (latency > 0).all() else graphs.wrong()
                if wrong is not None:
                    raise ValueError(f"the {FILE_NAMES.get(wrong, wrong)} of task {number}")
                self.buffers[entry["task"]] = _TaskBuffer(graphs, latency)
            now = with_prefix(extra, "now.")
            self.scorer.model.load_state_dict({name: tensor.clone() for name, tensor in now.items()})
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{checkpoint}: what it learned in a search is damaged or missing ({error})") from error
