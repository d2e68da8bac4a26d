"""Relax modules as networks: a :class:`~tvm_gnn_cost.importing.source.Framework`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.inputs import OpenShape


def accepts(program: Any) -> bool:
    """Whether a program is a TVM module with a Relax function ``main``."""
    return isinstance(program, tvm.IRModule) and any(
        name.name_hint == "main" and isinstance(function, relax.Function)
        for name, function in program.functions_items()
    )


def open_shapes(program: tvm.IRModule, name: str) -> dict[str, OpenShape]:
    """The shape of each parameter of ``main``, in order.

    Raises:
        InputError: a parameter is not a tensor of known rank.
    """
    result = {}
    for parameter in program["main"].params:
        if not isinstance(parameter.ty, relax.TensorType) or parameter.ty.shape is None:
            raise InputError(f"input '{parameter.name}' of {name} is not a tensor of known rank")
        result[parameter.name] = tuple(
            int(size) if isinstance(size, tvm.tirx.IntImm) else str(size) for size in parameter.ty.shape
        )
    return result


def with_shapes(program: tvm.IRModule, shapes: Mapping[str, tuple[int, ...]], name: str) -> tvm.IRModule:
    """The module with its symbolic dimensions bound."""
    declared = open_shapes(program, name)
    sizes = {
        symbol: size
        for parameter, shape in declared.items()
        for symbol, size in zip(shape, shapes[parameter], strict=True)
        if isinstance(symbol, str)
    }
    return relax.transform.BindSymbolicVars(sizes, "main")(program) if sizes else program


def input_types(program: tvm.IRModule, name: str) -> dict[str, np.dtype[Any]]:  # noqa: ARG001
    """The type of each parameter."""
    return {parameter.name: np.dtype(str(parameter.ty.dtype)) for parameter in program["main"].params}


def run(program: tvm.IRModule, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
    """None: only TVM can run it."""


def to_onnx(program: tvm.IRModule, name: str) -> None:
    """None: it is already in Relax."""


def digest(program: tvm.IRModule) -> str:
    """A hash of the module's structure and constants."""
    return f"{tvm_ffi.structural_hash(program):016x}"
