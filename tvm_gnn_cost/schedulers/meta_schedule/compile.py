"""Compiles a network with default or tuned schedules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.scheduler import Network


class CompiledNetwork:
    """A network on Relax's virtual machine.

    Args:
        network: The network.
        target: The target of this machine.
        schedules: A database with the records to compile with; tasks without one get TVM's default schedule.
    """

    def __init__(self, network: Network, target: tvm.target.Target, schedules: ms.Database | None) -> None:
        mod = network.mod
        if schedules is not None:
            with target, schedules:
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
        self.device = tvm.cpu()
        self.machine = relax.VirtualMachine(tvm.compile(mod, target=target), self.device)
        self.example = tvm.runtime.tensor(network.example, self.device)

    def run(self, example: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32, the network's output for an input."""
        output: npt.NDArray[np.float32] = self.machine["main"](tvm.runtime.tensor(example, self.device)).numpy()
        return output

    def latency(self) -> float:
        """Mean latency in seconds on the network's own example, over as many runs as fit into 50 ms."""
        timer = self.machine.time_evaluator("main", self.device, number=1, min_repeat_ms=50)
        return float(timer(self.example).mean)
