"""The rule of ``extraction/program_graph.h`` written a second time, in Python and node by node, to test against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi

from tests.schedulers.tree_node import TreeNode

NOT_NODES = {"ir.Type", "ir.Attrs", "ir.Span", "ir.SourceName", "ir.SourceMap", "ir.Op"}
RENAMED = {
    "TensorLoad": "BufferLoad",
    "TensorRegion": "BufferRegion",
    "SBlock": "Block",
    "SBlockRealize": "BlockRealize",
}
BELOW_STATEMENTS = {
    "PrimFunc": {"params"},
    "For": {"loop_var", "min", "extent", "thread_binding", "annotations", "step"},
    "BlockRealize": {"iter_values", "predicate"},
    "Block": {"iter_vars", "reads", "writes", "alloc_buffers", "match_buffers", "annotations"},
    "IterVar": {"dom"},
    "BufferLoad": {"source", "indices"},
    "BufferStore": {"buffer", "indices"},
    "AllocBuffer": {"buffer", "annotations"},
    "DeclBuffer": {"buffer", "data"},
    "AttrStmt": {"node", "value"},
    "Bind": {"var"},
    "Let": {"var"},
}


def syntax_tree(mod: Any) -> list[TreeNode]:
    """All nodes of a module's PrimFuncs in depth-first order."""
    nodes: list[TreeNode] = []
    declared: set[int] = set()
    functions = [(var.name_hint, func) for var, func in mod.functions.items() if _key(func) == "tirx.PrimFunc"]
    for _, func in sorted(functions, key=lambda item: item[0]):
        _walk(func, -1, True, nodes, declared)
    return nodes


def _walk(value: Any, parent: int, is_statement: bool, nodes: list[TreeNode], declared: set[int]) -> None:
    if isinstance(value, tvm_ffi.Array | list | tuple):
        for item in value:
            _walk(item, parent, is_statement, nodes, declared)
        return
    if isinstance(value, tvm_ffi.Map | dict):
        for key, item in value.items():
            _walk(key, parent, is_statement, nodes, declared)
            _walk(item, parent, is_statement, nodes, declared)
        return
    keys = [info.type_key for info in _type_infos(value)]
    if not keys or keys[-1].startswith("ffi.") or NOT_NODES & set(keys):
        return
    name = _name(keys[-1])
    buffer_type = getattr(value, "ty", None) if name == "Var" else None
    if buffer_type is not None and _name(_key(buffer_type)) != "BufferType":
        buffer_type = None
    if buffer_type is not None:
        name = "Buffer"
    elif name == "Call":
        name = "Call." + _name(value.op.name if _key(value.op) == "ir.Op" else _key(value.op))
    here = len(nodes)
    nodes.append(TreeNode(name, parent, is_statement, value))
    if buffer_type is not None:
        if value.__chandle__() not in declared:
            declared.add(value.__chandle__())
            for field in ("shape", "strides", "elem_offset"):
                _walk(getattr(buffer_type, field), here, False, nodes, declared)
        return
    hidden = BELOW_STATEMENTS.get(name, set())
    if _is_look_up(value):
        hidden = {"condition", "true_value", "false_value"}
    for info in _type_infos(value):
        for field in info.fields:
            if field.name not in ("span", "ty"):
                _walk(getattr(value, field.name), here, is_statement and field.name not in hidden, nodes, declared)


def _is_look_up(value: Any) -> bool:
    """A chain of Selects between constants."""
    if _name(_key(value)) != "Select" or _name(_key(value.true_value)) not in ("IntImm", "FloatImm"):
        return False
    return _name(_key(value.false_value)) in ("IntImm", "FloatImm") or _is_look_up(value.false_value)


def _type_infos(value: Any) -> list[Any]:
    """The value's type and its ancestors, the root first; empty for what is no object of TVM's."""
    info = getattr(type(value), "__tvm_ffi_type_info__", None) if isinstance(value, tvm_ffi.Object) else None
    return list(reversed(list(_ancestors(info))))


def _ancestors(info: Any) -> Iterator[Any]:
    while info is not None:
        yield info
        info = info.parent_type_info


def _key(value: Any) -> str:
    infos = _type_infos(value)
    return str(infos[-1].type_key) if infos else ""


def _name(key: str) -> str:
    prefix, _, rest = key.partition(".")
    name = rest if prefix in ("tir", "tirx", "s_tir", "ir", "prim") else key
    return RENAMED.get(name, name)
