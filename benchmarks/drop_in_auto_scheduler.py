"""TVM's own search of a task with ``auto_scheduler``, and the cost models that ``drop_in.py`` compares with."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from scipy.special import expit
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import PythonBasedMeasureCallback
from tvm.auto_scheduler.workload_registry import register_workload_tensors

from common import WORK
from single_tasks import SingleTask
from stores import learned_from
from tvm_gnn_cost import GNNCostModel
from tvm_gnn_cost.graphs.extraction import extract_states
from tvm_gnn_cost.schedulers.auto_scheduler.measure import outcome_of
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import policy_seed
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target
from tvm_gnn_cost.schedulers.auto_scheduler.xgb_baseline import XGBBaseline


class _Trees(GNNCostModel):
    """The boosted trees of the shipped checkpoint, which do not learn in a search."""

    def predict(self, task: auto_scheduler.SearchTask, states: Sequence[Any]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1]; ``auto_scheduler`` calls this."""
        model = self.search.model
        graphs = extract_states(task.compute_dag, states, str(task.target), detail=model.detail, on_error="skip")
        scores: npt.NDArray[np.float64] = expit(model.scorer.tree_scores(graphs))
        return scores

    def update(self, *_measured: Any) -> None:
        """Learns nothing; ``auto_scheduler`` calls this."""


class _Trained(auto_scheduler.XGBModel):  # type: ignore[misc]
    """TVM's model with trees that were trained before the search, which would replace them after the first round."""

    def update(self, _inputs: Sequence[Any], _results: Sequence[Any]) -> None:
        """Learns nothing; ``auto_scheduler`` calls this."""


def _xgb(seed: int, **options: Any) -> auto_scheduler.XGBModel:
    # 0 would mean TVM's default.
    return auto_scheduler.XGBModel(verbose_eval=0, seed=seed + 1, **options)


def _xgb_of_our_records(seed: int, folder: Path) -> Any:
    path = folder / "xgb.json"
    if not path.exists():
        baseline = XGBBaseline()
        baseline.fit(learned_from("auto-scheduler", WORK))
        baseline.save(path)
    return _Trained(verbose_eval=0, seed=seed + 1, model_file=str(path))


def trees_alone() -> Any:
    """The boosted trees of the shipped checkpoint as a cost model."""
    return _Trees()


#: Name -> makes a cost model from a seed and a folder for what is trained on the programs of the shipped checkpoint.
BASELINES: dict[str, Callable[[int, Path], Any]] = {
    "XGBModel()": lambda seed, _folder: _xgb(seed),
    "XGBModel(num_warmup_sample=1)": lambda seed, _folder: _xgb(seed, num_warmup_sample=1),
    "XGBModel, our records": _xgb_of_our_records,
    "RandomModel()": lambda _seed, _folder: auto_scheduler.RandomModel(),
}


class _Recorder(PythonBasedMeasureCallback):  # type: ignore[misc]
    """Records the seconds and the latency of every measured program, in the order of measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.points = time.perf_counter(), list[list[float]]()

    def callback(self, _policy: Any, _inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Records a batch; ``auto_scheduler`` calls this after each one."""
        elapsed = time.perf_counter() - self.start
        self.points += [[elapsed, outcome_of(result).latency] for result in results]


def search(task: SingleTask, model: Any, seed: int, trials: int, library: Path) -> dict[str, Any]:
    """Searches with a ``SketchPolicy`` and a cost model, and writes the fastest program.

    Returns:
        The ``points`` of the search, and the seconds of each phase, which ``auto_scheduler`` does not tell.
    """
    dag = auto_scheduler.ComputeDAG(task.tensors())
    register_workload_tensors(dag.workload_key(), dag.tensors)
    search_task = auto_scheduler.SearchTask(
        compute_dag=dag,
        workload_key=dag.workload_key(),
        target=local_target(),
        # Programs take the weights as they are, as with MetaSchedule.
        layout_rewrite_option=auto_scheduler.LayoutRewriteOption.NO_REWRITE,
    )
    policy = auto_scheduler.SketchPolicy(search_task, program_cost_model=model, seed=policy_seed(seed), verbose=0)
    recorder = _Recorder()
    with tempfile.TemporaryDirectory() as folder:
        records = str(Path(folder) / "records.json")
        callbacks = [recorder, auto_scheduler.RecordToFile(records)]
        search_task.tune(
            auto_scheduler.TuningOptions(num_measure_trials=trials, measure_callbacks=callbacks, verbose=0), policy
        )
        schedule, arguments = search_task.apply_best(records)
    tvm.build(schedule, arguments, search_task.target, name="main").export_library(str(library))
    return {"points": recorder.points, "phases_s": {}}
