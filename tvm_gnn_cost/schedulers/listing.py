"""The text of a program, with the graph nodes of its loops and TensorIR stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers.scheduler import Listing

#: Types of nodes that begin a line.
STATEMENTS = ("For", "BufferStore")

#: Fields with nested statements, in the order of the graph; blocks have another order in a TVM up to 0.19.
_FIELDS = ("block", "init", "then_case", "else_case", "body")
_FIELDS_OF_BLOCK = ("body", "init")

#: Comment at the end of a statement's line; for a loop on the line before.
_MARK = re.compile(r"\s*# @(\d+)$")

#: Lines without information on the computation.
_LEFT_OUT = re.compile(
    r"\s*(# from tvm|# with |@I\.ir_module|class Module:|@T\.prim_func|T\.(reads|writes|\w*_attr)\(|$)"
)

#: An integer with its dtype.
_TYPED = re.compile(r"T\.int(?:32|64)\((-?\d+)\)")


def list_program(mod: Any, graphs: ProgramGraphs) -> Listing:
    """The text of a module with the nodes of its loops and TensorIR stores.

    Args:
        mod: The module.
        graphs: Its graph, as the only graph.

    Raises:
        WorkError: the graph is not of the module.
    """
    statements = list(_statements_of(mod))
    types = [graphs.type_names[number] for number in graphs.node_type.tolist()]
    nodes = [node for node, name in enumerate(types) if name in STATEMENTS]
    if [types[node] for node in nodes] != [type(stmt).__name__ for stmt in statements]:
        raise WorkError("the statements of the program's text and graph differ; please report this program")
    text = mod.script(obj_to_annotate={stmt: f"@{number}" for number, stmt in enumerate(statements)})
    lines: list[tuple[str, int]] = []
    waiting = -1
    for line in text.splitlines():
        marked = _MARK.search(line)
        statement = line[: marked.start()] if marked else line
        number = int(marked[1]) if marked else -1
        if not statement.strip() and marked:
            waiting = number
            continue
        if not _LEFT_OUT.match(statement):
            lines.append((_short(statement), nodes[max(number, waiting)] if max(number, waiting) >= 0 else -1))
            waiting = -1
    return Listing(tuple(lines), graphs)


def _short(line: str) -> str:
    """A line without dtypes of integers, indented by two spaces per level within the function."""
    bare = line.lstrip()
    return " " * max(0, (len(line) - len(bare)) // 2 - 2) + _TYPED.sub(r"\1", bare)


def _statements_of(mod: Any) -> Iterator[Any]:
    """The loops and TensorIR stores of all functions, in the order of the graph's nodes."""
    for _, function in sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint)):
        if type(function).__name__ == "PrimFunc":
            yield from _statements_in(function.body)


def _statements_in(statement: Any) -> Iterator[Any]:
    name = type(statement).__name__
    if name in STATEMENTS:
        yield statement
    if name == "SeqStmt":
        for inner in statement.seq:
            yield from _statements_in(inner)
        return
    for field in _FIELDS_OF_BLOCK if name == "Block" else _FIELDS:
        inner = getattr(statement, field, None)
        if inner is not None:
            yield from _statements_in(inner)
