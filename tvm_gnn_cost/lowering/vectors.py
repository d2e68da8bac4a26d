"""Vectors that TVM does not make: of partial loops, and of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim import expr as prim
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import Broadcast, ForKind, IntImm, Ramp
from tvm.tirx.op import masked_load, masked_store

from tvm_gnn_cost.lowering.blocks import calls_in, uses

#: Passes of TVM's pipeline up to flat buffers; when they run again in the pipeline, nothing is left for them.
_PASSES = (
    *(tvm.s_tir.transform.CanonicalizeLoop, tvm.s_tir.transform.LowerInitBlock),
    *(tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation, tvm.s_tir.transform.ConvertBlocksToOpaque),
    *(tvm.s_tir.transform.CompactBufferAllocation, tvm.s_tir.transform.LowerMatchBuffer),
    *(tvm.s_tir.transform.StmtSimplify, tvm.s_tir.transform.LowerOpaqueBlock, tirx.transform.FlattenBuffer),
)

#: Numbers of vectors in which a reduction accumulates, because an addition has a latency of four cycles.
_ACCUMULATORS = (4, 2, 1)

#: Reductions: the value that changes nothing.
_IDENTITY = {
    prim.Add: lambda dtype: tirx.const(0, dtype),
    prim.Max: tirx.min_value,
    prim.Min: tirx.max_value,
}


#: Number of float32 lanes of the widest vector registers.
WIDEST = 16


def vector_lanes(target: tvm.target.Target) -> int:
    """Number of float32 lanes of the target's vector registers."""
    has = tvm.get_global_func("target.target_has_feature")
    if has("avx512f", target):
        return WIDEST
    return 8 if has("avx2", target) else 4


def more_vectors() -> tvm.transform.Pass:
    """A pass that makes vectors of loops that TVM leaves to scalars.

    A vectorized loop with a condition becomes masked loads and stores; TVM makes a scalar loop with branches of it. A
    serial loop that reduces adjacent values accumulates in the lanes of vectors; compilers do not, because that changes
    the order of additions. The pass takes functions with blocks and a target, and lowers the blocks as TVM's pipeline
    does.
    """
    vectorized = tirx.transform.prim_func_pass(
        lambda function, _, __: vectorize(function, vector_lanes(function.attrs["target"])), opt_level=0
    )
    return tvm.ir.transform.Sequential([*(make() for make in _PASSES), vectorized])


def vectorize(function: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc:
    """A function with more vectors.

    Args:
        function: A function with flat buffers and without blocks.
        lanes: Number of float32 values in a vector register.
    """
    local: set[Any] = set()
    tvm_ffi.structural_walk(function.body, [(tirx.AllocBuffer, lambda stmt: local.add(stmt.buffer))])

    def replaced(loop: tirx.For) -> Any:
        if int(loop.kind) == ForKind.VECTORIZED:
            return _masked_loop(loop, local)
        return _reduction(loop, local, lanes) if int(loop.kind) == ForKind.SERIAL else loop

    return tvm_ffi.structural_map(function, (tirx.For, replaced))


def _masked_loop(loop: tirx.For, local: set[Any]) -> Any:
    body = loop.body
    if not isinstance(body, tirx.IfThenElse) or body.else_case is not None or not isinstance(loop.extent, IntImm):
        return loop
    if not isinstance(body.then_case, tirx.BufferStore):
        return loop
    return _Vector(loop.loop_var, int(loop.extent), local).masked(body.condition, body.then_case) or loop


def _reduction(loop: tirx.For, local: set[Any], lanes: int) -> Any:
    """A loop that reduces adjacent values to one, in vectors."""
    store, variable = loop.body, loop.loop_var
    if not isinstance(store, tirx.BufferStore) or not all(isinstance(at, IntImm) for at in (loop.min, loop.extent)):
        return loop
    kind, extent, dtype = type(store.value), int(loop.extent), str(store.value.ty.dtype)
    if kind not in _IDENTITY or int(loop.min) or extent < lanes or uses(store.indices[0], variable):
        return loop
    term = next(
        (
            term
            for total, term in ((store.value.a, store.value.b), (store.value.b, store.value.a))
            if isinstance(total, TensorLoad)
            and total.source.same_as(store.buffer)
            and tvm_ffi.structural_equal(total.indices[0], store.indices[0])
        ),
        None,
    )
    if term is None or not _is_vector(term, variable, store.buffer):
        return loop
    count = next(count for count in _ACCUMULATORS if count * lanes <= extent)
    index = str(variable.ty.dtype)
    # Each buffer is read and written as a whole vector, so that LLVM keeps it in a register.
    buffers = [tirx.decl_buffer((lanes,), dtype, f"lanes_{i}") for i in range(count)]

    def accumulated(buffer: Any, value: Callable[[Any], Any]) -> tirx.For:
        lane = tirx.Var("lane", index)
        stored = tirx.BufferStore(buffer, value(lane), [lane])
        return tirx.For(lane, 0, int(buffer.shape[0]), ForKind.VECTORIZED, stored)

    def added(buffer: Any, first: Any) -> tirx.For:
        return accumulated(buffer, lambda lane: kind(buffer[lane], _substituted(term, variable, first + lane)))

    outer, width = tirx.Var("vectors", index), count * lanes
    statements: list[Any] = []
    for buffer in buffers:
        statements += [tirx.AllocBuffer(buffer), accumulated(buffer, lambda _: _IDENTITY[kind](dtype))]
    body = [added(buffer, outer * width + i * lanes) for i, buffer in enumerate(buffers)]
    # TVM does not allow a sequence of one statement.
    repeated = tirx.SeqStmt(body) if count > 1 else body[0]
    statements.append(tirx.For(outer, 0, extent // width, ForKind.SERIAL, repeated))
    for i, first in enumerate(range(extent // width * width, extent // lanes * lanes, lanes)):
        statements.append(added(buffers[i], first))
    if extent % lanes:
        whole = added(buffers[-1], extent // lanes * lanes)
        inside = tirx.LT(whole.loop_var, tirx.const(extent % lanes, index))
        partial = _Vector(whole.loop_var, lanes, local | set(buffers)).masked(inside, whole.body)
        if partial is None:
            return loop
        statements.append(partial)

    def combine(left: Any, right: Any, offset: int, size: int) -> Any:
        result = tirx.decl_buffer((size,), dtype, "halves")
        statements.append(tirx.AllocBuffer(result))
        statements.append(accumulated(result, lambda lane: kind(left[lane], right[lane + offset])))
        return result

    while len(buffers) > 1:
        buffers = [combine(*pair, 0, lanes) for pair in zip(buffers[::2], buffers[1::2], strict=True)]
    (total,) = buffers
    while (size := int(total.shape[0])) > 1:
        total = combine(total, total, size // 2, size // 2)
    statements.append(tirx.BufferStore(store.buffer, kind(store.buffer[store.indices[0]], total[0]), store.indices))
    return tirx.SeqStmt(statements)


def _is_vector(term: Any, variable: Any, total: Any) -> bool:
    """Whether a term of a reduction can be computed in vectors: its values are adjacent, and it has no branches."""
    loads, is_vector = 0, True

    def check(load: TensorLoad) -> None:
        nonlocal loads, is_vector
        (index,) = load.indices
        linear = detect_linear_equation(index, [variable])
        step = int(linear[0]) if linear and isinstance(linear[0], IntImm) else None
        loads += step == 1
        is_vector = is_vector and step in (0, 1) and not load.source.same_as(total)

    tvm_ffi.structural_walk(term, [(TensorLoad, check)])
    return is_vector and loads > 0 and not _has_branch(term)


class _Vector:
    """Rewrites a vectorized loop: masked loads to local vectors, TVM's vectorized loop on these, and a masked store.

    Args:
        lane: The loop's variable.
        lanes: Its extent.
        local: Buffers that the function allocates.
    """

    def __init__(self, lane: Any, lanes: int, local: set[Any]) -> None:
        self.lane, self.lanes, self.local = lane, lanes, local
        self.statements: list[Any] = []

    def masked(self, condition: Any, store: tirx.BufferStore) -> tirx.Stmt | None:
        """The statements, inside of the condition in the first lane; None where lanes are not adjacent."""
        mask, output = self._mask(condition), self._ramp(store.indices)
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(store.value, [(TensorLoad, loads.append)])
        moving = [load for load in loads if uses(load, self.lane)]
        if mask is None or output is None or _has_branch(store.value):
            return None
        if any(self._ramp(load.indices) is None for load in moving):
            return None

        def loaded(load: TensorLoad) -> Any:
            if self._is_register(load.source, load.indices) or not uses(load, self.lane):
                return load
            dtype = str(load.ty.dtype)
            value = masked_load(f"{dtype}x{self.lanes}", load.source, self._ramp(load.indices), mask)
            buffer = self._local(dtype)
            self.statements.append(tirx.BufferStore(buffer, value, [Ramp(0, 1, self.lanes)]))
            return buffer[self.lane]

        value = tvm_ffi.structural_map(store.value, (TensorLoad, loaded))
        if self._is_register(store.buffer, store.indices):
            kept = tirx.Select(self._lane_mask, value, store.buffer[store.indices[0]])
            self._append_loop(store.buffer, kept, store.indices[0])
        else:
            result = self._local(str(value.ty.dtype))
            self._append_loop(result, value, self.lane)
            vector = result[Ramp(0, 1, self.lanes)]
            self.statements.append(tirx.Evaluate(masked_store(store.buffer, vector, output, mask)))
        return tirx.IfThenElse(self._at_first(condition), tirx.SeqStmt(self.statements), None)

    def _append_loop(self, buffer: Any, value: Any, index: Any) -> None:
        stored = tirx.BufferStore(buffer, value, [index])
        self.statements.append(tirx.For(self.lane, 0, self.lanes, ForKind.VECTORIZED, stored))

    def _mask(self, condition: Any) -> Any:
        """The lanes in which a condition holds, which must be the first ones; None otherwise."""
        parts = [part for part in _conjuncts(condition) if uses(part, self.lane)]
        if len(parts) != 1 or not isinstance(parts[0], tirx.LT) or uses(parts[0].b, self.lane):
            return None
        self._lane_mask = parts[0]
        ramp = self._ramp([parts[0].a])
        if ramp is None:
            return None
        # The number of lanes that are left, in 32 bits: comparing 64-bit indices takes ten instructions.
        left = tirx.min(parts[0].b - ramp.base, self.lanes).astype("int32")
        return tirx.LT(Ramp(0, 1, self.lanes), Broadcast(left, self.lanes))

    def _ramp(self, indices: Any) -> Any:
        """The indices in all lanes; None if they are not adjacent."""
        (index,) = indices
        linear = detect_linear_equation(index, [self.lane])
        if not linear or not isinstance(linear[0], IntImm) or int(linear[0]) != 1:
            return None
        return Ramp(linear[1], tirx.const(1, index.ty.dtype), self.lanes)

    def _is_register(self, buffer: Any, indices: Any) -> bool:
        """Whether a vector of a local buffer is a whole register: its index is a constant multiple of the lanes.

        LLVM keeps such a buffer in registers, but only if there are no masks.
        """
        ramp = self._ramp(indices)
        if ramp is None or buffer not in self.local:
            return False
        (size,) = buffer.shape
        return int(size) % self.lanes == 0 and Analyzer().can_prove_equal(ramp.base % self.lanes, 0)

    def _local(self, dtype: str) -> Any:
        """A local vector; LLVM keeps it in a register."""
        buffer = tirx.decl_buffer((self.lanes,), dtype, f"vector_{len(self.statements)}")
        self.statements.append(tirx.AllocBuffer(buffer))
        return buffer

    def _at_first(self, expression: Any) -> Any:
        return _substituted(expression, self.lane, tirx.const(0, str(self.lane.ty.dtype)))


def _substituted(expression: Any, variable: Any, value: Any) -> Any:
    return tvm_ffi.structural_map(expression, (tvm.ir.Var, lambda var: value if var.same_as(variable) else var))


def _has_branch(expression: Any) -> bool:
    """Whether a part of an expression is computed only under a condition, which may guard a load."""
    return any("if_then_else" in getattr(call.op, "name", "") for call in calls_in(expression))


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
