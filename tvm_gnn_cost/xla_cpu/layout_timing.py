"""Compiles one network in many layouts and times them on XLA:CPU, in a separate process."""

from __future__ import annotations

import math
import os
import signal
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.progress import Progress, Stage, Step
from tvm_gnn_cost.tpugraphs.format.encoding import encode_configured
from tvm_gnn_cost.tpugraphs.format.npz import write_npz
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction, random_configs
from tvm_gnn_cost.xla_cpu.networks import NETWORKS
from tvm_gnn_cost.xla_cpu.settings import MeasureSettings


@dataclass(frozen=True)
class Measured:
    """The last message of the process, after its progress events.

    Attributes:
        entry: The graph's entry in the card, without its family and split. With ``dropped`` in it, no file was written.
    """

    entry: dict[str, Any]


def run_process(name: str, settings: MeasureSettings, path: Path, send: Connection) -> None:
    """Measures one network; the target of a process that has not used JAX before.

    Args:
        name: One of ``networks.NETWORKS``.
        settings: How it is measured.
        path: The npz file to write.
        send: Receives progress events and at last a :class:`Measured`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the parent ends this one.
    # One thread runs the network, so that CPU time contains no waiting.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    send.send(Measured(_measure(name, settings, path, send.send)))


def retest_tau(seconds: npt.NDArray[np.float64]) -> float:
    """Kendall's tau between the first half of the rounds and the second, each by its fastest run.

    It is approximately the highest tau that a model can reach; slightly more is possible, because models are compared
    with the fastest run of all rounds.

    Args:
        seconds: float64[c, rounds].
    """
    half = seconds.shape[1] // 2
    return kendall_tau(seconds[:, :half].min(axis=1), seconds[:, half:].min(axis=1))


def _measure(name: str, settings: MeasureSettings, path: Path, progress: Progress) -> dict[str, Any]:
    function = ConfigurableFunction(NETWORKS[name].function)
    rng = np.random.default_rng([settings.seed, zlib.crc32(name.encode())])
    try:
        configs = random_configs(function.ranks, settings.configs, rng)
    except InputError as error:
        return {"dropped": str(error)}
    arrays = [jax.device_put(rng.standard_normal(shape).astype(np.float32)) for shape in function.shapes]
    compiled, kept, errors = [], [], []
    progress(Stage(f"{name}: compiling {len(configs)} layouts"))
    for number, config in enumerate(configs):
        progress(Step(f"{name}: compiling {number + 1} of {len(configs)} layouts"))
        try:
            compiled.append(function.lower(config).compile())
            kept.append(number)
        except RuntimeError as error:  # XLA's errors derive from it.
            errors.append(str(error).splitlines()[0])
    if len(kept) < 2:
        return {"dropped": f"XLA refused {len(errors)} of {len(configs)} layouts", "refused_by_xla": errors}
    progress(Stage(f"{name}: measuring {settings.rounds} rounds"))
    seconds = _time_rounds(name, compiled, arrays, settings, rng, progress)
    tau = retest_tau(seconds)
    # Noise only makes a run slower, on a shared machine one run in ten by a fifth; therefore the fastest run counts.
    runtime = seconds.min(axis=1)
    entry: dict[str, Any] = {
        "nodes": sum(len(computation.instructions) for computation in function.module.computations),
        "configurable": len(function.ranks),
        "configs": len(kept),
        "refused_by_xla": errors,
        "retest_tau": tau,
        "fastest_ms": 1e3 * float(runtime.min()),
        "slowest_ms": 1e3 * float(runtime.max()),
        "compilers_choice_ms": 1e3 * float(runtime[0]) if kept[0] == 0 else None,
    }
    if not tau >= settings.threshold:
        return entry | {"dropped": f"retest tau {tau:.2f} is below {settings.threshold}"}
    nanoseconds = np.rint(1e9 * runtime).astype(np.int64)
    write_npz(path, encode_configured(function.module, function.config_nodes, configs[kept], nanoseconds))
    return entry


def _time_rounds(
    name: str,
    compiled: Sequence[Any],
    arrays: Sequence[Any],
    settings: MeasureSettings,
    rng: np.random.Generator,
    progress: Progress,
) -> npt.NDArray[np.float64]:
    """CPU seconds of one run of each configuration in each round, float64[c, rounds]."""
    # All threads share one core, so that none runs in parallel with the measured thread.
    core = max(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    repeats = []
    for run in compiled:
        _time(run, arrays, 2)
        repeats.append(max(1, math.ceil(settings.seconds / max(1e-6, _time(run, arrays, 2)))))
    seconds = np.zeros((len(compiled), settings.rounds))
    for number in range(settings.rounds):
        progress(Step(f"{name}: measuring, round {number + 1} of {settings.rounds}"))
        for config in rng.permutation(len(compiled)).tolist():
            seconds[config, number] = _time(compiled[config], arrays, repeats[config])
    return seconds


def _time(run: Any, arrays: Sequence[Any], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(run(*arrays))
    return (time.process_time() - start) / repeats
