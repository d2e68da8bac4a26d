"""Compiles a network with and without its tuned schedules, compares and times the two; talks to TVM."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.networks.relax import Network
from tvm_gnn_cost.tuning.result import EndToEnd


def compare_end_to_end(
    network: Network, target: tvm.target.Target, schedules: ms.Database, repeats: int = 5
) -> EndToEnd:
    """Times the network with TVM's default schedules and with those in ``schedules``, in turn.

    A task without a record in ``schedules`` keeps its default schedule. Both start from the same Relax module.
    """
    with target, schedules:
        tuned = relax.transform.MetaScheduleApplyDatabase()(network.mod)
    device = tvm.cpu()
    example = tvm.runtime.tensor(network.example, device)
    machines = [relax.VirtualMachine(tvm.compile(mod, target=target), device) for mod in (network.mod, tuned)]
    # These runs warm up too.
    scale = np.abs(network.expected).max()
    outputs = [machine["main"](example).numpy() for machine in machines]
    differences = [float(np.abs(output - network.expected).max() / scale) for output in outputs]
    seconds: tuple[list[float], list[float]] = ([], [])
    with machine_to_itself():
        for _ in range(repeats):
            for machine, times in zip(machines, seconds, strict=True):
                times.append(float(machine.time_evaluator("main", device, number=1, min_repeat_ms=50)(example).mean))
    return EndToEnd(*seconds, *differences)
