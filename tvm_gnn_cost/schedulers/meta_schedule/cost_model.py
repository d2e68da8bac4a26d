"""The cost model for MetaSchedule, ``cost_model=GNNCostModel("checkpoint")``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import summarise_repeats
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.scoring.checkpoint import DEFAULT
from tvm_gnn_cost.scoring.online import OnlineSettings
from tvm_gnn_cost.scoring.search_model import SearchModel

# An error that passes through TVM's C++ code, as those of load() do, would come out as a RuntimeError.
tvm_ffi.register_error(InputError)


@derived_object
class GNNCostModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """A graph neural network as MetaSchedule's cost model.

    It ranks candidates from the first round on, with the checkpoint's weights, and learns from every measured round
    (:class:`~tvm_gnn_cost.scoring.online.OnlineModel`). A candidate that cannot be scored gets the lowest score, and
    the reason is logged once. An error in here never stops a search.

    Args:
        checkpoint: A file written by ``tvm-gnn-cost train`` or :meth:`save`; the package's own checkpoint if None.
        settings: How the model learns from measurements.

    Attributes:
        search: The model, the seconds that it has taken and the problems that it has logged.

    Raises:
        InputError: the file is missing or is no checkpoint.
    """

    def __init__(self, checkpoint: str | Path | None = None, settings: OnlineSettings | None = None) -> None:
        super().__init__()
        # Otherwise the first TuneContext imports them, which takes minutes when torch is loaded.
        import_tensor_intrin()
        self.search = SearchModel(Path(checkpoint or DEFAULT), settings, "meta-schedule")

    def load(self, path: str) -> None:
        """Restores the state that :meth:`save` wrote, or starts again from a checkpoint of ``tvm-gnn-cost train``.

        Raises:
            InputError: the file is missing or is no checkpoint; the model is left as it was.
        """
        self.search.load(Path(path))

    def save(self, path: str) -> None:
        """Writes the pre-trained weights, the current weights and the replay buffer to one file."""
        self.search.save(Path(path))

    def update(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[Any]
    ) -> None:
        """Learns from measured candidates of a task; a failed measurement counts as infinitely slow."""
        latency = np.array([_latency(result) for result in results])
        self.search.update(ms.utils.shash2hex(context.mod), lambda: self._extract(context, candidates), latency)

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1], higher is faster; 0 for a candidate that cannot be scored."""
        return self.search.predict(lambda: self._extract(context, candidates), len(candidates))

    def _extract(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> ProgramGraphs:
        mods = [candidate.sch.mod for candidate in candidates]
        return extract_graphs(mods, context.target, detail=self.search.online.detail, on_error="skip")


def _latency(result: Any) -> float:
    """The fastest repeat in seconds; infinite for a failed measurement."""
    ran = result.error_msg is None and result.run_secs
    return summarise_repeats([float(seconds) for seconds in result.run_secs] if ran else [])[0]
