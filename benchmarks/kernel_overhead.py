"""What a kernel costs beside its work: the virtual machine's dispatch, and starting and ending a parallel loop.

A network is a chain of kernels that add 1 to a vector. The cost of a kernel is the difference between a long and a
short chain; chains with serial and with parallel kernels are timed interleaved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.s_tir import Schedule

from common import call_seconds, console, parser, table_of, write_result
from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers.meta_schedule.compile import LoadedNetwork, build
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

#: Elements of the vectors, and kernels of the short and of the long chain.
_SIZES, _LENGTHS = (64, 1024, 4096, 8192, 16384, 65536), (10, 110)

_LANES = 16


def main() -> None:
    """Times the chains and writes the microseconds of a kernel."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20, help="interleaved rounds of 50 runs of each chain")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    metrics = _metrics(arguments.rounds, _SIZES[:2] if arguments.quick else _SIZES)
    rows = [(str(size), *(f"{value:.2f}" for value in found.values())) for size, found in metrics.items()]
    console.print(table_of("µs a kernel", ("elements", *next(iter(metrics.values()))), rows))
    write_result(
        arguments.json,
        "kernel_overhead",
        {"rounds": arguments.rounds, "threads": usable_cores()},
        {str(size): found for size, found in metrics.items()},
    )


def _metrics(rounds: int, sizes: Sequence[int]) -> dict[int, dict[str, float]]:
    metrics = {}
    with machine_to_itself():
        for size in sizes:
            chains = {
                (parallel, length): _chain(length, size, parallel) for parallel in (False, True) for length in _LENGTHS
            }
            seconds: dict[Any, list[float]] = {chain: [] for chain in chains}
            # A run after a pause, in which the threads of TVM have gone to sleep.
            rested: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(rounds):
                for chain, run in chains.items():
                    call_seconds(run, 10)
                    seconds[chain] += call_seconds(run, 50)
                for parallel, runs in rested.items():
                    time.sleep(0.05)
                    runs += call_seconds(chains[parallel, _LENGTHS[0]], 1)
            found = {}
            for parallel, name in ((False, "serial"), (True, "parallel")):
                short, long = (seconds[parallel, length] for length in _LENGTHS)
                found[name] = 1e6 * (min(long) - min(short)) / (_LENGTHS[1] - _LENGTHS[0])
            found["10 serial, rested"] = 1e6 * median(rested[False])
            found["10 parallel, rested"] = 1e6 * median(rested[True])
            metrics[size] = found
    return metrics


def _chain(length: int, size: int, parallel: bool) -> Callable[[], Any]:
    """Runs a network of so many kernels on a vector of so many elements."""
    before = te.placeholder((size,), name="before")
    schedule = Schedule(te.create_prim_func([before, te.compute((size,), lambda i: before[i] + 1.0, name="after")]))
    (loop,) = schedule.get_loops(schedule.get_sblock("after"))
    chunks, _, lanes = schedule.split(loop, [usable_cores(), None, _LANES])
    if parallel:
        schedule.parallel(chunks)
    schedule.vectorize(lanes)
    builder, type_ = relax.BlockBuilder(), relax.TensorType((size,), "float32")
    kernel = builder.add_func(schedule.mod["main"].with_attr("global_symbol", "kernel"), "kernel")
    vector = relax.Var("vector", type_)
    value: Any = vector
    with builder.function("main", [vector], {"num_input": 1}):
        with builder.dataflow():
            for _ in range(length):
                value = builder.emit(relax.call_tir(kernel, [value], type_))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    machine = relax.VirtualMachine(build(builder.finalize(), local_target()), tvm.cpu())
    return LoadedNetwork(machine, tvm.cpu()).bind({"vector": np.zeros(size, np.float32)})


if __name__ == "__main__":
    main()
