"""Times the tuned network end to end against the untuned network and the engines that could run it instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.contest import Contestant, contest
from tvm_gnn_cost.progress import Progress, Stage
from tvm_gnn_cost.schedulers.scheduler import Compiled, Machine, Network, Networks
from tvm_gnn_cost.tuning import contestant
from tvm_gnn_cost.tuning.comparison import relative_difference
from tvm_gnn_cost.tuning.compiling import framework_of
from tvm_gnn_cost.tuning.peers import SLOW, peers_of, save_program
from tvm_gnn_cost.tuning.result import EndToEnd, NetworkTimes

#: Number of timings of a network on another machine, and of runs per timing, of which the median counts.
_REPEATS_ELSEWHERE, _RUNS_ELSEWHERE = 10, 3


def compare_end_to_end(
    network: Network,
    scheduler: str,
    tuned: Path,
    untuned: Compiled,
    logs: Path,
    *,
    peers: bool,
    allowed: float,
    progress: Progress,
    interrupted: Callable[[], bool],
    repeats: int = 10,
) -> EndToEnd:
    """Times libraries and peers, interleaved, each in a separate process, and compares their outputs.

    The reference is the framework's output, or the untuned network's if no framework can run the network. A peer that
    computes something else has no times.

    Args:
        network: The network with its inputs, expected outputs and program for the peers.
        scheduler: Name of the scheduler that compiled ``tuned`` and ``untuned``.
        tuned: The library with the best schedules.
        untuned: The network with TVM's default schedules.
        logs: Folder for the output of processes that fail.
        peers: Whether to time the installed peers too that can run the network.
        allowed: Tolerated difference of a peer's outputs, relative to an output's largest value.
        progress: Receives the stages.
        interrupted: Whether the user pressed Ctrl-C.
        repeats: Number of timings of each network.

    Raises:
        WorkError: the tuned library cannot be run.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        untuned.export(folder / "untuned.so")
        programs = {"tuned": (scheduler, tuned)}
        if peers:
            programs |= peer_programs(network, folder)
        programs["untuned"] = (scheduler, folder / "untuned.so")
        contestants, outputs = line_up(programs, network.inputs, folder)
        takes = " (torch.compile takes up to a minute)" if "torch.compile" in programs else ""
        progress(Stage(f"starting {', '.join(programs)}{takes}, each in a separate process"))
        timed = contest(contestants, logs, repeats=repeats, progress=progress, interrupted=interrupted)
        times = {timing.name: timing for timing in timed}
        if times["tuned"].failure:
            raise WorkError(f"the tuned network cannot be run: {times['tuned'].failure}")
        arrays = {name: _read(path) for name, path in outputs.items() if not times[name].failure}
    reference = arrays.get("untuned") if network.expected is None else network.expected
    product = times.pop(MATRIX_PRODUCT)
    framework = framework_of(network)
    networks = []
    for name, timing in times.items():
        difference = _difference(arrays.get(name), reference)
        seconds, failure = timing.seconds, timing.failure
        if name not in ("tuned", "untuned") and (failure := failure or wrong(difference, allowed, framework)):
            seconds = []
        networks.append(NetworkTimes(name, seconds, difference, failure))
    return EndToEnd(
        networks,
        matrix_product=operations_per_second(product.seconds) if product.seconds else None,
        reference=framework,
        peers=peers,
    )


def wrong(difference: float | None, allowed: float, framework: str) -> str:
    """What is wrong with a peer's outputs; empty if they are correct, or if there is nothing to compare them with.

    >>> wrong(0.03, 3e-4, "PyTorch")
    'an output differs from PyTorch by 3% of its largest value'
    >>> wrong(float("inf"), 3e-4, "PyTorch")
    'an output differs from PyTorch in its shape or in the positions of NaN or infinity'
    """
    if difference is None or difference <= allowed:
        return ""
    if math.isinf(difference):
        return f"an output differs from {framework} in its shape or in the positions of NaN or infinity"
    return f"an output differs from {framework} by {100 * difference:.2g}% of its largest value"


def compare_elsewhere(
    network: Network,
    scheduler: Networks,
    tuned: Path,
    untuned: Compiled,
    machine: Machine,
    *,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> EndToEnd:
    """Times the tuned and the untuned network, interleaved, on a tracker's machine, where no peer is installed.

    Args:
        network: The network with its inputs and expected outputs.
        scheduler: The scheduler that compiled it.
        tuned: The library with the best schedules.
        untuned: The network with TVM's default schedules.
        machine: The machine, with nothing else running on it.
        progress: Receives the stages.
        interrupted: Whether the user pressed Ctrl-C.

    Raises:
        WorkError: a library cannot be run, or the connection to the machine is lost.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    progress(Stage("timing tuned, untuned, interleaved, on a machine of the tracker"))
    with TemporaryDirectory() as temporary:
        other = Path(temporary) / f"untuned{tuned.suffix}"
        untuned.export(other)
        loaded = {"tuned": scheduler.load(tuned, machine), "untuned": scheduler.load(other, machine)}
    seconds: dict[str, list[float]] = {name: [] for name in loaded}
    # TVM's errors of another machine have several types.
    try:
        outputs = {name: library.run(network.inputs) for name, library in loaded.items()}
        for _ in range(_REPEATS_ELSEWHERE):
            for name, library in loaded.items():
                if interrupted():
                    raise KeyboardInterrupt
                seconds[name].append(median(library.seconds(network.inputs, _RUNS_ELSEWHERE)))
    except Exception as error:
        raise WorkError(f"the network cannot be run on a machine of the tracker: {last_line(error)}") from error
    reference = outputs["untuned"] if network.expected is None else network.expected
    networks = [NetworkTimes(name, repeats, _difference(outputs[name], reference)) for name, repeats in seconds.items()]
    return EndToEnd(networks, matrix_product=None, reference=framework_of(network), peers=False)


def _read(path: Path) -> list[npt.NDArray[Any]]:
    with np.load(path) as file:
        return list(file.values())


def _difference(
    outputs: Sequence[npt.NDArray[Any]] | None, reference: Sequence[npt.NDArray[Any]] | None
) -> float | None:
    return None if outputs is None or reference is None else relative_difference(outputs, reference)


#: Name of the matrix product among the contestants.
MATRIX_PRODUCT = "matrix product"


def peer_programs(network: Network, folder: Path, *, slow: bool = False) -> dict[str, tuple[str, Path]]:
    """The peers that can run a network: name -> name of the runner, and the file of the network.

    Args:
        network: The network; a Relax or Relay module has no peers.
        folder: Where its program is saved.
        slow: Whether to include those that take minutes to compile it.
    """
    if network.program is None:
        return {}
    program = save_program(network.program, folder)
    return {name: (name, program) for name in peers_of(program) if slow or name not in SLOW}


def line_up(
    programs: Mapping[str, tuple[str, Path]], inputs: Mapping[str, npt.NDArray[Any]], folder: Path
) -> tuple[list[Contestant], dict[str, Path]]:
    """What to time: the programs of a network in their order, and a large matrix product.

    Args:
        programs: Name -> runner (a scheduler's name for a library, or a peer's name), and the program.
        inputs: The network's inputs by name.
        folder: Where the inputs and each program's outputs are saved.

    Returns:
        The contestants, and name -> npz file for the outputs.
    """
    saved = folder / "inputs.npz"
    np.savez(saved, *inputs.values(), names=np.array(list(inputs)))
    outputs = {name: folder / f"{number}-outputs.npz" for number, name in enumerate(programs)}
    contestants = [
        Contestant(name, contestant.__name__, (runner, str(path), str(saved), str(outputs[name])))
        for name, (runner, path) in programs.items()
    ]
    return [*contestants, Contestant(MATRIX_PRODUCT, contestant.__name__)], outputs


def operations_per_second(seconds: Sequence[float]) -> float:
    """Floating point operations per second of the matrix product, at its fastest."""
    return 2 * contestant.SIZE**3 / min(seconds)
