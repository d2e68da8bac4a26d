"""Small modules in Relax's operators, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax


def weights(*shape: int) -> relax.Expr:
    """Weights that keep values near 1."""
    values = np.random.default_rng(sum(shape)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return relax.const(values.astype(np.float32), "float32")


def build(emit: Callable[..., Any], *shapes: tuple[int, ...]) -> tvm.IRModule:
    """A module whose function takes tensors of the shapes, and gives what ``emit(builder, *inputs)`` returns."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{number}", relax.TensorType(shape, "float32")) for number, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(emit(builder, *inputs))
        builder.emit_func_output(output)
    return builder.get()


def outputs(mod: tvm.IRModule, compiled: Any = None) -> list[npt.NDArray[Any]]:
    """What a module computes of drawn inputs, with TVM's default schedules; ``compiled`` is what to run instead."""
    rng = np.random.default_rng(0)
    drawn = [
        rng.standard_normal([int(size) for size in parameter.ty.shape]).astype(str(parameter.ty.dtype))
        for parameter in mod["main"].params
    ]
    machine = relax.VirtualMachine(compiled or tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(item) for item in drawn))
    return [item.numpy() for item in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def transposes(mod: tvm.IRModule) -> int:
    """The transposes in a module."""
    return sum(
        getattr(getattr(binding.value, "op", None), "name", "") == "relax.permute_dims"
        for block in mod["main"].body.blocks
        for binding in block.bindings
    )
