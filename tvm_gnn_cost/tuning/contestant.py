"""The process that runs a compiled network, a peer such as PyTorch, or a large matrix product, to be timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.contest import CannotRun, serve
from tvm_gnn_cost.measuring.machine import usable_cores, use_all_cores
from tvm_gnn_cost.schedulers import NAMES, package

#: Rows and columns of the matrices.
SIZE = 1536


def network(runner: str, program: str, inputs: str, outputs: str) -> Callable[[], Any]:
    """Prepares a network and runs it once.

    Args:
        runner: A scheduler's name for a library of TVM, or a peer's name.
        program: The library, or the file of the network for a peer.
        inputs: An npz file with the inputs as ``arr_0`` and so on, and their ``names``.
        outputs: The npz file to write, with the outputs in order.

    Raises:
        CannotRun: a package is missing.
    """
    with np.load(inputs) as file:
        arrays = {str(name): file[f"arr_{number}"] for number, name in enumerate(file["names"])}
    if runner in NAMES:
        use_all_cores()
        # tvm_ffi imports torch where it is installed, which takes a second and which a library does not need.
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
        # Importing the whole scheduler would take seconds.
        loaded = package(runner).load_library(Path(program))
        np.savez(outputs, *loaded.run(arrays))
        bound: Callable[[], Any] = loaded.bind(arrays)
        return bound
    from tvm_gnn_cost.tuning.peers import peers_of

    try:
        run = peers_of(Path(program))[runner](Path(program), list(arrays.values()), usable_cores())
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error.name} is not installed; pip install 'tvm-gnn-cost[compare]'") from error
    np.savez(outputs, *_arrays(run()))
    return run


def matrix_product() -> Callable[[], Any]:
    """A function that multiplies two square float32 matrices with PyTorch."""
    import torch

    torch.set_num_threads(usable_cores())
    left, right, product = (torch.rand(SIZE, SIZE) for _ in range(3))
    return lambda: torch.mm(left, right, out=product)


def _arrays(outputs: Any) -> Iterator[npt.NDArray[Any]]:
    """The arrays of possibly nested outputs of any framework, in order."""
    if isinstance(outputs, np.ndarray):
        yield outputs
    elif hasattr(outputs, "numpy"):
        yield outputs.numpy()
    elif outputs is not None:
        for output in outputs.values() if isinstance(outputs, Mapping) else outputs:
            yield from _arrays(output)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    serve(lambda: network(*arguments) if arguments else matrix_product())
