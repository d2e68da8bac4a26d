"""Compiles a network with default or tuned schedules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

from tvm_gnn_cost.schedulers.scheduler import Network


class CompiledNetwork:
    """A network on Relay's graph executor.

    Args:
        network: The network.
        target: The target of this machine.
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
            library = relay.build(network.mod, target=target, params=dict(network.params))
        self.device = tvm.cpu()
        self.module = graph_executor.GraphModule(library["default"](self.device))
        self.module.set_input("data", network.example)

    def run(self, example: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32, the network's output for an input."""
        self.module.set_input("data", example)
        self.module.run()
        output: npt.NDArray[np.float32] = self.module.get_output(0).numpy()
        return output

    def latency(self) -> float:
        """Mean latency in seconds on the last input, over as many runs as fit into 50 ms."""
        timer = self.module.module.time_evaluator("run", self.device, number=1, min_repeat_ms=50)
        return float(timer().mean)
