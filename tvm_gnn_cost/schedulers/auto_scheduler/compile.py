"""Compiles a network with default or tuned schedules, and loads exported libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.schedulers.machines import ThisMachine
from tvm_gnn_cost.schedulers.scheduler import Machine, Network


def load_library(path: Path, machine: Machine | None = None) -> LoadedNetwork:
    """Loads a library of :meth:`CompiledNetwork.export` on a machine, by default this machine.

    Raises:
        WorkError: TVM cannot load it.
    """
    on = machine or ThisMachine()
    # TVM's loader raises errors of any type.
    try:
        return LoadedNetwork(on.load(str(path)), on.device())
    except Exception as error:
        raise WorkError(f"TVM cannot load {path}: {last_line(error)}") from error


class LoadedNetwork:
    """A network on the graph executor.

    Args:
        library: The result of ``relay.build``, or a loaded library.
        device: Where it runs.
    """

    def __init__(self, library: Any, device: Any) -> None:
        self.device, self.executor = device, graph_executor.GraphModule(library["default"](device))

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs."""
        self.bind(inputs)()
        return tuple(self.executor.get_output(i).numpy() for i in range(self.executor.get_num_outputs()))

    def bind(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Callable[[], Any]:
        """A function that runs the network on a copy of these inputs."""
        self.executor.set_input(**inputs)
        run: Callable[[], Any] = self.executor.run
        return run

    def seconds(self, inputs: Mapping[str, npt.NDArray[Any]], runs: int) -> list[float]:
        """Seconds of each of ``runs`` runs, after a warm-up run."""
        self.bind(inputs)
        timed = self.executor.module.time_evaluator("run", self.device, number=1, repeat=runs)()
        return [float(second) for second in timed.results]

    def profile(self, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """None: the graph executor has no profiler."""


class CompiledNetwork:
    """A network that was just compiled.

    Args:
        network: The network.
        target: The target of the machine that will run it.
        schedules: Measure inputs and results, of which each task gets the fastest; None for TVM's default schedules.
    """

    def __init__(
        self, network: Network, target: tvm.target.Target, schedules: Sequence[tuple[Any, Any]] | None
    ) -> None:
        # The records are of programs with unpacked weights, which the layout pass would rewrite.
        with_records: dict[str, Any] = {
            "config": {"relay.backend.use_auto_scheduler": True},
            "disabled_pass": ["AutoSchedulerLayoutRewrite"],
        }
        history = nullcontext() if schedules is None else auto_scheduler.ApplyHistoryBest(list(schedules))
        options = {} if schedules is None else with_records
        #: There is no profile that would need the tasks of the kernels.
        self.tasks: dict[str, list[str]] = {}
        with history, tvm.transform.PassContext(opt_level=3, **options):
            self.library = relay.build(network.mod, target=target, params=dict(network.params))

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs, on this machine."""
        return LoadedNetwork(self.library, tvm.cpu()).run(inputs)

    def export(self, path: Path) -> None:
        """Writes a library with the weights."""
        self.library.export_library(str(path))
