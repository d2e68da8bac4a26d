"""Relay modules as networks: a :class:`~tvm_gnn_cost.importing.source.Framework`.

A program is a module, or a pair of a module and its weights as ``tvm.relay.testing`` and the importers return it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relay

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.inputs import OpenShape


def with_weights(program: Any) -> tuple[tvm.IRModule, dict[str, Any]]:
    """The module and its weights by name."""
    mod, params = program if isinstance(program, tuple) else (program, {})
    return mod, dict(params)


def accepts(program: Any) -> bool:
    """Whether a program is a module with a function ``main`` in Relay, with or without weights."""
    if isinstance(program, tuple) and len(program) == 2 and isinstance(program[1], Mapping):
        program = program[0]
    return isinstance(program, tvm.IRModule) and "main" in [name.name_hint for name in program.get_global_vars()]


def open_shapes(program: Any, name: str) -> dict[str, OpenShape]:
    """The shape of each parameter of ``main`` except the weights, in order.

    Raises:
        InputError: a parameter is not a tensor, or has a dynamic dimension.
    """
    shapes: dict[str, OpenShape] = {}
    for parameter, kind in _inputs(program).items():
        if not isinstance(kind, tvm.ir.TensorType) or any(not isinstance(size, tvm.tir.IntImm) for size in kind.shape):
            raise InputError(
                f"input '{parameter}' of {name} is {kind}; from Relay, only tensors of static shape can be tuned"
            )
        shapes[parameter] = tuple(int(size) for size in kind.shape)
    return shapes


def with_shapes(program: Any, shapes: Mapping[str, tuple[int, ...]], name: str) -> Any:  # noqa: ARG001
    """The program, whose shapes are static."""
    return program


def input_types(program: Any, name: str) -> dict[str, np.dtype[Any]]:  # noqa: ARG001
    """The type of each input."""
    return {parameter: np.dtype(str(kind.dtype)) for parameter, kind in _inputs(program).items()}


def run(program: Any, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
    """None, because only TVM can run it."""


def digest(program: Any) -> str:
    """A hash of the module's structure, its constants and weights."""
    mod, params = with_weights(program)
    bound = tvm.relay.build_module.bind_params_by_name(mod["main"], params)
    return f"{tvm.ir.structural_hash(bound):016x}"


def to_onnx(program: Any, name: str) -> None:
    """None, because this TVM's importer reads ONNX."""


def _inputs(program: Any) -> dict[str, Any]:
    mod, params = with_weights(program)
    typed = relay.transform.InferType()(mod)
    variables = {str(variable.name_hint): variable.checked_type for variable in typed["main"].params}
    return {parameter: kind for parameter, kind in variables.items() if parameter not in params}
