"""The part of a search's cost model that both schedulers share: an OnlineModel whose errors never stop a search."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.measuring.machine import timed
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.online import OnlineModel, OnlineSettings

logger = logging.getLogger(__name__)

Scores = npt.NDArray[np.float64]


class SearchModel:
    """Scores candidates and learns from measured ones; it logs an error once, with its traceback, and never raises.

    Args:
        checkpoint: A file that ``tvm-gnn-cost train`` or :meth:`save` wrote.
        settings: Settings of the updates.
        scheduler: The scheduler that it searches for; None for any.

    Attributes:
        timings: Seconds spent so far in ``extraction``, ``prediction`` and ``update``.
        reported: The messages that were logged.

    Raises:
        InputError: the file is missing, damaged or not a checkpoint, or is one of the other scheduler's.
    """

    def __init__(self, checkpoint: Path, settings: OnlineSettings | None = None, scheduler: str | None = None) -> None:
        self.settings, self.scheduler = settings, scheduler
        self.timings = {"extraction": 0.0, "prediction": 0.0, "update": 0.0}
        self.reported: set[str] = set()
        self.load(checkpoint)

    def load(self, path: Path) -> None:
        """Restores the weights and the replay buffer from a file of :meth:`save`, or starts from a trained model.

        Raises:
            InputError: the file is missing, damaged or not a checkpoint, or is one of the other scheduler's; the model
                stays unchanged.
        """
        checkpoint = Checkpoint.load(path)
        if self.scheduler is not None:
            checkpoint.check_scheduler(self.scheduler)
        self.online = OnlineModel.from_checkpoint(checkpoint, self.settings)

    def save(self, path: Path) -> None:
        """Writes the pre-trained weights, the present weights and the replay buffer to one file."""
        self.online.to_checkpoint().save(path)

    def predict(self, extract: Callable[[], ProgramGraphs], count: int) -> Scores:
        """Scores candidates: float64[count] in [0, 1], higher is faster; 0 for one that cannot be scored.

        Args:
            extract: Returns the candidates' graphs in the model's detail, without nodes for an unreadable candidate.
            count: Number of candidates.
        """
        try:
            graphs = self._timed_graphs(extract)
            with timed(self.timings, "prediction"):
                scores = self.online.score(graphs)
            return np.nan_to_num(scores, nan=0.0)
        except Exception as error:
            self.report(f"could not score candidates: {error}", error)
            return np.zeros(count)

    def store_shares(self, extract: Callable[[], ProgramGraphs], count: int) -> list[Scores]:
        """For each candidate the share of its cost at each of its stores: float64[stores]; empty after an error.

        Args:
            extract: See :meth:`predict`.
            count: Number of candidates.
        """
        try:
            return self.online.scorer.store_shares(extract())
        except Exception as error:
            self.report(f"could not score the stores of candidates: {error}", error)
            return [np.zeros(0)] * count

    def update(self, task: str, extract: Callable[[], ProgramGraphs], latency: Scores) -> None:
        """Learns from measured candidates of a task.

        Args:
            task: Name of the task.
            extract: See :meth:`predict`.
            latency: float64[count], latencies in seconds; infinite for a failed measurement.
        """
        try:
            graphs = self._timed_graphs(extract)
            with timed(self.timings, "update"):
                self.online.learn(task, graphs, latency)
        except Exception as error:
            self.report(f"could not learn from a measured round: {error}", error)

    def _timed_graphs(self, extract: Callable[[], ProgramGraphs]) -> ProgramGraphs:
        with timed(self.timings, "extraction"):
            graphs = extract()
        for error in graphs.errors.values():
            self.report(f"a candidate comes last because it can't be read: {error}")
        return graphs

    def report(self, message: str, error: Exception | None = None) -> None:
        """Logs a message, with the traceback of its error, unless it was logged before."""
        if message not in self.reported:
            self.reported.add(message)
            logger.warning("%s", message, exc_info=error)
