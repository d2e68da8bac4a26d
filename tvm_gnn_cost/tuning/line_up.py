"""Lines up what is timed in turn: libraries of a network, its peers, and a large matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.contest import Contestant
from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning import contestant
from tvm_gnn_cost.tuning.peers import peers_of, save_program

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
