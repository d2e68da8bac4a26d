"""An analytic draft of a program's latency: a roofline (Williams et al. 2009) over node values, with nothing learned.

It is tried as an input of the graph model, and as what the model corrects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

#: Node value -> its column.
_COLUMN: Mapping[str, int] = {name: column for column, (name, _) in enumerate(VALUES)}
#: A node value that is 0 in every program of a CPU; where the draft is an input, it stands in its place.
_UNUSED = "thread_iterations"

#: Operations that a call of a function such as exp counts for, and cycles until a cache line is there.
_CALL = 20.0
_LINE_CYCLES = 8.0
_LINE_BYTES = 64.0


def draft(graphs: ProgramGraphs) -> npt.NDArray[np.float64]:
    """Estimated cycles of each graph's program: float64[G], the longer of computing and of moving cache lines.

    Every store computes with as many lanes as its loops vectorize, on all cores if a loop around it is parallel. Every
    access moves a line where the innermost loop's stride leaves the one before.
    """

    def value(name: str) -> npt.NDArray[np.float64]:
        stored = graphs.values[:, _COLUMN[name]].astype(np.float64)
        counts: npt.NDArray[np.float64] = np.sign(stored) * (np.exp2(np.abs(stored)) - 1)
        return counts

    cores = np.minimum(value("parallel_iterations"), np.maximum(value("cores"), 1)).clip(1)
    lanes = np.minimum(value("vectorized_iterations"), np.maximum(value("vector_bytes") / 4, 1)).clip(1)
    is_store = value("is_store") > 0
    # Without a vector there are two operations a cycle; twice as many where they add to what they multiply.
    operations = value("float_ops_total") + _CALL * value("math_calls_total")
    computing = np.where(is_store, operations / (2 * lanes * cores), 0)
    stride = np.abs(value("stride_innermost"))
    moved = value("executions") * np.minimum(stride / _LINE_BYTES, 1)
    moving = np.maximum(moved, value("unique_lines")) / cores * _LINE_CYCLES
    owner = np.repeat(np.arange(len(graphs)), graphs.node_counts)
    both = [np.bincount(owner, cycles, minlength=len(graphs)) for cycles in (computing, moving)]
    longer: npt.NDArray[np.float64] = np.maximum(*both).clip(1)
    return longer


def as_input(programs: MeasuredPrograms) -> MeasuredPrograms:
    """The programs with the logarithm of the draft at every node, in place of a value that no CPU's program has."""
    graphs = programs.graphs
    values = graphs.values.copy()
    values[:, _COLUMN[_UNUSED]] = np.repeat(np.log2(1 + draft(graphs)), graphs.node_counts)
    return replace(programs, graphs=replace(graphs, values=values))


def without_draft(programs: MeasuredPrograms) -> MeasuredPrograms:
    """The programs with the ratios of their latencies to the drafts in place of the latencies."""
    return replace(programs, latency=programs.latency / draft(programs.graphs))
