"""Helpers that expand operators of the domain ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from tvm_gnn_cost.importing.simplify import Call, Expansion, Simplifier, Value

#: The ONNX operator set of the expansions.
OPSET = 21


class Writer:
    """Expands one operator to ONNX's operators.

    Args:
        simplifier: Receives the operators.
        call: The operator.
    """

    def __init__(self, simplifier: Simplifier, call: Call) -> None:
        self.simplifier, self.call = simplifier, call

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Adds an operator."""
        return self.simplifier.emit(operator, *inputs, name=self.call.name, **attributes)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; the schemas of this domain, with their defaults, are not available."""
        return self.call.attributes.get(name, default)

    def tensor(self, position: int) -> Any:
        """A required operand."""
        return self.call.tensor(position)

    def has(self, position: int) -> bool:
        """Whether an operand is given."""
        return self.call.input(position) is not None

    def plus(self, value: Any, position: int) -> Any:
        """Adds an operand to a value if it is given."""
        return self("Add", value, self.tensor(position)) if self.has(position) else value

    def reshaped(self, value: Any, *shape: int) -> Any:
        """Reshapes a value."""
        return self("Reshape", value, np.array(shape, np.int64))

    def cast(self, value: Any, dtype: Any) -> Any:
        """Casts a value."""
        return self("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def number(self, value: float, like: Any) -> npt.NDArray[Any]:
        """A scalar constant of a tensor's type."""
        return np.array(value, like.dtype)

    def swapped(self, value: Any) -> Any:
        """Swaps the last two axes."""
        rank = len(value.shape)
        return self("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])

    def dequantized(self, position: int) -> Any:
        """Dequantizes an operand whose scale and zero point follow it."""
        return self("DequantizeLinear", *(self.call.input(position + i) for i in range(3)))

    def quantized(self, value: Any, position: int) -> Any:
        """Quantizes a value by a scale and zero point that are operands."""
        return self("QuantizeLinear", value, self.call.input(position), self.call.input(position + 1))


def written(write: Callable[[Writer], Any]) -> Expansion:
    """Decorates an expansion that uses a newer operator set than the model."""

    def expansion(simplifier: Simplifier, call: Call) -> Sequence[Value]:
        with simplifier.at_opset(OPSET):
            result = write(Writer(simplifier, call))
        return result if isinstance(result, list) else [result]

    return expansion


def channels_last(write: Writer, value: Any, function: Callable[[Any], Any], is_last: Any) -> Any:
    """Applies a function of NCHW images to images that may be channels-last."""
    if not is_last:
        return function(value)
    axes = range(1, len(value.shape) - 1)
    output = function(write("Transpose", value, perm=[0, len(value.shape) - 1, *axes]))
    return write("Transpose", output, perm=[0, *(axis + 1 for axis in axes), 1])
