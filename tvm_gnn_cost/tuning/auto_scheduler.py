"""The cost model for Ansor: ``SketchPolicy(task, program_cost_model=GNNCostModel())``; talks to a TVM up to 0.19."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.extract_legacy import extract_states
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.training.checkpoint import DEFAULT_AUTO_SCHEDULER
from tvm_gnn_cost.tuning.online import OnlineSettings
from tvm_gnn_cost.tuning.search_model import SearchModel
from tvm_gnn_cost.which_tvm import need

try:
    from tvm import auto_scheduler
    from tvm.auto_scheduler.cost_model.cost_model import PythonBasedModel
except ImportError:
    need("auto_scheduler")
    raise


class GNNCostModel(PythonBasedModel):  # type: ignore[misc]
    """A graph neural network as ``auto_scheduler``'s cost model.

    It ranks from the first round on, with the checkpoint's weights, and learns from every measured round
    (:class:`~tvm_gnn_cost.tuning.online.OnlineModel`). A state that can't be scored gets the lowest score; why is
    logged once. Nothing that goes wrong in here stops a search. One model serves the policies of any number of tasks.

    Args:
        checkpoint: A file that ``tvm-gnn-cost train`` or :meth:`save` wrote; the package's own if None.
        settings: How measurements change the model.

    Raises:
        ValueError: the file is missing or is no checkpoint.
    """

    def __init__(self, checkpoint: str | Path | None = None, settings: OnlineSettings | None = None) -> None:
        super().__init__()
        self.search = SearchModel(Path(checkpoint or DEFAULT_AUTO_SCHEDULER), settings)

    def load(self, file_name: str) -> None:
        """Restores weights, pre-trained weights and buffer of a file that :meth:`save` wrote, or starts anew from it.

        Raises:
            ValueError: the file is missing or is no checkpoint; the model stays what it was.
        """
        self.search.load(Path(file_name))

    def save(self, file_name: str) -> None:
        """Writes the pre-trained weights, the present ones and the buffer to one file."""
        self.search.save(Path(file_name))

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learns from measured states, of one task or several; a failed measurement counts as infinitely slow."""
        pairs = sorted(zip(inputs, results, strict=True), key=lambda pair: str(pair[0].task.workload_key))
        for key, group in groupby(pairs, key=lambda pair: str(pair[0].task.workload_key)):
            self._update_task(key, list(group))

    def _update_task(self, key: str, measured: Sequence[tuple[Any, Any]]) -> None:
        task, states = measured[0][0].task, [one.state for one, _ in measured]
        latency = np.array([_latency(result) for _, result in measured])
        self.search.update(key, lambda: self._extract(task, states), latency)

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learns from the records of a log, the first ``n_lines`` of it or all.

        The tasks' workloads must be registered, as for ``auto_scheduler``'s own models.

        Raises:
            ValueError: there is no such file.
        """
        if not Path(file_name).is_file():
            raise ValueError(f"{file_name}: there is no such file of measure records")
        inputs, results = auto_scheduler.RecordReader(file_name).read_lines(n_lines)
        # A record has no ComputeDAG; making one takes long, so each task gets its own once.
        tasks: dict[str, auto_scheduler.SearchTask] = {}
        whole = []
        for one in inputs:
            key = str(one.task.workload_key)
            if key not in tasks:
                tasks[key] = auto_scheduler.measure.recover_measure_input(one).task
            whole.append(auto_scheduler.MeasureInput(tasks[key], one.state))
        self.update(whole, results)

    def predict(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """float64[n] in [0, 1], higher is faster; 0 for what can't be scored."""
        return self.search.predict(lambda: self._extract(task, states), len(states))

    def predict_stages(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """The scores, and each store's share of its state's cost, in the packed form that ``auto_scheduler`` reads.

        float64[n + (1 + stores) of each state]: n scores, then a state at a time the number of its stores and minus
        the share of each, in the order of the program (higher is faster, as everywhere); 0 stores for a state that
        can't be scored or a model without added costs.
        """
        scores = self.predict(task, states)
        shares = self.search.store_shares(lambda: self._extract(task, states), len(states))
        return np.concatenate([scores, *(np.concatenate([[len(share)], -share]) for share in shares)])

    def _extract(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> ProgramGraphs:
        return extract_states(task.compute_dag, states, detail=self.search.online.detail, on_error="skip")


def make_policies(
    tasks: Sequence[auto_scheduler.SearchTask], model: GNNCostModel, **settings: Any
) -> list[auto_scheduler.SketchPolicy]:
    """A ``SketchPolicy`` for each task, all with one model, for ``TaskScheduler.tune(search_policy=...)``.

    Args:
        tasks: Those of the ``TaskScheduler``.
        model: The cost model.
        settings: Further arguments of ``SketchPolicy`` (``params``, ``seed``, ``verbose``, ``init_search_callbacks``).
    """
    return [auto_scheduler.SketchPolicy(task, program_cost_model=model, **settings) for task in tasks]


def _latency(result: Any) -> float:
    """Seconds, the median of the repeats; infinite for a failed measurement."""
    if result.error_no != 0 or not result.costs:
        return float("inf")
    return float(np.median([float(seconds) for seconds in result.costs]))
