"""The cost model for MetaSchedule: ``cost_model=GNNCostModel("checkpoint")``; talks to TVM."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.graphs.extract import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.training.checkpoint import DEFAULT, Checkpoint
from tvm_gnn_cost.tuning.online import OnlineModel, OnlineSettings

logger = logging.getLogger(__name__)


@derived_object
class GNNCostModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """A graph neural network as MetaSchedule's cost model.

    It ranks from the first round on, with the checkpoint's weights, and learns from every measured round
    (:class:`~tvm_gnn_cost.tuning.online.OnlineModel`). A candidate that can't be scored gets the lowest score; why is
    logged once. Nothing that goes wrong in here stops a search.

    Args:
        checkpoint: A file that ``tvm-gnn-cost train`` or :meth:`save` wrote; the one of the package if None.
        settings: How measurements change the model.

    Attributes:
        timings: Seconds spent so far in ``extraction``, ``prediction`` and ``update``.

    Raises:
        ValueError: the file is missing or is no checkpoint.
    """

    def __init__(self, checkpoint: str | Path | None = None, settings: OnlineSettings | None = None) -> None:
        super().__init__()
        # Every TuneContext imports them, and beside torch it takes minutes unless it is done this way.
        import_tensor_intrin()
        self.settings = settings
        self.timings = {"extraction": 0.0, "prediction": 0.0, "update": 0.0}
        self.reported: set[str] = set()
        self.model = self._read(checkpoint or DEFAULT)

    def load(self, path: str) -> None:
        """Restores weights, pre-trained weights and buffer of a file that :meth:`save` wrote, or starts anew from it.

        Raises:
            ValueError: the file is missing or is no checkpoint; the model stays what it was.
        """
        self.model = self._read(path)

    def save(self, path: str) -> None:
        """Writes the pre-trained weights, the present ones and the buffer to one file."""
        self.model.to_checkpoint().save(Path(path))

    def update(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[Any]
    ) -> None:
        """Learns from measured candidates; a failed measurement counts as infinitely slow."""
        try:
            graphs = self._extract(candidates)
            latency = np.array([_latency(result) for result in results])
            with self._timed("update"):
                self.model.learn(ms.utils.shash2hex(context.mod), graphs, latency)
        except Exception as error:
            self._report(f"could not learn from a measured round: {error}")

    def predict(
        self,
        context: ms.TuneContext,  # noqa: ARG002 (TVM's contract)
        candidates: Sequence[ms.MeasureCandidate],
    ) -> npt.NDArray[np.float64]:
        """float64[n] in [0, 1], higher is faster; 0 for what can't be scored."""
        try:
            graphs = self._extract(candidates)
            with self._timed("prediction"):
                scores = self.model.score(graphs)
            return np.nan_to_num(scores, nan=0.0)
        except Exception as error:
            self._report(f"could not score a population of {len(candidates)}: {error}")
            return np.zeros(len(candidates))

    def _read(self, path: str | Path) -> OnlineModel:
        return OnlineModel.from_checkpoint(Checkpoint.load(Path(path)), self.settings)

    def _extract(self, candidates: Sequence[ms.MeasureCandidate]) -> ProgramGraphs:
        with self._timed("extraction"):
            graphs = extract_graphs(
                [candidate.sch.mod for candidate in candidates], detail=self.model.detail, on_error="skip"
            )
        for error in graphs.errors.values():
            self._report(f"a candidate comes last because it can't be read: {error}")
        return graphs

    def _report(self, message: str) -> None:
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


def _latency(result: Any) -> float:
    """Seconds, the median of the repeats; infinite for a failed measurement."""
    if result.error_msg is not None or not result.run_secs:
        return float("inf")
    return float(np.median([float(seconds) for seconds in result.run_secs]))
