"""Measures layouts of JAX networks on XLA:CPU into files like the published ones.

The folder holds ``npz/layout/xla/random/{train,valid,test}/NAME.npz`` and ``card.json``: the machine, the settings,
and how well repeated measurements of each graph agree.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import check_folder, write_json
from tvm_gnn_cost.measuring.card import check_same, read_card, today
from tvm_gnn_cost.measuring.machine import describe_machine, machine_to_itself
from tvm_gnn_cost.progress import Advanced, Progress, ignore
from tvm_gnn_cost.xla_cpu.settings import MeasureSettings

#: Where the measured graphs are below the folder.
COLLECTION = Path("npz", "layout", "xla", "random")
_CARD = "card.json"


def measure(
    folder: str | os.PathLike[str],
    networks: Sequence[str] | None = None,
    settings: MeasureSettings | None = None,
    *,
    progress: Progress = ignore,
) -> dict[str, Any]:
    """Measures the layouts of JAX networks; those that the folder already holds are not measured again.

    A separate process measures each network: if it crashes in XLA, the card says so and the others are measured. No
    other process of this package measures on this machine at the same time.

    Args:
        folder: Where the graphs and their card go.
        networks: Names from ``networks.NETWORKS``; by default all.
        settings: How each network is measured; must be those of the folder's card, if it exists.
        progress: Receives the current stage and how many networks are done.

    Returns:
        The content of ``card.json``. ``graphs`` has an entry for each network: ``family``, ``split``, ``nodes``,
        ``configurable`` (nodes), ``configs``, ``refused_by_xla`` (XLA's messages), ``retest_tau``, ``fastest_ms``,
        ``slowest_ms``, ``compilers_choice_ms``, and ``dropped`` with the reason if no file was written.

    Raises:
        InputError: a name is unknown, or the folder was measured with other settings or on another processor.
        WorkError: JAX is not installed, or this system cannot keep a process on one core.
    """
    folder = Path(folder)
    if not hasattr(os, "sched_setaffinity"):
        raise WorkError("measuring layouts keeps the process on one core, which needs Linux")
    try:
        from tvm_gnn_cost.xla_cpu.networks import NETWORKS
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("jax", "jaxlib"):
            raise
        raise WorkError("measuring layouts needs JAX: pip install 'tvm-gnn-cost[xla]'") from error

    names = list(NETWORKS) if networks is None else list(networks)
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise InputError(f"unknown network '{unknown[0]}'; one of: {', '.join(NETWORKS)}")
    settings = settings or MeasureSettings()
    check_folder(folder)
    card = _card(folder / _CARD, settings)
    for number, name in enumerate(names):
        progress(Advanced(number, len(names)))
        if name in card["graphs"]:
            continue
        network = NETWORKS[name]
        path = folder / COLLECTION / network.split / f"{name}.npz"
        with machine_to_itself():
            entry = _measure_in_process(name, settings, path, progress)
        card["graphs"][name] = {"family": network.family, "split": network.split, **entry}
        write_json(folder / _CARD, card)
    progress(Advanced(len(names), len(names)))
    return card


def _card(path: Path, settings: MeasureSettings) -> dict[str, Any]:
    """The card of a folder, or a new one without graphs."""
    machine = describe_machine()
    card = read_card(path, {"settings": dict, "machine": dict, "graphs": dict})
    if card is None:
        return {
            "what": "layouts of JAX networks on XLA:CPU; CPU seconds on one core; not of a TPU",
            "date": today(),
            "machine": machine,
            "versions": {name: version(name) for name in ("jax", "jaxlib")},
            "settings": asdict(settings),
            "graphs": {},
        }
    check_same(path, "the settings", card["settings"], asdict(settings))
    check_same(path, "the processor", card["machine"].get("processor"), machine["processor"])
    return card


def _measure_in_process(name: str, settings: MeasureSettings, path: Path, progress: Progress) -> dict[str, Any]:
    """The network's entry in the card."""
    from tvm_gnn_cost.xla_cpu.layout_timing import Measured, run_process

    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=run_process, args=(name, settings, path, send))
    process.start()
    send.close()
    try:
        while True:
            message = receive.recv()
            if isinstance(message, Measured):
                return message.entry
            progress(message)
    except EOFError:
        process.join()
        return {"dropped": f"its process ended with exit code {process.exitcode}"}
    finally:
        process.terminate()
        process.join()
