"""The cost model for Ansor: ``SketchPolicy(task, program_cost_model=GNNCostModel())``; talks to a TVM up to 0.19."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.records import Problem, last_line, summarise_repeats
from tvm_gnn_cost.datasets.tenset import parse_record, parse_state, record_lines
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
        pairs = sorted(zip(inputs, results, strict=True), key=lambda pair: _task_name(pair[0].task))
        for name, group in groupby(pairs, key=lambda pair: _task_name(pair[0].task)):
            measured = list(group)
            dag, states = measured[0][0].task.compute_dag, [one.state for one, _ in measured]
            latency = [_latency(result) for _, result in measured]
            self._update_task(name, dag, states, latency)

    def _update_task(self, name: str, dag: Any, states: Sequence[Any], latency: Sequence[float]) -> None:
        self.search.update(name, lambda: self._extract(dag, states), np.array(latency))

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learns from the records of a log, the first ``n_lines`` of it or all.

        The tasks' workloads must be registered, as for ``auto_scheduler``'s own models. A line that is no record, or of
        a task that is not registered, is left out, which is logged.

        Raises:
            ValueError: there is no such file.
        """
        if not Path(file_name).is_file():
            raise ValueError(f"{file_name}: there is no such file of measure records")
        dags: dict[str, Any] = {}
        measured: dict[tuple[str, str], list[tuple[Any, float]]] = {}
        for line in islice(record_lines(Path(file_name)), n_lines):
            try:
                record = parse_record(line)
                key = record.workload_key
                if key not in dags:
                    dags[key] = _registered_dag(key)
                latency = summarise_repeats(record.run_secs)[0]
                measured.setdefault((key, record.target), []).append((parse_state(line), latency))
            except ValueError as error:
                self.search.report(f"{Problem(line.file, line.line, str(error))}")
        for (key, target), group in measured.items():
            states, latencies = [state for state, _ in group], [latency for _, latency in group]
            self._update_task(f"{key} {target}", dags[key], states, latencies)

    def predict(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """float64[n] in [0, 1], higher is faster; 0 for what can't be scored."""
        return self.search.predict(lambda: self._extract(task.compute_dag, states), len(states))

    def predict_stages(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """The scores, and each store's share of its state's cost, in the packed form that ``auto_scheduler`` reads.

        float64[n + (1 + stores) of each state]: n scores, then a state at a time the number of its stores and minus
        the share of each, in the order of the program (higher is faster, as everywhere); 0 stores for a state that
        can't be scored or a model without added costs.
        """
        extract = cache(lambda: self._extract(task.compute_dag, states))
        scores = self.search.predict(extract, len(states))
        shares = self.search.store_shares(extract, len(states))
        return np.concatenate([scores, *(np.concatenate([[len(share)], -share]) for share in shares)])

    def _extract(self, dag: auto_scheduler.ComputeDAG, states: Sequence[Any]) -> ProgramGraphs:
        return extract_states(dag, states, detail=self.search.online.detail, on_error="skip")


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


def _task_name(task: auto_scheduler.SearchTask) -> str:
    """Of two machines' measurements of one workload, those of one say nothing about the other's best."""
    return f"{task.workload_key} {task.target}"


def _latency(result: Any) -> float:
    """Seconds, the median of the repeats; infinite for a failed measurement."""
    return summarise_repeats([float(seconds) for seconds in result.costs] if result.error_no == 0 else [])[0]


def _registered_dag(workload_key: str) -> Any:
    try:
        return auto_scheduler.ComputeDAG(workload_key)
    # TVM's registry raises whatever it stumbles over.
    except Exception as error:
        raise ValueError(f"its task {workload_key[:80]} is not registered ({last_line(error)})") from error
