"""The typed interface of the C++ extension in ``extraction/``.

``extraction/program_graph.h`` defines the nodes, ``graphs/values.py`` their features.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Protocol, cast

import numpy as np
import tvm_ffi

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.graphs.processor import with_processors
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

#: What to do with a program that cannot be read: ``raise`` the error, or ``skip`` it and leave its graph empty.
OnError = Literal["raise", "skip"]

#: type_names, node_type, x, edge_index, edge_type, node_offsets, edge_offsets (DLPack tensors) and errors.
Extracted = tuple[Sequence[str], Any, Any, Any, Any, Any, Any, Mapping[int, str]]


class Extension(Protocol):
    """The functions of the extension; those that extract release the GIL."""

    #: Extracts scheduled modules of TVM 0.25 and newer: (modules, whole tree, threads, skip errors).
    extract: Callable[[list[Any], bool, int, bool], Extracted]
    #: Extracts programs of TVM up to 0.19: (path of TVM's library, address of a ComputeDAG, addresses of its states,
    #: whole tree, threads, skip errors). If the ComputeDAG is 0, the states are modules.
    extract_auto_scheduler: Callable[[str, int, Sequence[int], bool, int, bool], Extracted]
    #: Returns the names of the columns of ``ProgramGraphs.x``.
    value_names: Callable[[], Sequence[str]]


@cache
def extension() -> Extension:
    """Loads the extension, once.

    Raises:
        WorkError: the extension is missing, or was built from other sources.
    """
    # In an editable install, the library is not beside the sources; importlib.resources finds it.
    with importlib.resources.as_file(importlib.resources.files("tvm_gnn_cost") / "extraction.so") as path:
        if not path.is_file():
            raise WorkError(f"{path} is missing: the package was not built; install it again (make install)")
        module = tvm_ffi.load_module(str(path))
    if [str(name) for name in module.value_names()] != [name for name, _ in VALUES]:
        raise WorkError(f"{path} was built from other sources than this package has; install it again (make install)")
    module.extract.release_gil = module.extract_auto_scheduler.release_gil = True
    return cast(Extension, module)


def check_options(detail: str, threads: int, on_error: str) -> None:
    """Checks the arguments that every extraction takes.

    Raises:
        InputError: ``detail`` or ``on_error`` is not one of its choices, or ``threads`` is negative.
    """
    if detail not in ("tree", "statements"):
        raise InputError(f"detail must be 'tree' or 'statements', got {detail!r}")
    if on_error not in ("raise", "skip"):
        raise InputError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if threads < 0:
        raise InputError(f"threads must not be negative, got {threads}")


def to_graphs(extracted: Extracted, detail: Detail, target: object = None) -> ProgramGraphs:
    """Converts the extension's result to program graphs, without copying arrays that are writable.

    Args:
        extracted: The result.
        detail: The requested detail.
        target: The target of all programs, or its text; None if unknown.
    """
    names, *tensors, errors = extracted
    arrays: list[Any] = [np.from_dlpack(tensor) for tensor in tensors]
    node_type, x, edge_index, edge_type, node_offsets, edge_offsets = arrays
    graphs = ProgramGraphs(
        tuple(str(name) for name in names),
        node_type,
        x,
        edge_index,
        edge_type,
        node_offsets,
        edge_offsets,
        {int(graph): str(error) for graph, error in errors.items()},
        detail,
    )
    return graphs if target is None else with_processors(graphs, [str(target)] * len(graphs))
