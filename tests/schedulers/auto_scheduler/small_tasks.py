"""Small tasks of ``auto_scheduler``, states of them, and the records that come with the project."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tvm import auto_scheduler, te, topi
from tvm.auto_scheduler.measure_record import load_record_from_string
from tvm.target import Target

from tvm_gnn_cost.datasets.tenset import record_files
from tvm_gnn_cost.schedulers.auto_scheduler.records import TensetFolder, read_tenset

DATA = Path(__file__).parents[3] / "benchmarks" / "data" / "tenset-cpu"
RECORDS = DATA / "measure_records" / "cpu-2core"
TARGET = Target("llvm -num-cores=2")


@auto_scheduler.register_workload
def matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")]


@auto_scheduler.register_workload
def conv_relu(size: int, channels: int) -> list[te.Tensor]:
    data = te.placeholder((1, size, size, channels), name="data")
    weight = te.placeholder((3, 3, channels, channels), name="weight")
    conv = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1)
    return [data, weight, topi.nn.relu(conv)]


def matmul_task(n: int = 32, m: int = 48, k: int = 64) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=matmul, args=(n, m, k), target=TARGET)


def conv_task(size: int = 14, channels: int = 16) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=conv_relu, args=(size, channels), target=TARGET)


def sample_states(task: auto_scheduler.SearchTask, count: int, seed: int = 0) -> list[Any]:
    """Random states of the task's sketches, complete ones."""
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.RandomModel(), params={"sample_init_min_population": count}, seed=seed, verbose=0
    )
    states = list(policy.sample_initial_population())
    chosen = np.random.default_rng(seed).permutation(len(states))[:count]
    return [states[i] for i in chosen]


def broken_state(task: auto_scheduler.SearchTask) -> Any:
    """A state whose only step is for a stage that is not there."""
    entry = {
        "i": [[task.workload_key, str(task.target)], [[], [["SP", 999, 0, 1, [1], 1]]]],
        "r": [[1.0], 0, 1, 1],
        "v": "v0.6",
    }
    return load_record_from_string(json.dumps(entry))[0].state


@cache
def project_data() -> TensetFolder:
    """The records of the first machine and of the one that measured the test networks."""
    first = read_tenset(DATA, "cpu-2core")
    return replace(first, files=first.files + record_files(DATA / "measure_records", "zen4-2core"))


def task_key(file: Path) -> str:
    """The workload key of a file of records of one task."""
    with file.open() as lines:
        return str(json.loads(next(lines))["i"][0][0])


def files_of(network: str, tasks: int) -> list[Path]:
    """Of the project's files of records about so many of a network's; those of single operators if it is ""."""
    data = project_data()
    files = [file for file in data.files if network in data.weights.get(task_key(file), {"": 1})]
    return files[:: max(1, len(files) // tasks)]


def copy_records(folder: Path, files: Iterable[Path], lines: int) -> None:
    """A folder in TenSet's layout with the first lines of some of the project's files, and their tasks alone."""
    data, info, records = project_data(), folder / "network_info", folder / "measure_records" / "cpu"
    info.mkdir(parents=True)
    records.mkdir(parents=True)
    keys = []
    for file in files:
        keys.append(task_key(file))
        (records / file.name).write_text("".join(file.read_text().splitlines(keepends=True)[:lines]))
    (info / "all_tasks.pkl").write_bytes(pickle.dumps([data.tasks[key] for key in keys]))
    for network in {network for key in keys for network in data.weights.get(key, {})}:
        own = [key for key in keys if network in data.weights.get(key, {})]
        pair = [data.tasks[key] for key in own], [data.weights[key][network] for key in own]
        (info / f"(({network},[]),llvm).task.pkl").write_bytes(pickle.dumps(pair))


def measured_states(
    data: TensetFolder, files: Iterable[Path], states: int
) -> list[tuple[auto_scheduler.SearchTask, list[Any]]]:
    """The first states of each file, with its task."""
    return [
        (
            data.tasks[task_key(file)],
            [load_record_from_string(text)[0].state for text in file.read_text().splitlines()[:states]],
        )
        for file in files
    ]
