"""Extracts the program graphs of TVM's programs: of scheduled TensorIR modules and of ``auto_scheduler``'s states.

The extension reads TVM's objects in memory, on several threads, without the GIL; nothing here imports TVM.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tvm_ffi

from tvm_gnn_cost.errors import WrongTVMError
from tvm_gnn_cost.graphs.extension import Extracted, OnError, check_options, extension, to_graphs
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs


def extract_graphs(
    mods: Sequence[Any],
    target: Any = None,
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: OnError = "raise",
) -> ProgramGraphs:
    """Graphs of TensorIR modules, one a module with all of its PrimFuncs.

    The result does not depend on ``threads``. The CHILD edges of a graph come first, then its LOOP and BUFFER edges;
    only the first 64 store-load pairs of a buffer become BUFFER edges. The modules must not change during the call.

    Args:
        mods: Scheduled ``tvm.IRModule`` of the installed TVM, before or after postprocessors; not lowered.
        target: The ``tvm.target.Target`` that they are built for, or its text, for the node features of the group
            ``target``; these are 0 if None.
        detail: ``"tree"`` for all nodes of the syntax tree; ``"statements"`` without the nodes below indices, bindings,
            regions, predicates and declarations, which leaves a tenth to a third. A node has the same values in both.
        threads: Number of threads; 0 for one per core.
        on_error: ``"raise"``, or ``"skip"`` to give a module that cannot be read an empty graph and its reason in
            ``errors``.

    Raises:
        WrongTVMError: the loaded TVM is 0.20 to 0.25, whose TensorIR is another.
        TypeError: an item is not an ``IRModule``; the message gives its position.
        ValueError: a module has no PrimFunc, is nested deeper than 1000 levels or has more than a million nodes.
        InputError: an option has an unknown value.
    """
    check_options(detail, threads, on_error)
    if not isinstance(mods, Sequence | tvm_ffi.Array):
        raise TypeError(f"mods must be a sequence of IRModules, got {type(mods).__name__}; wrap a single one in a list")
    if _library() is None:
        prim_func = getattr(sys.modules.get("tvm.tirx"), "PrimFunc", None)
        if hasattr(prim_func, "buffer_map"):
            raise WrongTVMError("graphs of TensorIR are extracted with TVM 0.26 or later; this is an earlier one")
        extracted = extension().extract(list(mods), detail == "tree", threads, on_error == "skip")
        return to_graphs(extracted, detail, target)
    for i, mod in enumerate(mods):
        if type(mod).__name__ != "IRModule":
            raise TypeError(f"modules[{i}]: expected a tvm.IRModule, got {type(mod).__name__}")
    return to_graphs(_extract_by_address(0, mods, detail, threads, on_error), detail, target)


def extract_states(
    dag: Any,
    states: Sequence[Any],
    target: Any = None,
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: OnError = "raise",
) -> ProgramGraphs:
    """Graphs of ``auto_scheduler``'s states of one ``ComputeDAG``, one a state.

    Their steps are replayed and lowered to the TensorIR from which ``auto_scheduler`` computes its features: not
    simplified, and its loops neither unrolled nor vectorized.

    Args:
        dag: The ``ComputeDAG`` that the states' steps apply to.
        states: ``State`` or ``StateObject``; a measure record's, which has nothing but its steps, is enough.
        target: See :func:`extract_graphs`.
        detail: See there.
        threads: See there.
        on_error: See there.

    Raises:
        TypeError: an item is not a state; the message gives its position.
        ValueError: a state's steps do not apply to ``dag``; the message gives its position.
        RuntimeError: the loaded TVM has no ``auto_scheduler``.
        InputError: an option has an unknown value.
    """
    objects = [getattr(state, "state_object", state) for state in states]
    for i, state in enumerate(objects):
        if type(state).__name__ != "StateObject":
            raise TypeError(f"states[{i}]: expected a State of auto_scheduler, got {type(state).__name__}")
    check_options(detail, threads, on_error)
    return to_graphs(_extract_by_address(_address(dag), objects, detail, threads, on_error), detail, target)


def _extract_by_address(dag: int, objects: Sequence[Any], detail: Detail, threads: int, on_error: OnError) -> Extracted:
    """What the extension reads in a TVM up to 0.19, whose objects it gets as addresses."""
    addresses = tvm_ffi.Array([_address(item) for item in objects])
    return extension().extract_auto_scheduler(
        _library() or "", dag, addresses, detail == "tree", threads, on_error == "skip"
    )


def _address(item: Any) -> int:
    address: int = item.handle.value
    return address


def _library() -> str | None:
    """Path of the library of a TVM up to 0.19 that this process has loaded; None if it has a later one, or none."""
    base = sys.modules.get("tvm._ffi.base")
    return None if base is None else str(base._LIB._name)
