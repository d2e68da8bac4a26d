"""Extracts the program graphs of scheduled TensorIR modules, without lowering them."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi

from tvm_gnn_cost.graphs.extension import OnError, check_options, extension, to_graphs
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs


def extract_graphs(
    mods: Sequence[tvm.ir.IRModule],
    target: tvm.target.Target | None = None,
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: OnError = "raise",
) -> ProgramGraphs:
    """Graphs of modules, one a module with all of its PrimFuncs; runs on several threads, without the GIL.

    The result does not depend on ``threads``. The CHILD edges of a graph come first, then its LOOP and BUFFER edges;
    only the first 64 store-load pairs of a buffer become BUFFER edges. The modules must not change during the call.

    Args:
        mods: Scheduled TensorIR modules, before or after postprocessors.
        target: The target that they are built for, for the node values of the group ``target``; 0 if None.
        detail: ``"tree"`` for all nodes of the syntax tree; ``"statements"`` without the nodes below indices, bindings,
            regions, predicates and declarations, which leaves a tenth to a third. A node has the same values in both.
        threads: Number of threads; 0 for one a core.
        on_error: ``"raise"``, or ``"skip"`` to give a module that cannot be read an empty graph and its reason in
            ``errors``.

    Raises:
        TypeError: an item is no ``IRModule``; the message gives its position.
        ValueError: a module has no PrimFunc, is nested deeper than 1000 levels or has more than a million nodes.
        InputError: an option has an unknown value.
    """
    check_options(detail, threads, on_error)
    if not isinstance(mods, Sequence | tvm_ffi.Array):
        raise TypeError(f"mods must be a sequence of IRModules, got {type(mods).__name__}; wrap a single one in a list")
    return to_graphs(extension().extract(list(mods), detail == "tree", threads, on_error == "skip"), detail, target)
