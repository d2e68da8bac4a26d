"""The rule of ``extraction/program_graph.h`` for a TVM up to 0.19, written a second time, in Python, to test against.

Children come from a table of fields instead of TVM's reflection: a type that is not in it fails the test.
"""

from __future__ import annotations

from typing import Any

import tvm

from tests.schedulers.tree_node import TreeNode

BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE")
CHILDREN = {
    "For": ("loop_var", "min", "extent", "body", "thread_binding", "annotations"),
    "BufferRealize": ("buffer", "bounds", "condition", "body"),
    "BufferStore": ("buffer", "value", "indices"),
    "BufferLoad": ("buffer", "indices"),
    "AttrStmt": ("node", "value", "body"),
    "SeqStmt": ("seq",),
    "IfThenElse": ("condition", "then_case", "else_case"),
    "Evaluate": ("value",),
    "Call": ("args",),
    "Cast": ("value",),
    "Select": ("condition", "true_value", "false_value"),
    "Range": ("min", "extent"),
    "IterVar": ("dom", "var"),
    "Not": ("a",),
    **dict.fromkeys((*BINARY, "And", "Or"), ("a", "b")),
    **dict.fromkeys(("Var", "IntImm", "FloatImm", "StringImm"), ()),
}
BELOW_STATEMENTS = {
    "PrimFunc": {"params"},
    "For": {"loop_var", "min", "extent", "thread_binding", "annotations"},
    "BufferRealize": {"buffer", "bounds", "condition"},
    "BufferStore": {"buffer", "indices"},
    "BufferLoad": {"buffer", "indices"},
    "AttrStmt": {"node", "value"},
    "IterVar": {"dom"},
}


def syntax_tree(mod: tvm.ir.IRModule) -> list[TreeNode]:
    """All nodes of a module's PrimFuncs in depth-first order."""
    nodes: list[TreeNode] = []
    declared: set[Any] = set()
    for _, func in sorted((var.name_hint, func) for var, func in mod.functions.items()):
        nodes.append(TreeNode("PrimFunc", -1, True, func))
        here = len(nodes) - 1
        for param in func.params:
            _walk(func.buffer_map.get(param, param), here, False, nodes, declared)
        _walk(func.body, here, True, nodes, declared)
    return nodes


def _walk(value: Any, parent: int, is_statement: bool, nodes: list[TreeNode], declared: set[Any]) -> None:
    if value is None or isinstance(value, str | tvm.runtime.String):
        return
    if isinstance(value, tvm.ir.Array):
        for item in value:
            _walk(item, parent, is_statement, nodes, declared)
        return
    if isinstance(value, tvm.ir.Map):
        for key, item in value.items():
            _walk(key, parent, is_statement, nodes, declared)
            _walk(item, parent, is_statement, nodes, declared)
        return
    name = type(value).__name__
    here = len(nodes)
    if isinstance(value, tvm.tir.Buffer):
        nodes.append(TreeNode("Buffer", parent, is_statement, value))
        if value.handle.value not in declared:
            declared.add(value.handle.value)
            for field in ("shape", "strides", "elem_offset"):
                _walk(getattr(value, field), here, False, nodes, declared)
        return
    fields = CHILDREN[name]
    shown = "Call." + value.op.name.removeprefix("tir.") if name == "Call" else name
    nodes.append(TreeNode(shown, parent, is_statement, value))
    hidden = set(fields) if _is_look_up(value) else BELOW_STATEMENTS.get(name, set())
    for field in fields:
        _walk(getattr(value, field), here, is_statement and field not in hidden, nodes, declared)


def _is_look_up(value: Any) -> bool:
    """A chain of Selects between constants."""
    immediate = (tvm.tir.IntImm, tvm.tir.FloatImm)
    if not isinstance(value, tvm.tir.Select) or not isinstance(value.true_value, immediate):
        return False
    return isinstance(value.false_value, immediate) or _is_look_up(value.false_value)
