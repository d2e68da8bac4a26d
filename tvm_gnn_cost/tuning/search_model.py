"""What the cost models of both schedulers share: an :class:`OnlineModel` that nothing can stop a search with."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.training.checkpoint import Checkpoint
from tvm_gnn_cost.tuning.online import OnlineModel, OnlineSettings

logger = logging.getLogger(__name__)

Scores = npt.NDArray[np.float64]


class SearchModel:
    """Scores candidates and learns from measured ones; what goes wrong is logged once, and the search goes on.

    Args:
        checkpoint: A file that ``tvm-gnn-cost train`` or :meth:`save` wrote.
        settings: How measurements change the model.

    Attributes:
        timings: Seconds spent so far in ``extraction``, ``prediction`` and ``update``.
        reported: What was logged.

    Raises:
        ValueError: the file is missing or is no checkpoint.
    """

    def __init__(self, checkpoint: Path, settings: OnlineSettings | None = None) -> None:
        self.settings = settings
        self.timings = {"extraction": 0.0, "prediction": 0.0, "update": 0.0}
        self.reported: set[str] = set()
        self.load(checkpoint)

    def load(self, path: Path) -> None:
        """Restores weights, pre-trained weights and buffer of a file that :meth:`save` wrote, or starts anew from it.

        Raises:
            ValueError: the file is missing or is no checkpoint; the model stays what it was.
        """
        self.online = OnlineModel.from_checkpoint(Checkpoint.load(path), self.settings)

    def save(self, path: Path) -> None:
        """Writes the pre-trained weights, the present ones and the buffer to one file."""
        self.online.to_checkpoint().save(path)

    def predict(self, extract: Callable[[], ProgramGraphs], count: int) -> Scores:
        """float64[count] in [0, 1], higher is faster; 0 for what can't be scored.

        Args:
            extract: Gives the candidates' graphs, of the model's detail, empty for one that can't be read.
            count: Number of candidates.
        """
        try:
            graphs = self._timed_graphs(extract)
            with self._timed("prediction"):
                scores = self.online.score(graphs)
            return np.nan_to_num(scores, nan=0.0)
        except Exception as error:
            self.report(f"could not score a population of {count}: {error}")
            return np.zeros(count)

    def store_shares(self, extract: Callable[[], ProgramGraphs], count: int) -> list[Scores]:
        """For each candidate the shares of its cost that its stores have, float64[stores]; none if it can't be read."""
        try:
            return self.online.scorer.store_shares(extract())
        except Exception as error:
            self.report(f"could not score the stores of {count} candidates: {error}")
            return [np.zeros(0)] * count

    def update(self, task: str, extract: Callable[[], ProgramGraphs], latency: Scores) -> None:
        """Learns from measured candidates of a task, float64 seconds; infinite where the measurement failed."""
        try:
            graphs = self._timed_graphs(extract)
            with self._timed("update"):
                self.online.learn(task, graphs, latency)
        except Exception as error:
            self.report(f"could not learn from a measured round: {error}")

    def _timed_graphs(self, extract: Callable[[], ProgramGraphs]) -> ProgramGraphs:
        with self._timed("extraction"):
            graphs = extract()
        for error in graphs.errors.values():
            self.report(f"a candidate comes last because it can't be read: {error}")
        return graphs

    def report(self, message: str) -> None:
        """Logs it, once."""
        if message not in self.reported:
            self.reported.add(message)
            logger.warning("%s", message)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[what] += time.perf_counter() - start


def checkpoint_named(cost_model: str) -> str | None:
    """The checkpoint that a cost model's name stands for: None, the package's own, for ``gnn``, else the path itself.

    Raises:
        ValueError: there is no such file.
    """
    if cost_model == "gnn":
        return None
    if not Path(cost_model).is_file():
        raise ValueError(f"cost model '{cost_model}': neither gnn, xgb or random nor the path of a checkpoint file")
    return cost_model
