"""Extracts the program graphs of ``auto_scheduler``'s states: replays their steps and lowers them to TensorIR.

The extension does both through TVM's C API, on several threads, without the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import auto_scheduler

from tvm_gnn_cost.graphs.extension import OnError, check_options, extension, to_graphs
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs


def extract_states(
    dag: auto_scheduler.ComputeDAG,
    states: Sequence[Any],
    target: tvm.target.Target | str | None = None,
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: OnError = "raise",
) -> ProgramGraphs:
    """Graphs of states of one ``ComputeDAG``, one a state.

    The TensorIR is that from which ``auto_scheduler`` computes its features: not simplified, and its loops neither
    unrolled nor vectorized.

    Args:
        dag: The ``ComputeDAG`` that the states' steps apply to.
        states: ``State`` or ``StateObject``; a measure record's, which has nothing but its steps, is enough.
        target: The target that they are built for, for the node values of the group ``target``; 0 if None.
        detail: ``"tree"`` for all nodes of the syntax tree, ``"statements"`` without those of index arithmetic.
        threads: Number of threads; 0 for one a core.
        on_error: ``"raise"``, or ``"skip"`` to give a state that cannot be read an empty graph and its reason in
            ``errors``.

    Raises:
        TypeError: an item is no state; the message gives its position.
        ValueError: a state's steps do not apply to ``dag``; the message gives its position.
        RuntimeError: the loaded TVM has no ``auto_scheduler``.
        InputError: an option has an unknown value.
    """
    objects = [getattr(state, "state_object", state) for state in states]
    for i, state in enumerate(objects):
        if type(state).__name__ != "StateObject":
            raise TypeError(f"states[{i}]: expected a State of auto_scheduler, got {type(state).__name__}")
    return _extract(_address(dag), objects, target, detail, threads, on_error)


def extract_graphs(
    mods: Sequence[tvm.ir.IRModule],
    target: tvm.target.Target | None = None,
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: OnError = "raise",
) -> ProgramGraphs:
    """Graphs of this TVM's TensorIR modules, one a module; the options are those of :func:`extract_states`.

    Raises:
        TypeError: an item is no ``IRModule``; the message gives its position.
        ValueError: a module has no PrimFunc, is nested deeper than 1000 levels or has more than a million nodes.
        InputError: an option has an unknown value.
    """
    for i, mod in enumerate(mods):
        if type(mod).__name__ != "IRModule":
            raise TypeError(f"modules[{i}]: expected a tvm.IRModule, got {type(mod).__name__}")
    return _extract(0, mods, target, detail, threads, on_error)


def _extract(
    dag: int,
    objects: Sequence[Any],
    target: tvm.target.Target | str | None,
    detail: Detail,
    threads: int,
    on_error: str,
) -> ProgramGraphs:
    check_options(detail, threads, on_error)
    addresses = tvm_ffi.Array([_address(item) for item in objects])
    extracted = extension().extract_auto_scheduler(
        _library(), dag, addresses, detail == "tree", threads, on_error == "skip"
    )
    return to_graphs(extracted, detail, target)


def _address(item: Any) -> int:
    address: int = item.handle.value
    return address


def _library() -> str:
    """Path of the TVM library that this process has loaded."""
    from tvm._ffi.base import _LIB

    path: str = _LIB._name
    return path
