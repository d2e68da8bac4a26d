"""The Python face of the extension in ``extraction/``: scheduled modules in, program graphs out.

``extraction/program_graph.h`` says what a node is, ``graphs/values.py`` what its values are.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tvm_ffi

from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs

if TYPE_CHECKING:
    import tvm


def extract_graphs(
    mods: Sequence[tvm.ir.IRModule],
    *,
    detail: Detail = "tree",
    threads: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> ProgramGraphs:
    """Graphs of all PrimFuncs of each module, one graph a module, in one call and without the GIL.

    The result does not depend on ``threads``. Edges: every CHILD edge of a graph, then its LOOP and BUFFER edges; of
    one buffer's store-load pairs the first 64 become BUFFER edges. A module must not be changed meanwhile.

    Args:
        mods: Scheduled TensorIR modules, before or after postprocessors.
        detail: ``"tree"`` for every node of the syntax tree; ``"statements"`` for the same tree without what lies
            below indices, bindings, regions, predicates and declarations (a tenth to a third of the nodes). The nodes
            that both have carry the same values.
        threads: Worker threads; 0 for one a core.
        on_error: ``"raise"``, or ``"skip"`` to leave a graph that cannot be extracted empty and say why in ``errors``.

    Raises:
        TypeError: a module is no ``IRModule``; the message gives its position.
        ValueError: a module has no PrimFunc, is nested deeper than 1000 levels or has more than a million nodes, or
            an argument is none of its choices.
    """
    check_options(detail, threads, on_error)
    if not isinstance(mods, Sequence | tvm_ffi.Array):
        raise TypeError(f"mods must be a sequence of IRModules, got {type(mods).__name__}; wrap a single one in a list")
    return to_graphs(extension().extract(list(mods), detail == "tree", threads, on_error == "skip"), detail)


def check_options(detail: str, threads: int, on_error: str) -> None:
    """Checks the arguments that all extractions have.

    Raises:
        ValueError: one is none of its choices.
    """
    if detail not in ("tree", "statements"):
        raise ValueError(f"detail must be 'tree' or 'statements', got {detail!r}")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if threads < 0:
        raise ValueError(f"threads must not be negative, got {threads}")


def to_graphs(result: Any, detail: Detail) -> ProgramGraphs:
    """What the extension returns, as program graphs."""
    names, *arrays, errors = result
    node_type, values, edges, relation, node_offsets, edge_offsets = map(_numpy, arrays)
    return ProgramGraphs(
        tuple(str(name) for name in names),
        node_type,
        values,
        edges,
        relation,
        node_offsets,
        edge_offsets,
        {int(graph): str(error) for graph, error in errors.items()},
        detail,
    )


def _numpy(array: Any) -> Any:
    return np.from_dlpack(array)


def value_names() -> tuple[str, ...]:
    """The extension's own names of the columns of ``ProgramGraphs.values``."""
    return tuple(str(name) for name in extension().value_names())


@cache
def extension() -> Any:
    """The extension, loaded once."""
    # An editable install keeps the library apart from the sources; the package's resources know both places.
    with importlib.resources.as_file(importlib.resources.files("tvm_gnn_cost") / "extraction.so") as path:
        module = tvm_ffi.load_module(str(path))
    module.extract.release_gil = module.extract_legacy.release_gil = True
    return module
