"""Kernels beside the products: elementwise functions, rows, and products whose extents no vector divides.

Elementwise functions are built by TVM and by this package and timed interleaved on one thread, with the largest error
relative to float64. Products and row kernels are sampled from the design space, and the fastest of the candidates
counts; a product is compared with that of the next multiple of 16 columns, row kernels with TVM's own rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tvm
from scipy import special
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from common import call_seconds, console, parser, table_of, write_result
from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.vectors import vector_lanes
from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task

Array = npt.NDArray[Any]

#: Name -> function of TensorIR, and the same in float64.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "times 2": (lambda x: x * 2.0, lambda x: x * 2),
    "exp": (tirx.exp, np.exp),
    "sigmoid": (tirx.sigmoid, special.expit),
    "tanh": (tirx.tanh, np.tanh),
    "erf": (tirx.erf, special.erf),
    "log": (lambda x: tirx.log(tirx.abs(x)), lambda x: np.log(np.abs(x))),
    "power 3": (lambda x: tirx.pow(x, 3.0), lambda x: x**3),
    "rsqrt": (lambda x: tirx.rsqrt(tirx.abs(x)), lambda x: 1 / np.sqrt(np.abs(x))),
    "sin": (tirx.sin, np.sin),
}

#: Rows, columns and terms of products with constant weights; batch, rows, columns and terms of products of activations.
DENSE = ((32, 50257, 384), (40, 6625, 120), (32, 1000, 512), (64, 31, 128))
ATTENTION = ((3, 197, 197, 64),)

#: Random candidates of a task.
_CANDIDATES = 64

_ELEMENTS = 2**16


def elementwise(rounds: int) -> dict[str, dict[str, float]]:
    """Nanoseconds per element and errors of each function."""
    target = local_target()
    lanes = vector_lanes(target)
    values = np.random.default_rng(0).normal(0, 3, _ELEMENTS).astype(np.float32)
    argument, result = tvm.runtime.tensor(values), tvm.runtime.tensor(np.zeros_like(values))
    metrics = {}
    for name, (function, exact) in FUNCTIONS.items():
        mod = _vectorized(function, lanes)
        built = {"TVM": tvm.tirx.build(mod, target)["main"], "here": build(mod, target)["main"]}
        seconds: dict[str, list[float]] = {kind: [] for kind in built}
        row = {}
        for _ in range(rounds):
            for kind, run in built.items():
                seconds[kind] += call_seconds(partial(run, argument, result), 10)
        for kind, run in built.items():
            run(argument, result)
            expected = exact(values.astype(np.float64))
            row[f"{kind}, ns"] = 1e9 * median(seconds[kind]) / len(values)
            row[f"{kind}, error"] = float(np.max(np.abs(result.numpy() - expected) / np.abs(expected)))
        metrics[name] = row
    return metrics


def _vectorized(function: Callable[[Any], Any], lanes: int) -> tvm.IRModule:
    data = te.placeholder((_ELEMENTS,), "float32", "data")
    output = te.compute((_ELEMENTS,), lambda i: function(data[i]), name="output")
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([data, output])}))
    (loop,) = schedule.get_loops(schedule.get_sblock("output"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod


class _Dense(torch.nn.Module):
    def __init__(self, columns: int, terms: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(terms, columns)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)


class _Scores(torch.nn.Module):
    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return queries @ keys.transpose(-1, -2)


class _Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def products(candidates: int, dense: Sequence[tuple[int, int, int]]) -> dict[str, dict[str, float]]:
    """GFLOPS of products, and of those with the next multiple of 16 columns."""
    metrics = {}
    pairs: list[tuple[Any, Any, int]]
    for rows, columns, terms in dense:
        inputs: tuple[torch.Tensor, ...] = (torch.randn(rows, terms),)
        pairs = [(_Dense(n, terms).eval(), inputs, 2 * rows * n * terms) for n in (columns, _multiple(columns))]
        metrics[f"{rows} x {columns} x {terms}"] = _beside_multiple(columns, pairs, candidates)
    for batch, rows, columns, terms in ATTENTION:
        pairs = []
        for n in (columns, _multiple(columns)):
            inputs = (torch.randn(batch, rows, terms), torch.randn(batch, n, terms))
            pairs.append((_Scores(), inputs, 2 * batch * rows * n * terms))
        name = f"{batch} x {rows} x {columns} x {terms}, activations"
        metrics[name] = _beside_multiple(columns, pairs, candidates)
    return metrics


def _multiple(columns: int) -> int:
    return -(-columns // 16) * 16


def _beside_multiple(columns: int, pairs: Sequence[tuple[Any, Any, int]], candidates: int) -> dict[str, float]:
    speeds = []
    for module, inputs, operations in pairs:
        seconds = sum(min(_measured(task, candidates)) for task in _tasks(module, inputs))
        speeds.append(operations / seconds / 1e9)
    return {
        "GFLOPS": speeds[0],
        "GFLOPS of the multiple": speeds[1],
        # A product of padded columns at the speed of the multiple does the operations of the multiple.
        "share": speeds[0] / (speeds[1] * columns / _multiple(columns)),
    }


def row_kernels(candidates: int) -> dict[str, dict[str, float]]:
    """Microseconds of row kernels with TVM's rules and with those of this package, both built by this package."""
    networks: dict[str, tuple[Any, tuple[int, ...]]] = {
        "softmax, 3 x 197 x 197": (_Softmax(), (3, 197, 197)),
        "layer norm, 197 x 192": (torch.nn.LayerNorm(192).eval(), (1, 197, 192)),
        "group norm, 64 x 32 x 32": (torch.nn.GroupNorm(8, 64).eval(), (1, 64, 32, 32)),
    }
    metrics = {}
    for name, (module, shape) in networks.items():
        tasks = _tasks(module, (torch.randn(shape),))
        metrics[name] = {
            "TVM's rules, µs": 1e6 * sum(min(_measured(task, candidates, tvm_rules=True)) for task in tasks),
            "here, µs": 1e6 * sum(min(_measured(task, candidates)) for task in tasks),
        }
    return metrics


def _tasks(module: Any, inputs: tuple[torch.Tensor, ...]) -> list[Task]:
    return scheduler().tasks(scheduler().network(module, inputs), local_target())


def _measured(task: Task, count: int, tvm_rules: bool = False) -> list[float]:
    """Seconds of random candidates."""
    target = local_target()
    candidates = _of_tvm(task, count) if tvm_rules else scheduler().sample(task, target, count, 0)
    ((_, outcomes),) = scheduler().measure([(task, candidates)], target, MeasureSettings(repeats=5))
    return [outcome.latency for outcome in outcomes if math.isfinite(outcome.latency)]


def _of_tvm(task: Task, count: int) -> list[ms.MeasureCandidate]:
    context = ms.TuneContext(
        workload_of(task),
        target=local_target(),
        space_generator=ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm"),
        search_strategy="replay-trace",
        task_name=task.name,
        rand_state=1,
        num_threads=1,
    )
    context.pre_tuning(count, count)
    return list(context.generate_measure_candidates() or [])


def main() -> None:
    """Measures and writes the result."""
    options = parser(__doc__)
    options.add_argument("--candidates", type=int, default=_CANDIDATES, help="random candidates of a task")
    options.add_argument("--rounds", type=int, default=20, help="interleaved rounds of ten runs of a function")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.candidates, arguments.rounds = 4, 1
    with machine_to_itself():
        metrics = {"elementwise": elementwise(arguments.rounds)}
    metrics |= {
        "products": products(arguments.candidates, DENSE[-1:] if arguments.quick else DENSE),
        "rows": row_kernels(arguments.candidates),
    }
    for title, found in metrics.items():
        names = next(iter(found.values()))
        rows = [(name, *(f"{value:.3g}" for value in row.values())) for name, row in found.items()]
        console.print(table_of(title, ("kernel", *names), rows, ("kernel",)))
    settings = {"candidates": arguments.candidates, "rounds": arguments.rounds, "threads": usable_cores()}
    write_result(arguments.json, "kernels", settings, metrics)


if __name__ == "__main__":
    main()
