"""Compiles a network with default or tuned schedules, and loads a library that it exported."""

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
    """Loads what :meth:`CompiledNetwork.export` wrote, on this machine or another one.

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
        library: What ``relay.build`` made, or a library that was loaded.
        device: Where it runs.
    """

    def __init__(self, library: Any, device: Any) -> None:
        self.device, self.executor = device, graph_executor.GraphModule(library["default"](device))

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs."""
        self.bind(inputs)()
        return tuple(self.executor.get_output(i).numpy() for i in range(self.executor.get_num_outputs()))

    def bind(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Callable[[], Any]:
        """The function that runs the network on these inputs, which are copied now."""
        self.executor.set_input(**inputs)
        run: Callable[[], Any] = self.executor.run
        return run

    def seconds(self, inputs: Mapping[str, npt.NDArray[Any]], runs: int) -> list[float]:
        """Seconds of each of so many runs, after one that does not count."""
        self.bind(inputs)
        timed = self.executor.module.time_evaluator("run", self.device, number=1, repeat=runs)()
        return [float(one) for one in timed.results]


class CompiledNetwork:
    """A network that was just compiled.

    Args:
        network: The network.
        target: The target of the machine that will run it.
        schedules: Measure inputs and results, from which each task gets its fastest schedule; None for TVM's default
            schedules everywhere.
    """

    def __init__(
        self, network: Network, target: tvm.target.Target, schedules: Sequence[tuple[Any, Any]] | None
    ) -> None:
        # The records are of programs with plain weights, which the layout pass would replace by other programs.
        with_records: dict[str, Any] = {
            "config": {"relay.backend.use_auto_scheduler": True},
            "disabled_pass": ["AutoSchedulerLayoutRewrite"],
        }
        history = nullcontext() if schedules is None else auto_scheduler.ApplyHistoryBest(list(schedules))
        options = {} if schedules is None else with_records
        with history, tvm.transform.PassContext(opt_level=3, **options):
            self.library = relay.build(network.mod, target=target, params=dict(network.params))

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs, on this machine."""
        return LoadedNetwork(self.library, tvm.cpu()).run(inputs)

    def export(self, path: Path) -> None:
        """Writes a library that holds the weights too."""
        self.library.export_library(str(path))
