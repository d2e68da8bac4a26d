"""Masked vectors, where the extent of a vectorized loop does not divide that of its axis."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import Broadcast, ForKind, IntImm, Ramp
from tvm.tirx.op import masked_load, masked_store

#: Passes of TVM's pipeline up to flat buffers; when they run again in the pipeline, nothing is left for them.
_PASSES = (
    *(tvm.s_tir.transform.CanonicalizeLoop, tvm.s_tir.transform.LowerInitBlock),
    *(tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation, tvm.s_tir.transform.ConvertBlocksToOpaque),
    *(tvm.s_tir.transform.CompactBufferAllocation, tvm.s_tir.transform.LowerMatchBuffer),
    *(tvm.s_tir.transform.StmtSimplify, tvm.s_tir.transform.LowerOpaqueBlock, tirx.transform.FlattenBuffer),
)


def masking() -> tvm.transform.Pass:
    """A pass that replaces vectorized loops with a condition by masked loads and stores.

    TVM makes scalar loops of them, with a branch in each iteration. The pass takes functions with blocks, and lowers
    the blocks as TVM's pipeline does.
    """
    masked = tirx.transform.prim_func_pass(lambda function, _, __: mask(function), opt_level=0)
    lowered = tvm.ir.transform.Sequential([*(make() for make in _PASSES), masked])

    def transform(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        partial = {var: function for var, function in mod.functions_items() if _has_partial_vectors(function)}
        if not partial:
            return mod
        mod = mod.clone()
        mod.update(lowered(tvm.IRModule(partial)))
        return mod

    return tvm.transform.module_pass(transform, opt_level=0)


def _has_partial_vectors(function: tirx.PrimFunc) -> bool:
    """Whether a function with blocks has a vectorized loop with a condition."""
    conditions: list[Any] = []

    def see(loop: tirx.For) -> None:
        if int(loop.kind) == ForKind.VECTORIZED and isinstance(loop.body, SBlockRealize):
            conditions.append(loop.body.predicate)

    tvm_ffi.structural_walk(function.body, [(tirx.For, see)])
    return any(not isinstance(condition, IntImm) for condition in conditions)


def mask(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function with masked vectors.

    Args:
        function: A function with flat buffers and without blocks.
    """
    local: set[Any] = set()
    tvm_ffi.structural_walk(function.body, [(tirx.AllocBuffer, lambda stmt: local.add(stmt.buffer))])
    return tvm_ffi.structural_map(function, (tirx.For, lambda loop: _replaced(loop, local)))


def _replaced(loop: tirx.For, local: set[Any]) -> Any:
    body = loop.body
    if int(loop.kind) != ForKind.VECTORIZED or not isinstance(loop.extent, IntImm):
        return loop
    if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        return loop
    if not isinstance(body.then_case, tirx.BufferStore) or body.then_case.buffer in local:
        return loop
    return _Vector(loop, local).masked(body.condition, body.then_case) or loop


class _Vector:
    """Rewrites a vectorized loop: masked loads to local vectors, TVM's vectorized loop on these, and a masked store.

    Args:
        loop: The loop.
        local: Buffers that the function allocates.
    """

    def __init__(self, loop: tirx.For, local: set[Any]) -> None:
        self.lane, self.lanes, self.local = loop.loop_var, int(loop.extent), local
        self.statements: list[Any] = []

    def masked(self, condition: Any, store: tirx.BufferStore) -> tirx.Stmt | None:
        """The statements, inside of the condition in the first lane; None where lanes are not adjacent."""
        mask, output = self._mask(condition), self._ramp(store.indices)
        loads, is_vector = list[TensorLoad](), mask is not None and output is not None

        def check(load: TensorLoad) -> None:
            nonlocal is_vector
            if _reads(load, self.lane):
                loads.append(load)
                is_vector = is_vector and self._is_vector(load)

        def check_call(call: tvm.ir.Call) -> None:
            nonlocal is_vector
            is_vector = is_vector and "if_then_else" not in getattr(call.op, "name", "")

        tvm_ffi.structural_walk(store.value, [(TensorLoad, check), (tvm.ir.Call, check_call)])
        if not is_vector:
            return None

        def local(load: TensorLoad) -> Any:
            if load.source in self.local or not _reads(load, self.lane):
                return load
            dtype = str(load.ty.dtype)
            value = masked_load(f"{dtype}x{self.lanes}", load.source, self._ramp(load.indices), mask)
            buffer = self._local(dtype)
            self.statements.append(tirx.BufferStore(buffer, value, [Ramp(0, 1, self.lanes)]))
            return buffer[self.lane]

        value = tvm_ffi.structural_map(store.value, (TensorLoad, local))
        result = self._local(str(value.ty.dtype))
        computed = tirx.BufferStore(result, value, [self.lane])
        self.statements.append(tirx.For(self.lane, 0, self.lanes, ForKind.VECTORIZED, computed))
        vector = result[Ramp(0, 1, self.lanes)]
        self.statements.append(tirx.Evaluate(masked_store(store.buffer, vector, output, mask)))
        return tirx.IfThenElse(self._at_first(condition), tirx.SeqStmt(self.statements), None)

    def _mask(self, condition: Any) -> Any:
        """The lanes in which a condition holds, which must be the first ones; None otherwise."""
        parts = [part for part in _conjuncts(condition) if _reads(part, self.lane)]
        if len(parts) != 1 or not isinstance(parts[0], tirx.LT) or _reads(parts[0].b, self.lane):
            return None
        ramp = self._ramp([parts[0].a])
        return None if ramp is None else tirx.LT(ramp, Broadcast(parts[0].b, self.lanes))

    def _ramp(self, indices: Any) -> Any:
        """The indices in all lanes; None if they are not adjacent."""
        (index,) = indices
        linear = detect_linear_equation(index, [self.lane])
        if not linear or not isinstance(linear[0], IntImm) or int(linear[0]) != 1:
            return None
        return Ramp(linear[1], tirx.const(1, index.ty.dtype), self.lanes)

    def _is_vector(self, load: TensorLoad) -> bool:
        """Whether the lanes of a load are adjacent, and inside of a local buffer: multiples of the lanes are."""
        ramp = self._ramp(load.indices)
        if ramp is None or load.source not in self.local:
            return ramp is not None
        (size,) = load.source.shape
        return int(size) % self.lanes == 0 and Analyzer().can_prove_equal(ramp.base % self.lanes, 0)

    def _local(self, dtype: str) -> Any:
        """A local vector; LLVM keeps it in a register."""
        buffer = tirx.decl_buffer((self.lanes,), dtype, f"vector_{len(self.statements)}", scope="local")
        self.statements.append(tirx.AllocBuffer(buffer))
        return buffer

    def _at_first(self, expression: Any) -> Any:
        def first(variable: Any) -> Any:
            return tirx.const(0, variable.ty.dtype) if variable.same_as(self.lane) else variable

        return tvm_ffi.structural_map(expression, (tvm.ir.Var, first))


def _reads(expression: Any, variable: Any) -> bool:
    return any(free.same_as(variable) for free in tirx.analysis.undefined_vars(expression))


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
