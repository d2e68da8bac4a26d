"""The cost model for MetaSchedule: ``cost_model=GNNCostModel("checkpoint")``; talks to TVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.extract import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.training.checkpoint import DEFAULT
from tvm_gnn_cost.tuning.online import OnlineSettings
from tvm_gnn_cost.tuning.search_model import SearchModel
from tvm_gnn_cost.which_tvm import need

try:
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
except ImportError:
    need("s_tir")
    raise


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
        search: The model itself, with the seconds it took and what it reported.

    Raises:
        ValueError: the file is missing or is no checkpoint.
    """

    def __init__(self, checkpoint: str | Path | None = None, settings: OnlineSettings | None = None) -> None:
        super().__init__()
        # Every TuneContext imports them, and beside torch it takes minutes unless it is done this way.
        import_tensor_intrin()
        self.search = SearchModel(Path(checkpoint or DEFAULT), settings)

    def load(self, path: str) -> None:
        """Restores weights, pre-trained weights and buffer of a file that :meth:`save` wrote, or starts anew from it.

        Raises:
            ValueError: the file is missing or is no checkpoint; the model stays what it was.
        """
        self.search.load(Path(path))

    def save(self, path: str) -> None:
        """Writes the pre-trained weights, the present ones and the buffer to one file."""
        self.search.save(Path(path))

    def update(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[Any]
    ) -> None:
        """Learns from measured candidates; a failed measurement counts as infinitely slow."""
        latency = np.array([_latency(result) for result in results])
        self.search.update(ms.utils.shash2hex(context.mod), lambda: self._extract(candidates), latency)

    def predict(
        self,
        context: ms.TuneContext,  # noqa: ARG002 (TVM's contract)
        candidates: Sequence[ms.MeasureCandidate],
    ) -> npt.NDArray[np.float64]:
        """float64[n] in [0, 1], higher is faster; 0 for what can't be scored."""
        return self.search.predict(lambda: self._extract(candidates), len(candidates))

    def _extract(self, candidates: Sequence[ms.MeasureCandidate]) -> ProgramGraphs:
        return extract_graphs(
            [candidate.sch.mod for candidate in candidates], detail=self.search.online.detail, on_error="skip"
        )


def _latency(result: Any) -> float:
    """Seconds, the median of the repeats; infinite for a failed measurement."""
    if result.error_msg is not None or not result.run_secs:
        return float("inf")
    return float(np.median([float(seconds) for seconds in result.run_secs]))
