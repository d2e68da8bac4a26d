"""Packs weights as each schedule reads them."""

from __future__ import annotations

import tvm
from tvm import relax

#: Attribute of a function: the numbers of its parameters whose layout a schedule may choose.
_FREE = "layout_free_buffers"


def free_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Marks the weights whose layout a schedule may choose."""
    return keep_reshaped_weights(relax.transform.AttachAttrLayoutFreeBuffers()(mod))


def keep_reshaped_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Gives weights that a function copies into another shape, as a group norm's scale, back their fixed layout.

    TVM's ``RewriteLayout`` takes such a copy for a packing and ends the search of the task with an error.
    """
    for var, function in mod.functions_items():
        free = function.attrs.get(_FREE, ()) if isinstance(function, tvm.tirx.PrimFunc) and function.attrs else ()
        reshaped = _reshaped(function) if free else set()
        kept = [int(i) for i in free if int(i) not in reshaped]
        if len(kept) < len(free):
            mod.update_func(var, function.with_attr(_FREE, kept) if kept else function.without_attr(_FREE))
    return mod


def _reshaped(function: tvm.tirx.PrimFunc) -> set[int]:
    """Numbers of the parameters that a block copies into a buffer with another number of dimensions."""
    sch = tvm.s_tir.Schedule(function)
    found = set()
    for block in map(sch.get, sch.get_child_blocks(sch.get_sblock("root"))):
        if len(block.reads) != 1 or len(block.reads[0].region) == len(block.writes[0].region):
            continue
        if isinstance(getattr(block.body, "value", None), tvm.ir.TensorLoad):
            found |= {i for i, param in enumerate(function.params) if block.reads[0].source.same_as(param)}
    return found


def prepack(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Packs the weights of scheduled functions now, so that no run packs them again.

    Args:
        mod: What :func:`~tvm_gnn_cost.lowering.layouts.legalize` gave, with schedules applied.
        target: Where the packing runs: this machine.
    """
    with target:
        for one in (relax.transform.SplitLayoutRewritePreproc(), relax.transform.FoldConstant()):
            mod = one(mod)
    return mod
