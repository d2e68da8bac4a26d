"""The cost model for ``auto_scheduler``, ``SketchPolicy(task, program_cost_model=GNNCostModel())``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import auto_scheduler
from tvm.auto_scheduler.cost_model.cost_model import PythonBasedModel

from tvm_gnn_cost.datasets.records import Problem, last_line
from tvm_gnn_cost.datasets.tenset import parse_record, record_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_states
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers.auto_scheduler.records import parse_state
from tvm_gnn_cost.schedulers.scheduler import median_repeat
from tvm_gnn_cost.scoring.checkpoint import DEFAULT_AUTO_SCHEDULER
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.guard import GuardedModel


class GNNCostModel(PythonBasedModel):  # type: ignore[misc]
    """A graph neural network as ``auto_scheduler``'s cost model.

    It ranks states from the first round on, with the weights of its training, and learns from every measured round
    (:meth:`CostModel.update <tvm_gnn_cost.scoring.cost_model.CostModel.update>`). A state that cannot be read gets the
    lowest score, and the reason is logged once. One model serves the policies of any number of tasks.

    Args:
        model: A :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, or the path of a checkpoint; the one that ships if
            None. A model that is given learns in the search.
        strict: Whether an error of the model ends the search. If not, it is logged once, and the states that it could
            not score get 0.

    Attributes:
        search: The model, the seconds that it has taken and the problems that it has logged.

    Raises:
        InputError: the file is missing or not a checkpoint, or the model was trained for the other scheduler.
    """

    def __init__(self, model: CostModel | str | os.PathLike[str] | None = None, *, strict: bool = False) -> None:
        super().__init__()
        self.search = GuardedModel(DEFAULT_AUTO_SCHEDULER if model is None else model, "auto-scheduler", strict)

    def load(self, file_name: str) -> None:
        """Restores the state that :meth:`save` wrote, or starts again from a checkpoint of ``tvm-gnn-cost train``.

        Raises:
            InputError: the file is missing or is not a checkpoint; the model stays as it was.
        """
        self.search.load(file_name)

    def save(self, file_name: str) -> None:
        """Writes the model to one file, with the trees of its updates and the replay buffer."""
        self.search.model.save(file_name)

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learns from measured states of one or several tasks; a failed measurement counts as infinitely slow."""
        pairs = sorted(zip(inputs, results, strict=True), key=lambda pair: _task_name(pair[0].task))
        for name, group in groupby(pairs, key=lambda pair: _task_name(pair[0].task)):
            measured = list(group)
            task, states = measured[0][0].task, [one.state for one, _ in measured]
            latency = [_latency(result) for _, result in measured]
            self._update_task(name, task.compute_dag, str(task.target), states, latency)

    def _update_task(self, name: str, dag: Any, target: str, states: Sequence[Any], latency: Sequence[float]) -> None:
        self.search.update(name, lambda: self._extract(dag, target, states), np.array(latency))

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learns from a file of measure records.

        As for ``auto_scheduler``'s own models, the workloads of the records must be registered. A line that is no
        record, or whose workload is not registered, is left out and logged.

        Args:
            file_name: The file.
            n_lines: Number of lines to read; all if None.

        Raises:
            InputError: there is no such file.
        """
        if not Path(file_name).is_file():
            raise InputError(f"{file_name}: there is no such file of measure records")
        dags: dict[str, Any] = {}
        measured: dict[tuple[str, str], list[tuple[Any, float]]] = {}
        for line in islice(record_lines(Path(file_name)), n_lines):
            try:
                record = parse_record(line)
                key = record.workload_key
                if key not in dags:
                    dags[key] = _registered_dag(key)
                latency = median_repeat(record.run_secs)
                measured.setdefault((key, record.target), []).append((parse_state(line), latency))
            except InputError as error:
                self.search.report(str(Problem(line.file, line.line, str(error))))
        for (key, target), group in measured.items():
            states, latencies = [state for state, _ in group], [latency for _, latency in group]
            self._update_task(f"{key} {target}", dags[key], target, states, latencies)

    def predict(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1], higher is faster; 0 for a state that cannot be scored."""
        extract = partial(self._extract, task.compute_dag, str(task.target), states)
        return self.search.predict(extract, len(states), _task_name(task))

    def predict_stages(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """The scores of states and of their stores, packed as ``auto_scheduler`` reads them.

        Returns:
            float64[n + the sum of 1 + stores over the n states]: the scores of :meth:`predict`, then for each state the
            number of its stores and the negative share of its cost that each store has (higher is faster), in program
            order. The number is 0 for a state that cannot be scored, and if the model has no cost per store.
        """
        extract = cache(lambda: self._extract(task.compute_dag, str(task.target), states))
        scores = self.search.predict(extract, len(states), _task_name(task))
        shares = self.search.store_shares(extract, len(states))
        return np.concatenate([scores, *(np.concatenate([[len(share)], -share]) for share in shares)])

    def _extract(self, dag: auto_scheduler.ComputeDAG, target: str, states: Sequence[Any]) -> ProgramGraphs:
        return extract_states(dag, states, target, detail=self.search.model.detail, on_error="skip")


def make_policies(
    tasks: Sequence[auto_scheduler.SearchTask], model: GNNCostModel, **settings: Any
) -> list[auto_scheduler.SketchPolicy]:
    """A ``SketchPolicy`` for each task, all with the same model, for ``TaskScheduler.tune(search_policy=...)``.

    Args:
        tasks: The tasks of the ``TaskScheduler``.
        model: The cost model.
        settings: Further arguments of ``SketchPolicy``: ``params``, ``seed``, ``verbose``, ``init_search_callbacks``.
    """
    return [auto_scheduler.SketchPolicy(task, program_cost_model=model, **settings) for task in tasks]


def _task_name(task: auto_scheduler.SearchTask) -> str:
    """Workload and target: a workload's latencies on two machines are not comparable."""
    return f"{task.workload_key} {task.target}"


def _latency(result: Any) -> float:
    """The median of the repeats in seconds; infinite for a failed measurement."""
    return median_repeat([float(seconds) for seconds in result.costs] if result.error_no == 0 else [])


def _registered_dag(workload_key: str) -> Any:
    try:
        return auto_scheduler.ComputeDAG(workload_key)
    # TVM's registry, and the function that is registered, raise errors of any type.
    except Exception as error:
        raise InputError(f"its task {workload_key[:80]} is not registered ({last_line(error)})") from error
