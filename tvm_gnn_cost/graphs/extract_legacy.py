"""The same extension for a TVM up to 0.19, the ones with ``auto_scheduler``; talks to that TVM.

The extension lowers states and reads their syntax trees through TVM's C API, on its own threads, without the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import tvm_ffi

from tvm_gnn_cost.graphs.extract import check_options, extension, to_graphs
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs

if TYPE_CHECKING:
    import tvm
    from tvm import auto_scheduler


def extract_states(
    dag: auto_scheduler.ComputeDAG,
    states: Sequence[Any],
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> ProgramGraphs:
    """Graphs of states of one ``ComputeDAG``: their steps replayed and lowered to TensorIR, not simplified.

    ``auto_scheduler`` starts its own features from the same form, before loops are unrolled and vectorized.

    Args:
        dag: What the states' steps apply to.
        states: ``State`` or ``StateObject``, also one of a measure record that has nothing but its steps.
        detail: See :func:`~tvm_gnn_cost.graphs.extract.extract_graphs`.
        threads: Likewise.
        on_error: Likewise.

    Raises:
        TypeError: something is no state.
        ValueError: a state's steps don't apply to ``dag``; the message gives its position.
        RuntimeError: the TVM that is loaded has no ``auto_scheduler``.
    """
    objects = [getattr(state, "state_object", state) for state in states]
    for i, state in enumerate(objects):
        if type(state).__name__ != "StateObject":
            raise TypeError(f"states[{i}]: expected a State of auto_scheduler, got {type(state).__name__}")
    return _extract(_address(dag), objects, detail, threads, on_error)


def extract_modules(
    mods: Sequence[tvm.ir.IRModule],
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> ProgramGraphs:
    """:func:`~tvm_gnn_cost.graphs.extract.extract_graphs` for this TVM's modules."""
    for i, mod in enumerate(mods):
        if type(mod).__name__ != "IRModule":
            raise TypeError(f"modules[{i}]: expected a tvm.IRModule, got {type(mod).__name__}")
    return _extract(0, mods, detail, threads, on_error)


def _extract(dag: int, objects: Sequence[Any], detail: Detail, threads: int, on_error: str) -> ProgramGraphs:
    check_options(detail, threads, on_error)
    addresses = tvm_ffi.Array([_address(item) for item in objects])
    result = extension().extract_legacy(_library(), dag, addresses, detail == "tree", threads, on_error == "skip")
    return to_graphs(result, detail)


def _address(item: Any) -> int:
    address: int = item.handle.value
    return address


def _library() -> str:
    """The path of the TVM library that this process has loaded."""
    from tvm._ffi.base import _LIB

    path: str = _LIB._name
    return path
