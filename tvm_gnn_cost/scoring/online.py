"""A pre-trained model that keeps learning from the programs that a search measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import FILE_NAMES, Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.models.losses import combine
from tvm_gnn_cost.scoring.checkpoint import Checkpoint, Scorer
from tvm_gnn_cost.scoring.tensor_file import with_prefix

#: The network scores at least so many candidates and this share of a population; trees take a fraction of its time.
_LEAST_LISTED, _SHARE_LISTED = 64, 0.25


@dataclass(frozen=True)
class OnlineSettings:
    """Settings of the updates during a search.

    Attributes:
        nodes_per_update: Number of graph nodes that an update trains on at most. It bounds nodes, not seconds, so that
            a seed gives the same search on a busy machine too.
        steps_per_program: Number of steps of an update for each program that was just measured.
        programs_per_step: Number of programs in a step, half of them of the task that was just measured.
        buffer_programs: Size of the replay buffer.
        learning_rate: Learning rate of AdamW.
        anchor: Strength of the pull towards the pre-trained weights (L2-SP, Li et al. 2018, arXiv:1802.01483).
        loss: One of ``models.losses.LOSSES``, or several joined by ``+``.
        seed: Seeds the draws from the buffer.
    """

    nodes_per_update: int = 20_000
    steps_per_program: float = 0.5
    programs_per_step: int = 16
    buffer_programs: int = 4096
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


class OnlineModel:
    """Scores programs and learns from measured ones, starting from a checkpoint.

    An update takes a few steps from the network's present weights, half on the task that was just measured and half on
    others from the replay buffer, and is pulled towards the pre-trained weights, so that it costs little and does not
    drift away in a long search. The trees stay as they are.

    Args:
        checkpoint: The pre-trained model.
        settings: Settings of the updates.

    Raises:
        InputError: the checkpoint does not fit this version, see :class:`~tvm_gnn_cost.scoring.checkpoint.Scorer`.
    """

    def __init__(self, checkpoint: Checkpoint, settings: OnlineSettings | None = None) -> None:
        self.settings = settings or OnlineSettings()
        self.checkpoint = checkpoint
        self.scorer = Scorer(checkpoint)
        self.buffers: dict[str, _TaskBuffer] = {}
        self.updates = 0
        self._pretrained = [parameter.detach().clone() for parameter in self.scorer.model.parameters()]

    @property
    def detail(self) -> Detail:
        """The detail of the graphs that the model reads."""
        return self.scorer.config.detail

    @property
    def buffer_size(self) -> int:
        """Number of programs in the replay buffer."""
        return sum(len(buffer.latency) for buffer in self.buffers.values())

    def score(self, graphs: ProgramGraphs) -> npt.NDArray[np.float64]:
        """Scores G graphs: float64[G] in [0, 1], higher is faster; 0 for a graph without nodes.

        In a large population the network sees only the candidates that the trees rank best. The scores are not
        calibrated: a search draws the parents of its next candidates in proportion to them, and calibrated scores lie
        closer together.
        """
        count = max(_LEAST_LISTED, math.ceil(_SHARE_LISTED * len(graphs)))
        result: npt.NDArray[np.float64] = expit(self.scorer.score_shortlist(graphs, count))
        return result

    def learn(self, task: str, graphs: ProgramGraphs, latency: npt.NDArray[np.float64]) -> None:
        """Adds measured programs to the replay buffer and updates the model.

        Args:
            task: Name of the task.
            graphs: P graphs; those without nodes are ignored.
            latency: float64[P], latencies in seconds; infinite for a failed program.
        """
        usable = np.flatnonzero(graphs.node_counts > 0)
        if not len(usable):
            return
        new = _TaskBuffer(graphs.select(usable), np.asarray(latency, np.float64)[usable])
        old = self.buffers.get(task)
        if old is not None:
            joined = ProgramGraphs.concatenate([old.graphs, new.graphs])
            new = _TaskBuffer(joined, np.concatenate([old.latency, new.latency]))
        self.buffers[task] = new
        self._forget()
        self._train(task, math.ceil(self.settings.steps_per_program * len(usable)))
        self.updates += 1

    def _forget(self) -> None:
        """Shrinks the buffer to its size: drops the oldest programs of the largest task, but not its fastest one."""
        while (excess := self.buffer_size - self.settings.buffer_programs) > 0:
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
                batch = self.scorer.batch(graphs, task)
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
        half = self.settings.programs_per_step // 2
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
        """A checkpoint with the pre-trained weights, the present weights and the replay buffer."""
        extra = {f"now.{name}": tensor for name, tensor in self.scorer.model.state_dict().items()}
        tasks: list[dict[str, Any]] = []
        for number, (task, buffer) in enumerate(self.buffers.items()):
            tasks.append({"task": task, "type_names": list(buffer.graphs.type_names)})
            extra[f"buffer.{number}.latency"] = torch.from_numpy(buffer.latency)
            for attribute, name in FILE_NAMES.items():
                array = np.ascontiguousarray(getattr(buffer.graphs, attribute))
                extra[f"buffer.{number}.{name}"] = torch.from_numpy(array)
        return replace(self.checkpoint, extra=extra, extra_info={"updates": self.updates, "tasks": tasks})

    @staticmethod
    def from_checkpoint(checkpoint: Checkpoint, settings: OnlineSettings | None = None) -> OnlineModel:
        """Restores a model from a checkpoint of :meth:`to_checkpoint` or from one that was never in a search.

        Raises:
            InputError: the checkpoint does not fit this version, or its buffer or present weights are damaged.
        """
        extra, info = checkpoint.extra, checkpoint.extra_info
        model = OnlineModel(replace(checkpoint, extra={}, extra_info={}), settings)
        if not info:
            return model
        try:
            model.updates = int(info["updates"])
            tasks: list[dict[str, Any]] = info["tasks"]
            for number, entry in enumerate(tasks):
                arrays: dict[str, Any] = {
                    attribute: extra[f"buffer.{number}.{name}"].numpy() for attribute, name in FILE_NAMES.items()
                }
                graphs = ProgramGraphs(type_names=tuple(entry["type_names"]), detail=model.detail, **arrays)
                if graphs.x.shape[1] != len(VALUES):
                    raise ValueError(f"{graphs.x.shape[1]} features per node, expected {len(VALUES)}")
                latency = extra[f"buffer.{number}.latency"].numpy()
                wrong = "latency" if latency.shape != (len(graphs),) or not (latency > 0).all() else graphs.wrong()
                if wrong is not None:
                    raise ValueError(f"the {FILE_NAMES.get(wrong, wrong)} of task {number}")
                model.buffers[entry["task"]] = _TaskBuffer(graphs, latency)
            now = with_prefix(extra, "now.")
            model.scorer.model.load_state_dict({name: tensor.clone() for name, tensor in now.items()})
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{checkpoint}: what it learned in a search is damaged or missing ({error})") from error
        return model
