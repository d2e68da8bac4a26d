"""Outlines sequences of small kernels: a function that calls them one after another.

For each kernel, Relax's virtual machine makes a tensor, calls a function and releases tensors, which takes 0.3
microseconds; a step of an LSTM has kernels of 0.1 to 2 microseconds. The function has its intermediate values in
buffers of its own, which TVM allocates once for all of them. A kernel that only copies consecutive elements, such as
the slice of a step, is a pointer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import PointerType, PrimType
from tvm.ir.expr import GenericConst
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import (
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Var,
    address_of,
    call_extern,
    const,
    decl_buffer,
    tvm_throw_last_error,
)
from tvm.tirx.buffer import buffer_data

from tvm_gnn_cost.lowering.blocks import calls_in
from tvm_gnn_cost.lowering.constants import content
from tvm_gnn_cost.lowering.forms import shape_of
from tvm_gnn_cost.lowering.kernels import is_kernel_call
from tvm_gnn_cost.lowering.threads import work

#: The most work of a kernel: on one thread, it takes up to some 10 microseconds.
_SMALL = 32768

#: Attribute of kernels that take pointers, and what their symbols end in.
TAKES_POINTERS, _OF_POINTERS = "tvm_gnn_cost.takes_pointers", "_of_pointers"

#: Bytes to which kernels expect their operands aligned; TVM aligns smaller buffers of a function to less.
_ALIGNMENT = 64


def outline_small_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces sequences of small kernels in ``main`` by calls of functions that call them.

    Args:
        mod: A network whose operators are calls of TensorIR functions, with schedules applied.
    """
    mod = relax.transform.CanonicalizeBindings()(mod)  # without variables that are other names of others
    main, builder = mod["main"], relax.BlockBuilder(mod)
    small = {
        var: 0 if relax.analysis.has_reshape_pattern(function) else _offset(function)
        for var, function in mod.functions_items()
        if isinstance(function, PrimFunc) and work(function) <= _SMALL
    }
    readers: dict[Any, list[Any]] = {var: [None] for var in relax.analysis.free_vars(main.body.body)}
    for block in main.body.blocks:
        for binding in block.bindings:
            for var in relax.analysis.free_vars(binding.value):
                readers.setdefault(var, []).append(binding.var)
    blocks = []
    for block in main.body.blocks:
        bindings: list[Any] = []
        for sequence in _sequences(block.bindings, small):
            bindings += sequence if len(sequence) < 2 else _outlined(builder, sequence, small, readers)
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    builder.update_func(
        mod.get_global_var("main"), relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    )
    return builder.get()


def _offset(function: PrimFunc) -> int | None:
    """Where the output of a kernel begins in its input if it copies consecutive elements; None for other kernels."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(SBlock, lambda block: blocks.append(block) if block.iter_vars else None)])
    body = blocks[0].body if len(blocks) == 1 and len(function.params) == 2 else None
    if not isinstance(body, BufferStore) or not isinstance(body.value, tvm.ir.TensorLoad):
        return None
    (source, output), analyzer = function.params, Analyzer()
    if not body.value.source.same_as(source) or not body.buffer.same_as(output):
        return None
    extents = {each.var: each.dom.extent for each in blocks[0].iter_vars}
    sizes = [extents.pop(index, 1) for index in body.indices]
    if extents or not all(analyzer.can_prove_equal(*pair) for pair in zip(sizes, output.ty.shape, strict=True)):
        return None
    for each in blocks[0].iter_vars:
        analyzer.bind(each.var, each.dom)
    read, written = _flat(body.value.indices, source.ty.shape), _flat(body.indices, output.ty.shape)
    offset = analyzer.simplify(read - written)
    return int(offset) if isinstance(offset, IntImm) else None


def _flat(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The position of an element in a contiguous tensor."""
    position: Any = const(0, "int64")
    for index, size in zip(indices, shape, strict=True):
        position = position * size + index
    return position


def _sequences(bindings: Sequence[Any], small: dict[Any, int | None]) -> Iterator[Sequence[Any]]:
    """The bindings, those of consecutive calls of small kernels together.

    A reshape costs nothing outside of a sequence, and is at neither end of it.
    """
    calls: list[Any] = []
    for binding in bindings:
        function = _kernel(binding.value)
        if function in small:
            calls.append(binding)
            continue
        yield from _trimmed(calls, small)
        yield [binding]
        calls = []
    yield from _trimmed(calls, small)


def _trimmed(calls: Sequence[Any], small: dict[Any, int | None]) -> Iterator[Sequence[Any]]:
    computing = [place for place, binding in enumerate(calls) if small[_kernel(binding.value)] != 0]
    first, end = (computing[0], computing[-1] + 1) if computing else (len(calls), len(calls))
    yield from ([binding] for binding in calls[:first])
    if computing:
        yield calls[first:end]
    yield from ([binding] for binding in calls[end:])


def _kernel(value: Any) -> Any:
    """The function of a call of tensors with static shapes and elements to point at; None for any other expression."""
    if not is_kernel_call(value) or len(value.args) != 2:
        return None
    shapes = [shape_of(tensor) for tensor in (value, *value.args[1].fields)]
    return None if any(shape is None or 0 in shape for shape in shapes) else value.args[0]


def _outlined(
    builder: relax.BlockBuilder, sequence: Sequence[Any], small: dict[Any, int | None], readers: dict[Any, list[Any]]
) -> list[Any]:
    """Bindings of the results of a sequence, by a call of a new function."""
    inside = [binding.var for binding in sequence]
    results = [var for var in inside if not set(readers.get(var, ())) <= set(inside) or _bytes(var) < _ALIGNMENT]
    inputs: list[Any] = []
    parameters: list[Any] = []
    # Of variables, and of constants by their content; a view is a part of another value from an element on.
    buffers: dict[Any, Any] = {}
    views: dict[Any, tuple[Any, int]] = {}
    calls: list[Any] = []
    for binding in sequence:
        values = list(binding.value.args[1].fields)
        operands = [content(value) if isinstance(value, GenericConst) else value for value in values]
        for key, value in zip(operands, values, strict=True):
            if key not in buffers and key not in views:
                inputs.append(value)
                buffers[key] = _buffer(value, f"input{len(inputs)}")
                parameters.append(buffers[key])
        offset = small[binding.value.args[0]]
        if offset is not None and binding.var not in results:
            source, start = views.get(operands[0], (operands[0], 0))
            if (start + offset) * _itemsize(binding.var) % _ALIGNMENT == 0:
                views[binding.var] = source, start + offset
                continue
        buffers[binding.var] = _buffer(binding.var, f"value{len(calls)}")
        places = (views.get(value, (value, 0)) for value in (*operands, binding.var))
        arguments = [_pointer(buffers[value], start) for value, start in places]
        call = call_extern("int32", f"{binding.value.args[0].name_hint}{_OF_POINTERS}", *arguments)
        calls.append(IfThenElse(call != 0, Evaluate(tvm_throw_last_error()), None))
    inner = [buffers[var] for var in inside if var not in results and var not in views]
    block = SBlock([], [], [], "root", SeqStmt(calls), alloc_buffers=inner)
    parameters += [buffers[var] for var in results]
    function = PrimFunc(parameters, SBlockRealize([], True, block))
    name = f"sequence_of_{len(sequence)}_kernels"
    var = builder.add_func(function.with_attr({"tirx.noalias": True, "s_tir": True}), name)
    types = [result.ty for result in results]
    call = relax.call_tir(var, relax.Tuple(inputs), types if len(types) > 1 else types[0])
    if len(results) == 1:
        return [relax.VarBinding(results[0], call)]
    all_results = relax.Var(name, relax.TupleType(types))
    items = (relax.VarBinding(var, relax.TupleGetItem(all_results, place)) for place, var in enumerate(results))
    return [relax.VarBinding(all_results, call), *items]


def _bytes(value: Any) -> int:
    return math.prod(shape_of(value) or ()) * _itemsize(value)


def _itemsize(value: Any) -> int:
    return int(tvm.DataType(str(value.ty.dtype)).itemsize)


def _pointer(buffer: Any, start: int) -> Any:
    """A pointer to an element of a buffer."""
    indices = np.unravel_index(start, [int(size) for size in buffer.ty.shape])
    return address_of(BufferLoad(buffer, [int(index) for index in indices])) if start else buffer_data(buffer)


def _buffer(value: Any, name: str) -> Any:
    return decl_buffer(shape_of(value), str(value.ty.dtype), name)


def called(function: PrimFunc) -> list[str]:
    """The names of the kernels that a function calls, one for each call; none if it is a kernel itself."""
    calls = calls_in(function.body)
    symbols = (str(call.args[0].value) for call in calls if call.op == tvm.ir.Op.get("tirx.call_extern"))
    return [symbol.removesuffix(_OF_POINTERS) for symbol in symbols if symbol.endswith(_OF_POINTERS)]


def of_pointers(function: PrimFunc) -> PrimFunc:
    """A kernel that takes pointers instead of tensors, and returns a code that is not 0 if it failed.

    The code generator adds the return of 0: TVM would free the kernel's own buffers after a return.

    It must be in another object file than its callers: TVM tells LLVM that accesses of different tensors are of
    different types, which is wrong where LLVM inlines a kernel into a function that passes a value to two kernels.
    """
    pointers = [Var(param.name, PointerType(PrimType(str(param.ty.dtype)))) for param in function.params]
    declared = (DeclBuffer(param, data=pointer) for param, pointer in zip(function.params, pointers, strict=True))
    changed = PrimFunc(pointers, SeqStmt([*declared, function.body]), PrimType("int32"))
    symbol = f"{function.attrs['global_symbol']}{_OF_POINTERS}"
    # With a calling convention, TVM does not change how a function is called.
    return changed.with_attr(
        {"tirx.noalias": True, "s_tir": True, "global_symbol": symbol, "calling_conv": 1, TAKES_POINTERS: True}
    )
