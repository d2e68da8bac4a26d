"""A cost model in a search, whose errors end no search unless that is asked for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.measuring.machine import timed
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.scorer import Scores

logger = logging.getLogger(__name__)


class GuardedModel:
    """Scores candidates and learns from measured ones; logs an error once, with its traceback, and raises it if strict.

    Args:
        model: The model, or its path.
        scheduler: The scheduler that searches.
        strict: Whether errors are raised.

    Attributes:
        model: The model.
        timings: Seconds spent so far in ``extraction``, ``prediction`` and ``update``.
        reported: The messages that were logged.
        batches: Number of batches that were to be scored or learned from.
        failed: Number of these that the model failed for.
        reason: The first failure's message; empty without one.

    Raises:
        InputError: the file is missing, damaged or not a checkpoint, or the model is of another scheduler.
    """

    def __init__(self, model: CostModel | str | os.PathLike[str], scheduler: str, strict: bool = False) -> None:
        self.scheduler, self.strict = scheduler, strict
        self.timings = {"extraction": 0.0, "prediction": 0.0, "update": 0.0}
        self.reported: set[str] = set()
        self.batches, self.failed, self.reason = 0, 0, ""
        self.model = model if isinstance(model, CostModel) else CostModel.load(model)
        self.model.check_scheduler(scheduler)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces the model by one of a file, with what it learned in a search; the settings of the updates stay.

        Raises:
            InputError: see the class; the model stays unchanged.
        """
        model = CostModel.load(path, self.model.settings)
        model.check_scheduler(self.scheduler)
        self.model = model

    def predict(self, extract: Callable[[], ProgramGraphs], count: int, task: str | None = None) -> Scores:
        """Scores a batch of candidates: float64[count] in [0, 1], higher is faster; 0 for one that cannot be scored.

        Args:
            extract: Returns the candidates' graphs in the model's detail, without nodes for an unreadable candidate.
            count: Number of candidates.
            task: Name of their task, see :meth:`CostModel.predict`.
        """
        scores = np.zeros(count)
        with self._batch("could not score candidates"):
            graphs = self._timed_graphs(extract)
            with timed(self.timings, "prediction"):
                scores = np.nan_to_num(self.model.predict(graphs, task=task), nan=0.0)
        return scores

    def store_shares(self, extract: Callable[[], ProgramGraphs], count: int) -> list[Scores]:
        """For each candidate the share of its cost at each of its stores: float64[stores]; empty after an error.

        Args:
            extract: See :meth:`predict`.
            count: Number of candidates.
        """
        with self._batch("could not score the stores of candidates"):
            return self.model.scorer.store_shares(extract())
        return [np.zeros(0)] * count

    def update(self, task: str, extract: Callable[[], ProgramGraphs], latency: Scores) -> None:
        """Learns from a batch of measured candidates of a task.

        Args:
            task: Name of the task.
            extract: See :meth:`predict`.
            latency: float64[count], latencies in seconds; infinite for a failed measurement.
        """
        with self._batch("could not learn from a measured round"):
            graphs = self._timed_graphs(extract)
            with timed(self.timings, "update"):
                self.model.update(graphs, latency, task=task)

    @contextmanager
    def _batch(self, failure: str) -> Iterator[None]:
        """Counts a batch, and its error if there is one."""
        self.batches += 1
        try:
            yield
        except Exception as error:
            if self.strict:
                raise
            self.failed += 1
            self.reason = self.reason or f"{failure}: {error}"
            self.report(f"{failure}: {error}", error)

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
