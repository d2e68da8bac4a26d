"""Compares a network compiled with and without its tuned schedules: outputs and latencies."""

from __future__ import annotations

import numpy as np

from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.schedulers.scheduler import Compiled, Network
from tvm_gnn_cost.tuning.result import EndToEnd


def compare_end_to_end(network: Network, untuned: Compiled, tuned: Compiled, repeats: int = 5) -> EndToEnd:
    """Times both in turn, and compares their outputs with PyTorch's; where there is none, with the untuned network's.

    Args:
        network: Gives the input, and the output to compare with.
        untuned: The network with TVM's default schedules.
        tuned: The network with the fastest schedules found.
        repeats: Times that each is measured.
    """
    # These runs warm up too.
    outputs = [compiled.run(network.example) for compiled in (untuned, tuned)]
    reference = outputs[0] if network.expected is None else network.expected
    scale = np.abs(reference).max()
    differences = [float(np.abs(output - reference).max() / scale) for output in outputs]
    seconds: tuple[list[float], list[float]] = ([], [])
    with machine_to_itself():
        for _ in range(repeats):
            for compiled, times in zip((untuned, tuned), seconds, strict=True):
                times.append(compiled.latency())
    return EndToEnd(*seconds, *differences)
