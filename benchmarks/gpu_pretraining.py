"""Cost models that know a published database of an A100, for searches and for training on another GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup, XGBConfig

from cuda_programs import replayed
from trained import train_model
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms, with_features
from tvm_gnn_cost.datasets.split import Split
from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import MOST_STORES, XGBBaseline
from tvm_gnn_cost.training.pipeline import VALIDATION_FRACTION, train_xgb

#: Files of the two models beside the graph store.
GNN, XGB = "a100-gnn.safetensors", "a100-xgb.json"


def pretrain(arguments: argparse.Namespace, work: Path) -> Path:
    """The graph store of the database, made by the first call, which also trains both models on all of its tasks."""
    store, _ = replayed(arguments, work)
    programs = GraphStore(store).load(with_features=True)
    tasks = np.random.default_rng(0).permutation(len(programs.tasks))
    is_validation = np.isin(programs.task, tasks[: max(1, round(VALIDATION_FRACTION * len(tasks)))])
    parts = Split(np.flatnonzero(~is_validation), np.flatnonzero(is_validation), np.zeros(0, np.int64))
    if not (work / XGB).exists():
        train_xgb(XGBBaseline(), programs, parts).save(work / XGB)
    if not (work / GNN).exists():
        train_model("gnn", programs, parts, 0, arguments.epochs, (work / GNN).with_suffix(".fit"))
    return store


def xgb(seed: int, cores: int, **options: Any) -> XGBModel:
    """TVM's XGBoost model for a search, without its log; ``options`` are further arguments of TVM's class."""
    return XGBModel(config=XGBConfig(seed=seed), verbose_eval=0, num_tuning_cores=cores, **options)


def xgb_with_records(path: Path, programs: MeasuredPrograms, seed: int, cores: int) -> XGBModel:
    """TVM's XGBoost model as if its search had measured programs before.

    Like the model in the file, it leaves out programs of many stores. TVM trains it again after the first round, on
    these programs and the round's.

    Args:
        path: The trained model.
        programs: What the trained model learned from, with per-store features.
        seed: Seed of XGBoost.
        cores: Number of threads.
    """
    features, rows = with_features(programs)
    model = xgb(seed, cores, num_warmup_samples=1)
    for number, task in enumerate(programs.tasks):
        members = [i for i in rows if programs.task[i] == number and len(features[i]) <= MOST_STORES]
        if members:
            model.data[task.hash] = _group(task.hash, [features[i] for i in members], programs.latency[members])
    model.data_size = sum(len(group.features) for group in model.data.values())
    model.booster = XGBBaseline.load(path).booster
    return model


def _group(name: str, features: Sequence[np.ndarray], latency: np.ndarray) -> FeatureGroup:
    # TVM's latency of a program that failed.
    return FeatureGroup(name, list(features), np.minimum(latency, 1e10).astype(np.float32))
