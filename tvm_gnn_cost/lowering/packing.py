"""Packs weights as each schedule reads them, where that provably preserves the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.prim import expr as prim
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore, IterVar

from tvm_gnn_cost.lowering.blocks import FREE, root_of

#: Annotation of a block that copies a weight into the layout that a schedule reads.
_PACKS = "meta_schedule.layout_rewrite_preproc"


def free_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Marks the weights whose layout a schedule may choose: those that a product reads one to one.

    TVM marks every constant, and its ``RewriteLayout`` packs each by a single index expression. That is wrong for
    gathered embedding tables, flipped convolution weights and broadcast constants.
    """
    mod = relax.transform.AttachAttrLayoutFreeBuffers()(mod)
    for var, function in mod.functions_items():
        free = function.attrs.get(FREE, ()) if isinstance(function, tvm.tirx.PrimFunc) and function.attrs else ()
        kept = [int(i) for i in free if _is_factor(function, function.params[int(i)])]
        if len(kept) < len(free):
            mod.update_func(var, function.with_attr(FREE, kept))
    return mod


def _is_factor(function: tvm.tirx.PrimFunc, param: Any) -> bool:
    """Whether a parameter is read by a single load, as a factor of a product, one to one."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(tvm.ir.TensorLoad, loads.append)])
    reads = [load for load in loads if load.source.same_as(param)]
    if len(reads) != 1:
        return False
    sch = tvm.s_tir.Schedule(function)
    blocks = [sch.get(block) for block in sch.get_child_blocks(root_of(sch))]
    readers = [block for block in blocks if any(region.source.same_as(param) for region in block.reads)]
    return len(readers) == 1 and _sums_products_of(readers[0], reads[0]) and _is_one_to_one(readers[0], reads[0])


def _sums_products_of(block: Any, load: Any) -> bool:
    """Whether a block is ``C[...] += A[...] * B[...]`` with initial value 0, and the load is one of the factors."""
    body, init = block.body, block.init
    if not (isinstance(body, BufferStore) and isinstance(init, BufferStore) and isinstance(body.value, prim.Add)):
        return False
    if not isinstance(init.value, (tvm.tirx.FloatImm, tvm.tirx.IntImm)) or init.value.value != 0:
        return False
    for total, product in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        if isinstance(total, tvm.ir.TensorLoad) and total.source.same_as(body.buffer):
            same = tvm_ffi.structural_equal(list(total.indices), list(body.indices))
            return same and any(load.same_as(factor) for factor in _factors(product))
    return False


def _factors(product: Any) -> Iterator[Any]:
    """The factors of a product, without their casts."""
    while isinstance(product, prim.Cast):
        product = product.value
    if isinstance(product, prim.Mul):
        yield from _factors(product.a)
        yield from _factors(product.b)
    else:
        yield product


def _is_one_to_one(block: Any, load: Any) -> bool:
    """Whether the indices of a load are distinct iteration variables that cover their dimensions."""
    left = list(block.iter_vars)
    for index, size in zip(load.indices, load.source.shape, strict=True):
        if isinstance(index, tvm.tirx.IntImm) and int(index) == 0 and _is(size, 1):
            continue
        results = [var for var in left if index.same_as(var.var)]
        if not results or not (_is(results[0].dom.min, 0) and _same_size(results[0].dom.extent, size)):
            return False
        if results[0].iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            return False
        left.remove(results[0])
    return True


def _is(size: Any, value: int) -> bool:
    return isinstance(size, tvm.tirx.IntImm) and int(size) == value


def _same_size(left: Any, right: Any) -> bool:
    return isinstance(left, tvm.tirx.IntImm) and _is(right, int(left))


def packers(function: tvm.tirx.PrimFunc) -> dict[int, tvm.tirx.PrimFunc]:
    """The functions that pack a scheduled function's weights: parameter index of each weight, with its packer.

    A packer takes the weight and its output, which replaces the weight once packing is removed from the function.
    """
    root = function.body.block
    result = {}
    for stmt in root.body.seq if isinstance(root.body, tvm.tirx.SeqStmt) else [root.body]:
        block = _innermost(stmt)
        if block is None or _PACKS not in block.annotations:
            continue
        ((weight,), (packed,)) = ([region.source for region in regions] for regions in (block.reads, block.writes))
        (number,) = [i for i, param in enumerate(function.params) if param.same_as(weight)]
        body = SBlockRealize([], True, SBlock([], [], [], "root", stmt))
        result[number] = tvm.tirx.PrimFunc([weight, packed], body).with_attr({"tirx.noalias": True, "s_tir": True})
    return result


def _innermost(stmt: Any) -> Any:
    """The block inside of nested loops; None if there is another statement."""
    while isinstance(stmt, tvm.tirx.For):
        stmt = stmt.body
    return stmt.block if isinstance(stmt, SBlockRealize) else None


def prepack(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Packs the weights of scheduled functions at compile time.

    Args:
        mod: A result of :func:`~tvm_gnn_cost.lowering.layouts.legalize` with schedules applied.
        target: Where the packing runs: this machine.
    """
    with target:
        for item in (relax.transform.SplitLayoutRewritePreproc(), relax.transform.FoldConstant()):
            mod = item(mod)
    return mod
