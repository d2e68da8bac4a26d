"""A small MetaSchedule database of two tasks, sampled, built and measured on this machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.schedulers.database.records import FAILED_RUN_SECS
from tvm_gnn_cost.schedulers.meta_schedule.builder import build_program
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.tuning.extract import extract

PROGRAMS_PER_TASK = 4


@dataclass(frozen=True)
class Database:
    """A folder as TVM's own tuning leaves it, and the modules that were measured, in the order of its records."""

    folder: Path
    target: tvm.target.Target
    mods: list[tvm.IRModule]
    task_hashes: list[str]


def small_tasks() -> list[tvm.IRModule]:
    """A product of matrices, and an element-wise operator."""
    a, b = te.placeholder((16, 24), name="a"), te.placeholder((24, 32), name="b")
    k = te.reduce_axis((0, 24), name="k")
    product = te.compute((16, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    x = te.placeholder((64, 16), name="x")
    exponential = te.compute((64, 16), lambda i, j: tvm.tirx.exp(x[i, j]) + 1.0, name="exponential")
    return [tvm.IRModule({"main": te.create_prim_func(arguments)}) for arguments in ([a, b, product], [x, exponential])]


def _measure(mod: tvm.IRModule, target: tvm.target.Target, shapes: list[tuple[int, ...]]) -> list[float]:
    function = build_program(mod, target)
    arrays = [tvm.runtime.tensor(np.ones(shape, np.float32)) for shape in shapes]
    timer = function.time_evaluator("main", tvm.cpu(), number=10, repeat=3)
    return list(timer(*arrays).results)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    import_tensor_intrin()
    folder = tmp_path_factory.mktemp("database")
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    store = ms.database.JSONDatabase(work_dir=str(folder))
    mods, hashes = [], []
    for mod in small_tasks():
        context = ms.TuneContext(
            mod, target=target, space_generator="post-order-apply", search_strategy="replay-trace", rand_state=3
        )
        context.pre_tuning(PROGRAMS_PER_TASK, PROGRAMS_PER_TASK)
        candidates = list(context.generate_measure_candidates())
        context.post_tuning()
        workload = store.commit_workload(mod)
        for number, candidate in enumerate(candidates):
            shapes = [tuple(int(size) for size in info.shape) for info in candidate.args_info]
            seconds = _measure(candidate.sch.mod, target, shapes)
            # The last one of each task is marked as TVM marks a program that failed.
            seconds = [FAILED_RUN_SECS] if number == PROGRAMS_PER_TASK - 1 else seconds
            store.commit_tuning_record(
                ms.database.TuningRecord(candidate.sch.trace, workload, seconds, target, candidate.args_info)
            )
            mods.append(candidate.sch.mod)
            hashes.append(ms.utils.shash2hex(mod))
    return Database(folder, target, mods, hashes)


@pytest.fixture
def copy(database: Database, tmp_path: Path) -> Path:
    """A copy of the database to change."""
    return Path(shutil.copytree(database.folder, tmp_path / "copy"))


def write_lines(path: Path, entries: list[Any]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.fixture(scope="session")
def graph_store(database: Database, tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    """The database's programs in a store of two shards."""
    store = GraphStore(tmp_path_factory.mktemp("store") / "graphs")
    extract(database.folder, store.folder, detail="tree", programs_at_once=5)
    return store
