"""Compiles a network with default or tuned schedules, and loads a library that it exported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.schedulers.meta_schedule.layouts import prepack
from tvm_gnn_cost.schedulers.meta_schedule.search_log import stderr_to

#: TVM prints a warning without content for each constant that it writes or reads.
_NOWHERE = Path(os.devnull)


def load_library(path: Path) -> LoadedNetwork:
    """Loads what :meth:`CompiledNetwork.export` wrote.

    Raises:
        WorkError: TVM cannot load it.
    """
    # TVM's loader raises errors of any type.
    try:
        with stderr_to(_NOWHERE):
            return LoadedNetwork(tvm.runtime.load_module(str(path)))
    except Exception as error:
        raise WorkError(f"TVM cannot load {path}: {last_line(error)}") from error


class LoadedNetwork:
    """A network on Relax's virtual machine.

    Args:
        library: A compiled module, or one that was loaded.
    """

    def __init__(self, library: Any) -> None:
        self.device = tvm.cpu()
        self.machine = relax.VirtualMachine(library, self.device)

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs."""
        outputs = self.bind(inputs)()
        return tuple(one.numpy() for one in ([outputs] if isinstance(outputs, tvm.runtime.Tensor) else outputs))

    def bind(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Callable[[], Any]:
        """The function that runs the network on these inputs, which are copied now."""
        return partial(self.machine["main"], *(tvm.runtime.tensor(one, self.device) for one in inputs.values()))


class CompiledNetwork(LoadedNetwork):
    """A network that was just compiled.

    Args:
        mod: The network, legalized.
        target: The target of this machine.
        schedules: A database with the records to compile with; tasks without one get TVM's default schedule.
    """

    def __init__(self, mod: tvm.IRModule, target: tvm.target.Target, schedules: ms.Database | None) -> None:
        if schedules is not None:
            with target, schedules:
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
            mod = prepack(mod, target)
        self.executable = tvm.compile(mod, target=target)
        super().__init__(self.executable)

    def export(self, path: Path) -> None:
        """Writes a shared library that holds the weights too."""
        with stderr_to(_NOWHERE):
            self.executable.export_library(str(path))
