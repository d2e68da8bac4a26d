"""The cost model for MetaSchedule, ``cost_model=GNNCostModel()``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin, preload_in_builders
from tvm_gnn_cost.schedulers.scheduler import median_repeat
from tvm_gnn_cost.scoring.checkpoint import DEFAULT
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.guard import GuardedModel

# An error that passes through TVM's C++ code, as those of load() do, would come out as a RuntimeError.
tvm_ffi.register_error(InputError)


@derived_object
class GNNCostModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """A graph neural network as MetaSchedule's cost model.

    It ranks candidates from the first round on, with the weights of its training, and learns from every measured round
    (:meth:`CostModel.update <tvm_gnn_cost.scoring.cost_model.CostModel.update>`). A candidate that cannot be read gets
    the lowest score, and the reason is logged once.

    From the first object on, the worker processes of TVM's ``LocalBuilder`` import TVM's tensor intrinsics in seconds;
    otherwise their first programs, or on a slow machine all, are lost to the builder's limit of 30 seconds.

    Args:
        model: A :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, or the path of a checkpoint; the one that ships if
            None. A model that is given learns in the search.
        strict: Whether an error of the model ends the search. If not, it is logged once, and the candidates that it
            could not score get 0.

    Attributes:
        search: The model, the seconds that it has taken and the problems that it has logged.

    Raises:
        InputError: the file is missing or not a checkpoint, or the model was trained for the other scheduler.

    >>> from tvm.s_tir import meta_schedule as ms
    >>> isinstance(GNNCostModel(), ms.cost_model.CostModel)
    True
    """

    def __init__(self, model: CostModel | str | os.PathLike[str] | None = None, *, strict: bool = False) -> None:
        super().__init__()
        # Otherwise the first TuneContext imports them, which takes minutes when torch is loaded.
        import_tensor_intrin()
        preload_in_builders()
        self.search = GuardedModel(DEFAULT if model is None else model, "meta-schedule", strict)

    def load(self, path: str) -> None:
        """Restores the state that :meth:`save` wrote, or starts again from a checkpoint of ``tvm-gnn-cost train``.

        Raises:
            InputError: the file is missing or is not a checkpoint; the model stays as it was.
        """
        self.search.load(path)

    def save(self, path: str) -> None:
        """Writes the model to one file, with the trees of its updates and the replay buffer."""
        self.search.model.save(path)

    def update(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[Any]
    ) -> None:
        """Learns from measured candidates of a task; a failed measurement counts as infinitely slow."""
        latency = np.array([_latency(result) for result in results])
        self.search.update(ms.utils.shash2hex(context.mod), lambda: self._extract(context, candidates), latency)

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1], higher is faster; 0 for a candidate that cannot be scored."""
        task = ms.utils.shash2hex(context.mod)
        return self.search.predict(lambda: self._extract(context, candidates), len(candidates), task)

    def _extract(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> ProgramGraphs:
        return self.search.model.graphs([candidate.sch.mod for candidate in candidates], context.target, "skip")


def _latency(result: Any) -> float:
    """The median of the repeats in seconds; infinite for a failed measurement."""
    ran = result.error_msg is None and result.run_secs
    return median_repeat([float(seconds) for seconds in result.run_secs] if ran else [])
