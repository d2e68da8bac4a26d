"""TVM's own search of a task with MetaSchedule, and the cost models that ``drop_in.py`` compares with."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from common import WORK
from gpu_pretraining import xgb
from single_tasks import SingleTask
from stores import learned_from
from tvm_gnn_cost import CostModel
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers.meta_schedule.builder import build_program
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin, preload_in_builders
from tvm_gnn_cost.schedulers.meta_schedule.search import phase_seconds
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latencies_of
from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import XGBBaseline
from tvm_gnn_cost.schedulers.mlp_baseline import mlp_baseline, mlp_search_model


@derived_object
class _Trees(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """The boosted trees of the shipped checkpoint, which do not learn in a search."""

    def __init__(self) -> None:
        super().__init__()
        self.model = CostModel.load()

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1]; MetaSchedule calls this."""
        graphs = self.model.graphs([one.sch.mod for one in candidates], context.target, "skip")
        scores: npt.NDArray[np.float64] = expit(self.model.scorer.tree_scores(graphs))
        return scores

    def update(self, _context: ms.TuneContext, _candidates: Sequence[Any], _results: Sequence[Any]) -> None:
        """Learns nothing; MetaSchedule calls this."""

    def load(self, path: str) -> None:
        """Is not used."""

    def save(self, path: str) -> None:
        """Is not used."""


def _xgb_of_our_records(seed: int, folder: Path) -> Any:
    """XGBModel with trees of the programs that the shipped checkpoint learned from, which do not learn in a search.

    TVM would train all trees again after the first round, for minutes: 64 of 80,000 programs would be new.
    """
    path = folder / "xgb.json"
    if not path.exists():
        baseline = XGBBaseline()
        baseline.fit(learned_from("meta-schedule", WORK))
        baseline.save(path)
    model = xgb(seed, usable_cores(), num_warmup_samples=0)
    model.booster = XGBBaseline.load(path).booster
    # TVM trains again once a search has added a fifth.
    model.last_train_size = math.inf
    return model


def _mlp_of_our_records(seed: int, folder: Path) -> Any:
    """MLPModel trained on the programs that the shipped checkpoint learned from; it goes on learning in a search."""
    path, trained = folder / f"mlp-{seed}.tar", mlp_baseline(seed)
    state = trained.trainer.state
    if path.exists():
        state.load(str(path))
        # TVM takes what it loads for programs that it has not trained on, and would train on all of them again.
        state.untrained_size = 0
    else:
        trained.fit(learned_from("meta-schedule", WORK))
        with replacing(path) as unfinished:
            state.save(str(unfinished))
    return mlp_search_model(seed, trained)


def trees_alone() -> Any:
    """The boosted trees of the shipped checkpoint as a cost model."""
    return _Trees()


#: Name -> makes a cost model from a seed and a folder for what is trained on the programs of the shipped checkpoint.
BASELINES: dict[str, Callable[[int, Path], Any]] = {
    "XGBModel()": lambda seed, _folder: xgb(seed, usable_cores()),
    "XGBModel(num_warmup_samples=1)": lambda seed, _folder: xgb(seed, usable_cores(), num_warmup_samples=1),
    "XGBModel, our records": _xgb_of_our_records,
    "MLPModel()": lambda seed, _folder: mlp_search_model(seed),
    "MLPModel, our records": _mlp_of_our_records,
    "RandomModel()": lambda seed, _folder: ms.cost_model.RandomModel(seed=seed),
}


@derived_object
class _Recorder(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Records the seconds and the latency of every measured program, in the order of measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.points = time.perf_counter(), list[list[float]]()

    def apply(
        self, _scheduler: Any, _task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], ran: Sequence[Any]
    ) -> None:
        """Records a batch; MetaSchedule calls this after each one."""
        elapsed = time.perf_counter() - self.start
        self.points += [[elapsed, latency] for latency in latencies_of(ran)]


def search(task: SingleTask, model: Any, seed: int, trials: int, library: Path) -> dict[str, Any]:
    """Searches with ``tune_tir`` and writes the fastest program and, in a folder beside it, the records.

    Returns:
        The ``points`` of the search, and the seconds of each phase.
    """
    quiet_console()
    # GNNCostModel() does both. Without them, searches of the other models import for more than a minute in a process of
    # as many modules as this one, and lose programs, on a slow machine all of them.
    import_tensor_intrin()
    preload_in_builders()
    target, module, recorder = local_target(), task.module(), _Recorder()
    folder = library.with_suffix(".records")
    # Of a search that was interrupted.
    shutil.rmtree(folder, ignore_errors=True)
    with ms.Profiler() as profiler:
        database = ms.tir_integration.tune_tir(
            module,
            target,
            str(folder),
            max_trials_global=trials,
            cost_model=model,
            measure_callbacks=[recorder, *ms.MeasureCallback.create("default")],
            num_tuning_cores=usable_cores(),
            seed=seed + 1,
        )
        schedule = ms.tir_integration.compile_tir(database, module, target)
    if schedule is not None:
        build_program(schedule.mod, target).export_library(str(library))
    phases = phase_seconds({str(phase): float(seconds) for phase, seconds in profiler.get().items()})
    return {"points": recorder.points, "phases_s": phases}
