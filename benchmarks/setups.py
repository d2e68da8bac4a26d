"""What the benchmarks of searches and scores need of each scheduler beyond its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Task


class Setup(Protocol):
    """Networks of a scheduler, and calls of TVM's objects.

    Attributes:
        searched: Networks whose two heaviest tasks are searched.
        searches: Cost models of the searches; ``tvm`` is TVM's own search (``tvm_search.py``).
        scored: Network -> number of its largest tasks whose programs are scored.
        population: Number of programs of a task that are scored at a time.
        smallest: Network of quick runs.
    """

    searched: Sequence[str]
    searches: Sequence[str]
    scored: Mapping[str, int]
    population: int
    smallest: str

    def size(self, task: Task) -> float:
        """Size of a task's programs for a cost model, in any unit."""

    def xgb(self, seed: int) -> Any:
        """TVM's XGBoost cost model, trained from the first round on.

        By default it returns random scores for its first 100 or more measurements, more than these searches make.
        """

    def context(self, task: Task, target: Any) -> Any:
        """The first argument of a cost model's ``predict``."""

    def update(self, model: Any, task: Task, target: Any, candidates: Sequence[Any], seconds: Sequence[float]) -> None:
        """Updates a cost model with candidates and their latencies."""

    def graphs(self, task: Task, target: Any, candidates: Sequence[Any]) -> ProgramGraphs:
        """The graphs of candidates, of detail ``statements``."""

    def features(self, task: Task, target: Any, candidates: Sequence[Any]) -> Sequence[npt.NDArray[np.float32]]:
        """TVM's features of each candidate, float32[stores, 164]."""


class MetaScheduleSetup:
    """See :class:`Setup`."""

    searched: Sequence[str] = ("resnet-18", "mobilenet-v2")
    searches: Sequence[str] = ("gnn", "xgb", "random", "tvm")
    # Their largest tasks are convolutions of three networks, an attention block and a transposed convolution.
    scored: Mapping[str, int] = dict.fromkeys(("resnet-18", "mobilenet-v2", "inception-v3", "bert-tiny", "dcgan"), 1)
    population = 512
    smallest = "perceptron"

    def size(self, task: Task) -> float:  # noqa: D102
        return len(str(task.workload.dispatched[0]))

    def xgb(self, _seed: int) -> Any:  # noqa: D102
        from tvm.s_tir.meta_schedule.cost_model import XGBModel

        return XGBModel(num_warmup_samples=1)

    def context(self, task: Task, target: Any) -> Any:  # noqa: D102
        from tvm.s_tir.meta_schedule import TuneContext

        return TuneContext(task.workload.dispatched[0], target=target)

    def update(  # noqa: D102
        self, model: Any, task: Task, target: Any, candidates: Sequence[Any], seconds: Sequence[float]
    ) -> None:
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        model.update(self.context(task, target), candidates, [RunnerResult([one], None) for one in seconds])

    def graphs(self, _task: Task, target: Any, candidates: Sequence[Any]) -> ProgramGraphs:  # noqa: D102
        from tvm_gnn_cost.graphs.extraction import extract_graphs

        return extract_graphs([one.sch.mod for one in candidates], target, detail="statements", on_error="skip")

    def features(  # noqa: D102
        self, task: Task, target: Any, candidates: Sequence[Any]
    ) -> Sequence[npt.NDArray[np.float32]]:
        from tvm_gnn_cost.schedulers.database.folder import per_store_features

        return per_store_features(task.workload.dispatched[0], target, candidates)


class AutoSchedulerSetup:
    """See :class:`Setup`."""

    searched: Sequence[str] = ("resnet-18", "mobilenet")
    # The package uses TVM's search and design space.
    searches: Sequence[str] = ("gnn", "xgb", "random")
    scored: Mapping[str, int] = {"resnet-18": 2, "mobilenet": 2, "inception-v3": 1}
    population = 1000
    smallest = "mlp"

    def size(self, task: Task) -> float:  # noqa: D102
        return scheduler().flops(task) * task.weight

    def xgb(self, seed: int) -> Any:  # noqa: D102
        from tvm.auto_scheduler import XGBModel

        # 0 would mean TVM's default.
        return XGBModel(num_warmup_sample=1, verbose_eval=0, seed=seed + 1)

    def context(self, task: Task, _target: Any) -> Any:  # noqa: D102
        return task.workload

    def update(  # noqa: D102
        self, model: Any, task: Task, _target: Any, candidates: Sequence[Any], seconds: Sequence[float]
    ) -> None:
        from tvm.auto_scheduler.measure import MeasureInput, MeasureResult

        inputs = [MeasureInput(task.workload, candidate) for candidate in candidates]
        model.update(inputs, [MeasureResult([one], 0, "", 0.1, 0) for one in seconds])

    def graphs(self, task: Task, target: Any, candidates: Sequence[Any]) -> ProgramGraphs:  # noqa: D102
        from tvm_gnn_cost.graphs.extraction import extract_states

        dag = task.workload.compute_dag
        return extract_states(dag, candidates, target, detail="statements", on_error="skip")

    def features(  # noqa: D102
        self, task: Task, _target: Any, candidates: Sequence[Any]
    ) -> Sequence[npt.NDArray[np.float32]]:
        from tvm_gnn_cost.schedulers.auto_scheduler.folder import per_store_features

        return per_store_features(task.workload, candidates)


def setup() -> Setup:
    """The setup of the scheduler of the installed TVM."""
    return AutoSchedulerSetup() if scheduler().name == "auto-scheduler" else MetaScheduleSetup()
