"""Small tasks of ``auto_scheduler``, states of them, and the records that come with the project."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tvm import auto_scheduler, te, topi
from tvm.auto_scheduler.measure_record import load_record_from_string
from tvm.target import Target

from tvm_gnn_cost.datasets.tenset import TensetFolder, read_tenset

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "tenset-cpu"
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
    return read_tenset(DATA, "cpu-2core")


def write_network_info(folder: Path, files: Iterable[Path]) -> None:
    """The pickles of a folder in TenSet's layout, with the tasks of these files of the project's records alone."""
    data, info = project_data(), folder / "network_info"
    info.mkdir(parents=True)
    keys = [str(json.loads(file.read_text().partition("\n")[0])["i"][0][0]) for file in files]
    (info / "all_tasks.pkl").write_bytes(pickle.dumps([data.tasks[key] for key in keys]))
    for network in {network for key in keys for network in data.weights.get(key, {})}:
        own = [key for key in keys if network in data.weights.get(key, {})]
        pair = [data.tasks[key] for key in own], [data.weights[key][network] for key in own]
        (info / f"(({network},[]),llvm).task.pkl").write_bytes(pickle.dumps(pair))


def measured_states(network: str, tasks: int, states: int) -> list[tuple[auto_scheduler.SearchTask, list[Any]]]:
    """States of the project's records: the first ones of some tasks of a network, of single operators if it is ""."""
    data = project_data()
    lines: dict[str, list[str]] = {}
    for line in data.lines():
        key = load_record_from_string(line.text)[0].task.workload_key if line.line == 1 else None
        if key is not None:
            lines[str(key)] = line.file.read_text().splitlines()[:states]
    keys = [key for key in lines if network in data.weights.get(key, {"": 1})]
    return [
        (data.tasks[key], [load_record_from_string(text)[0].state for text in lines[key]])
        for key in keys[:: max(1, len(keys) // tasks)]
    ]
