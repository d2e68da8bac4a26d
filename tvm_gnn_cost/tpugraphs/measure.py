"""Measures layouts of JAX networks on XLA:CPU, in files as TpuGraphs publishes them.

The folder holds ``npz/layout/xla/random/{train,valid,test}/NAME.npz`` and ``card.json``: the machine, the settings,
and how well each graph's runtimes can be told apart.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.networks.xla import NETWORKS
from tvm_gnn_cost.tpugraphs.encode import encode_graph, write_npz
from tvm_gnn_cost.tpugraphs.layouts import ConfigurableFunction, random_configs

COLLECTION = Path("npz", "layout", "xla", "random")
_CARD = "card.json"


@dataclass(frozen=True)
class MeasureSettings:
    """How each graph is measured.

    Attributes:
        configs: Different layouts of a graph.
        rounds: Times that each is measured; a round takes all of a graph's in a new order.
        seconds: One measurement repeats the network for about so long.
        threshold: A graph is dropped if the runtimes of its first and its second half of rounds agree less, as
            Kendall's tau: its order is noise.
        seed: Of layouts, weights and order.
    """

    configs: int = 80
    rounds: int = 24
    seconds: float = 0.012
    threshold: float = 0.5
    seed: int = 0


class Progress(Protocol):
    """Told of what is going on."""

    def status(self, text: str) -> None:
        """What is being done now."""

    def extracted(self, done: int, total: int) -> None:
        """So many graphs are measured."""


def measure(names: Sequence[str], folder: Path, settings: MeasureSettings, progress: Progress) -> dict[str, Any]:
    """Measures networks, but those that the folder holds already, and returns the card.

    Each network has a process of its own: one that crashes in XLA is named in the card, and the rest goes on.

    Args:
        names: Of ``networks.xla.NETWORKS``.
        folder: Where the files go.
        settings: How; those of the folder's card, if it has one.
        progress: Told of each graph.

    Raises:
        ValueError: a name is unknown, or the folder was measured with other settings or on another machine.
        RuntimeError: this system can't keep a process on one core.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise RuntimeError("measuring layouts keeps the process on one core, which needs Linux")
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise ValueError(f"unknown network '{unknown[0]}'; one of: {', '.join(NETWORKS)}")
    card = _card(folder, settings)
    for number, name in enumerate(names):
        progress.extracted(number, len(names))
        if name in card["graphs"]:
            continue
        network = NETWORKS[name]
        path = folder / COLLECTION / network.split / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with machine_to_itself():
            found = _in_own_process(name, settings, path, progress)
        card["graphs"][name] = {"family": network.family, "split": network.split, **found}
        unfinished = folder / f"{_CARD}.unfinished"
        unfinished.write_text(json.dumps(card, indent=1) + "\n")
        unfinished.replace(folder / _CARD)
    progress.extracted(len(names), len(names))
    return card


def retest_tau(seconds: npt.NDArray[np.float64]) -> float:
    """Kendall's tau of float64[c, rounds]: the fastest of the first half of the rounds against that of the second.

    What a model can reach at most, or a little more because it is compared with the fastest of all rounds.
    """
    half = seconds.shape[1] // 2
    return kendall_tau(seconds[:, :half].min(axis=1), seconds[:, half:].min(axis=1))


def _card(folder: Path, settings: MeasureSettings) -> dict[str, Any]:
    path = folder / _CARD
    machine = describe_machine()
    if not path.exists():
        versions = {name: version(name) for name in ("jax", "jaxlib")}
        when = datetime.now(UTC).date().isoformat()
        what = "layouts of JAX networks on XLA:CPU; CPU seconds on one core; not of a TPU"
        return {
            "what": what,
            "date": when,
            "machine": machine,
            "versions": versions,
            "settings": asdict(settings),
            "graphs": {},
        }
    try:
        card: dict[str, Any] = json.loads(path.read_text())
        known, processor = card["settings"], card["machine"]["processor"]
        card["graphs"].keys()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the card of measured layouts ({error}); choose another folder") from error
    if known != asdict(settings):
        raise ValueError(f"{path}: measured with the settings {known}; use these, or another folder")
    if processor != machine["processor"]:
        raise ValueError(
            f"{path}: measured on {processor}, and this is {machine['processor']}; runtimes of "
            "different machines do not belong together, choose another folder"
        )
    return card


def _in_own_process(name: str, settings: MeasureSettings, path: Path, progress: Progress) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(name, settings, path, send))
    process.start()
    send.close()
    try:
        while True:
            kind, content = receive.recv()
            if kind == "done":
                return dict(content)
            # A colon marks the small steps, which have no line of their own where there is no terminal.
            progress.status(f"{name}{',' if kind == 'stage' else ':'} {content}")
    except EOFError:
        process.join()
        return {"dropped": f"its process ended with exit code {process.exitcode}"}
    finally:
        process.terminate()
        process.join()


def _measure(name: str, settings: MeasureSettings, path: Path, send: Connection) -> None:
    """One graph, in a process of its own, which must not have used JAX before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too; the other one ends it
    # One thread runs the network: what is measured is work and not waiting.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    function = ConfigurableFunction(NETWORKS[name].function)
    rng = np.random.default_rng([settings.seed, zlib.crc32(name.encode())])
    try:
        configs = random_configs(function.ranks, settings.configs, rng)
    except ValueError as error:
        send.send(("done", {"dropped": str(error)}))
        return
    arrays = [jax.device_put(rng.standard_normal(shape).astype(np.float32)) for shape in function.shapes]
    compiled, kept, errors = [], [], []
    send.send(("stage", f"compiling {len(configs)} layouts"))
    for number, config in enumerate(configs):
        send.send(("status", f"compiling {number + 1} of {len(configs)} layouts"))
        try:
            compiled.append(function.lower(config).compile())
            kept.append(number)
        except RuntimeError as error:  # XLA's own derive from it
            errors.append(str(error).splitlines()[0])
    if len(kept) < 2:
        send.send(
            ("done", {"dropped": f"XLA refused {len(errors)} of {len(configs)} layouts", "refused_by_xla": errors})
        )
        return
    send.send(("stage", f"measuring {settings.rounds} rounds"))
    seconds = _rounds(compiled, arrays, settings, rng, send)
    tau = retest_tau(seconds)
    # What disturbs a run makes it slower: on a shared machine one in ten by a fifth.
    runtime = seconds.min(axis=1)
    result: dict[str, Any] = {
        "nodes": sum(len(one.instructions) for one in function.module.computations),
        "configurable": len(function.ranks),
        "configs": len(kept),
        "refused_by_xla": errors,
        "retest_tau": tau,
        "fastest_ms": 1e3 * float(runtime.min()),
        "slowest_ms": 1e3 * float(runtime.max()),
        "compilers_choice_ms": 1e3 * float(runtime[0]) if kept[0] == 0 else None,
    }
    if not tau >= settings.threshold:
        send.send(("done", result | {"dropped": f"retest tau {tau:.2f} is below {settings.threshold}"}))
        return
    fields = encode_graph(function.module) | {
        "node_config_ids": function.config_nodes,
        "node_config_feat": configs[kept].astype(np.float32),
        "config_runtime": np.rint(1e9 * runtime).astype(np.int64),
    }
    write_npz(path, fields)
    send.send(("done", result))


def _rounds(
    compiled: Sequence[Any],
    arrays: Sequence[Any],
    settings: MeasureSettings,
    rng: np.random.Generator,
    send: Connection,
) -> npt.NDArray[np.float64]:
    """CPU seconds, float64[c, rounds], of one run of each; all threads on one core, so that none helps."""
    core = max(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    repeats = []
    for run in compiled:
        _timed(run, arrays, 2)
        repeats.append(max(1, math.ceil(settings.seconds / max(1e-6, _timed(run, arrays, 2)))))
    seconds = np.zeros((len(compiled), settings.rounds))
    for number in range(settings.rounds):
        send.send(("status", f"measuring, round {number + 1} of {settings.rounds}"))
        for one in rng.permutation(len(compiled)).tolist():
            seconds[one, number] = _timed(compiled[one], arrays, repeats[one])
    return seconds


def _timed(run: Any, arrays: Sequence[Any], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(run(*arrays))
    return (time.process_time() - start) / repeats
