"""The text of a program, each of its loops and stores matched with its node in the program's graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.schedulers.scheduler import Listing

#: Node types that begin a line of their own.
STATEMENTS = ("For", "BufferStore")

#: Where a statement's statements are. The fields of a block come in another order in a TVM up to 0.19.
_FIELDS = ("block", "init", "then_case", "else_case", "body")
_FIELDS_OF_BLOCK = ("body", "init")

#: What a line ends with at which a statement begins; for a loop it stands in the line before.
_MARK = re.compile(r"\s*# @(\d+)$")

#: Lines that say nothing of what the program does.
_LEFT_OUT = re.compile(
    r"\s*(# from tvm|# with |@I\.ir_module|class Module:|@T\.prim_func|T\.(reads|writes|\w*_attr)\(|$)"
)

#: A number with its type.
_TYPED = re.compile(r"T\.int(?:32|64)\((-?\d+)\)")


def list_program(mod: Any, graphs: ProgramGraphs) -> Listing:
    """The text of a module and where its loops and stores are in it.

    Args:
        mod: The module.
        graphs: Its graph, alone.

    Raises:
        WorkError: the module is not the graph's.
    """
    found = list(_statements_of(mod))
    types = [graphs.type_names[number] for number in graphs.node_type.tolist()]
    nodes = [node for node, name in enumerate(types) if name in STATEMENTS]
    if [types[node] for node in nodes] != [type(one).__name__ for one in found]:
        raise WorkError("the program's text and its graph have other statements; please report this program")
    text = mod.script(obj_to_annotate={one: f"@{number}" for number, one in enumerate(found)})
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
    """A line without the types of its numbers, and indented by two spaces a level, the function not at all."""
    bare = line.lstrip()
    return " " * max(0, (len(line) - len(bare)) // 2 - 2) + _TYPED.sub(r"\1", bare)


def _statements_of(mod: Any) -> Iterator[Any]:
    """The loops and stores of all functions, in the order of the graph's nodes."""
    for _, function in sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint)):
        if type(function).__name__ == "PrimFunc":
            yield from _statements_in(function.body)


def _statements_in(statement: Any) -> Iterator[Any]:
    name = type(statement).__name__
    if name in STATEMENTS:
        yield statement
    if name == "SeqStmt":
        for one in statement.seq:
            yield from _statements_in(one)
        return
    for field in _FIELDS_OF_BLOCK if name == "Block" else _FIELDS:
        inner = getattr(statement, field, None)
        if inner is not None:
            yield from _statements_in(inner)
