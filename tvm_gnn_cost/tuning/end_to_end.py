"""Compares the tuned network end to end with the untuned network, PyTorch, torch.compile and ONNX Runtime."""

from __future__ import annotations

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
from tvm_gnn_cost.schedulers.scheduler import Compiled, Machine, Network, Scheduler
from tvm_gnn_cost.tuning import contestant
from tvm_gnn_cost.tuning.comparison import relative_difference
from tvm_gnn_cost.tuning.compiling import framework_of
from tvm_gnn_cost.tuning.peers import peers_of, save_program
from tvm_gnn_cost.tuning.result import EndToEnd, NetworkTimes

#: Runs of a network on another machine in each of its turns.
_RUNS_ELSEWHERE = 3


def compare_end_to_end(
    network: Network,
    scheduler: str,
    tuned: Path,
    untuned: Compiled,
    logs: Path,
    *,
    peers: bool,
    progress: Progress,
    interrupted: Callable[[], bool],
    repeats: int = 10,
) -> EndToEnd:
    """Times the network's contestants in turn, each in its own process, and compares their outputs with the reference.

    The reference is the framework's output, or that of the untuned network where there is none.

    Args:
        network: Gives the inputs, the output to compare with and the program of the peers.
        scheduler: Which one's libraries ``tuned`` and ``untuned`` are.
        tuned: The library with the fastest schedules found.
        untuned: The network with TVM's default schedules.
        logs: Where a contestant that fails leaves what it printed.
        peers: Whether to time PyTorch, torch.compile and ONNX Runtime too, as far as they can run the network.
        progress: Receives the stages.
        interrupted: Whether the user pressed Ctrl-C.
        repeats: Times that each is timed.

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
        progress(Stage(f"starting {', '.join(programs)}{takes}, each in a process of its own"))
        timed = contest(contestants, logs, repeats=repeats, progress=progress, interrupted=interrupted)
        found = {one.name: one for one in timed}
        if found["tuned"].failure:
            raise WorkError(f"the tuned network cannot be run: {found['tuned'].failure}")
        arrays = {name: _read(path) for name, path in outputs.items() if not found[name].failure}
    reference = arrays.get("untuned") if network.expected is None else network.expected
    product = found.pop(MATRIX_PRODUCT)
    return EndToEnd(
        [
            NetworkTimes(name, one.seconds, _difference(arrays.get(name), reference), one.failure)
            for name, one in found.items()
        ],
        matrix_product=operations_per_second(product.seconds) if product.seconds else None,
        reference=framework_of(network),
        peers=peers,
    )


def compare_elsewhere(
    network: Network,
    scheduler: Scheduler,
    tuned: Path,
    untuned: Compiled,
    machine: Machine,
    *,
    progress: Progress,
    interrupted: Callable[[], bool],
    repeats: int = 10,
) -> EndToEnd:
    """Times the tuned and the untuned network in turn on another machine, where the peers cannot run.

    Args:
        network: Gives the inputs and the output to compare with.
        scheduler: The one that compiled it.
        tuned: The library with the fastest schedules found.
        untuned: The network with TVM's default schedules.
        machine: The machine, which measures nothing else meanwhile.
        progress: Receives the stages.
        interrupted: Whether the user pressed Ctrl-C.
        repeats: Times that each is timed; a repeat is the median of some runs.

    Raises:
        WorkError: a library cannot be run, or the machine is gone.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    progress(Stage("timing tuned, untuned in turn, on a machine of the tracker"))
    with TemporaryDirectory() as temporary:
        other = Path(temporary) / f"untuned{tuned.suffix}"
        untuned.export(other)
        loaded = {"tuned": scheduler.load(tuned, machine), "untuned": scheduler.load(other, machine)}
    seconds: dict[str, list[float]] = {name: [] for name in loaded}
    # TVM's errors of another machine have several types.
    try:
        outputs = {name: one.run(network.inputs) for name, one in loaded.items()}
        for _ in range(repeats):
            for name, one in loaded.items():
                if interrupted():
                    raise KeyboardInterrupt
                seconds[name].append(median(one.seconds(network.inputs, _RUNS_ELSEWHERE)))
    except Exception as error:
        raise WorkError(f"the network cannot be run on a machine of the tracker: {last_line(error)}") from error
    reference = outputs["untuned"] if network.expected is None else network.expected
    networks = [NetworkTimes(name, own, _difference(outputs[name], reference)) for name, own in seconds.items()]
    return EndToEnd(networks, matrix_product=None, reference=framework_of(network), peers=False)


def _read(path: Path) -> list[npt.NDArray[Any]]:
    with np.load(path) as file:
        return list(file.values())


def _difference(
    outputs: Sequence[npt.NDArray[Any]] | None, reference: Sequence[npt.NDArray[Any]] | None
) -> float | None:
    return None if outputs is None or reference is None else relative_difference(outputs, reference)


#: The name of the matrix product among the contestants.
MATRIX_PRODUCT = "matrix product"


def peer_programs(network: Network, folder: Path) -> dict[str, tuple[str, Path]]:
    """The peers that can run a network: name -> who runs it, which is the peer, and the network as it reads it.

    Args:
        network: The network; one of TVM's own form has no peers.
        folder: Where its program is saved.
    """
    if network.program is None:
        return {}
    program = save_program(network.program, folder)
    return {name: (name, program) for name in peers_of(program)}


def line_up(
    programs: Mapping[str, tuple[str, Path]], inputs: Mapping[str, npt.NDArray[Any]], folder: Path
) -> tuple[list[Contestant], dict[str, Path]]:
    """The contestants: the programs of a network in their order, and a large matrix product.

    Args:
        programs: Name -> who runs it, a scheduler for a library or a peer, and the program.
        inputs: The network's inputs by name.
        folder: Where the inputs are saved, and where each contestant leaves its outputs.

    Returns:
        The contestants, and by name the npz files where the outputs will be.
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
    """Floating point operations a second of the matrix product, in the fastest of its turns."""
    return 2 * contestant.SIZE**3 / min(seconds)
