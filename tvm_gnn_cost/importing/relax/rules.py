"""The registry of rules, which convert primitive operators to Relax.

A rule is a function of a :class:`Primitive`, registered for the operators that it converts::

    @rule("Relu")
    def relu(node: Primitive) -> relax.Expr:
        return relax.op.nn.relu(node.tensor(0))

All shapes are static. 16-bit floats are computed in float32 and rounded once, as frameworks do on processors without
16-bit arithmetic; a rule that only moves values passes ``moves=True`` and receives them unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from tvm import relax, te

from tvm_gnn_cost.importing.graph import Node, Tensor

#: Types that are computed in float32.
HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

#: The result of a rule: an output, or several in order.
Result = Any


class Unsupported(Exception):
    """A rule does not cover this use of its operator; the message says which."""


@dataclass(frozen=True)
class Rule:
    """How an operator is converted.

    Attributes:
        write: The function.
        moves: Whether it only moves values.
    """

    write: Callable[[Primitive], Result]
    moves: bool


#: Operator -> its rule.
RULES: dict[str, Rule] = {}


def rule(
    *operators: str, moves: bool = False
) -> Callable[[Callable[[Primitive], Result]], Callable[[Primitive], Result]]:
    """Registers a function as the rule of operators.

    Args:
        operators: Their ONNX names.
        moves: Whether the output only has values of the input, so that nothing is rounded.
    """

    def register(write: Callable[[Primitive], Result]) -> Callable[[Primitive], Result]:
        for operator in operators:
            RULES[operator] = Rule(write, moves)
        return write

    return register


class Primitive:
    """An operator to convert, with its operands as Relax expressions.

    Args:
        node: The operator.
        builder: Receives the bindings.
        expressions: The Relax expression of each tensor.
        moves: Whether the rule only moves values.
    """

    def __init__(
        self, node: Node, builder: relax.BlockBuilder, expressions: dict[Tensor, relax.Expr], moves: bool
    ) -> None:
        self.node, self.builder = node, builder
        self._expressions, self._moves = expressions, moves

    @property
    def operator(self) -> str:
        """Its ONNX name."""
        return self.node.operator

    @property
    def version(self) -> int:
        """The operator set version of its definition."""
        return self.node.version

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, with ONNX's default."""
        return self.node.attributes.get(name, default)

    def has(self, position: int) -> bool:
        """Whether an operand is given."""
        return position < len(self.node.inputs) and self.node.inputs[position] is not None

    def value(self, position: int) -> Tensor | npt.NDArray[Any]:
        """An operand of the graph, with ``shape`` and ``dtype``."""
        operand = self.node.inputs[position] if self.has(position) else None
        if operand is None:
            raise Unsupported(f"its input {position} is missing")
        return operand

    def shape(self, position: int) -> tuple[int, ...]:
        """An operand's shape."""
        return tuple(int(size) for size in self.value(position).shape)

    def dtype(self, position: int) -> str:
        """The type of an operand as the rule sees it."""
        dtype = self.value(position).dtype
        return "float32" if dtype in HALF and not self._moves else str(dtype)

    def tensor(self, position: int) -> relax.Expr:
        """An operand as an expression."""
        operand = self.value(position)
        if isinstance(operand, Tensor):
            result = self._expressions[operand]
            return relax.op.astype(result, "float32") if operand.dtype in HALF and not self._moves else result
        return self.const(operand)

    def tensors(self) -> list[relax.Expr]:
        """All operands that are given."""
        return [self.tensor(i) for i in range(len(self.node.inputs)) if self.has(i)]

    def const(self, values: npt.ArrayLike, dtype: str | None = None) -> relax.Expr:
        """A constant; 16-bit floats as float32, unless the rule only moves values."""
        array = np.asarray(values)
        if dtype is not None:
            array = array.astype(dtype)
        if array.dtype in HALF and not self._moves:
            array = array.astype(np.float32)
        return constant(array)

    def is_constant(self, position: int) -> bool:
        """Whether an operand is given and constant."""
        return self.has(position) and isinstance(self.node.inputs[position], np.ndarray)

    def constant(self, position: int, meaning: str) -> npt.NDArray[Any]:
        """A constant operand.

        Raises:
            Unsupported: it is not constant.
        """
        value = self.value(position)
        if not isinstance(value, np.ndarray):
            raise Unsupported(f"its {meaning} must be constant")
        return value

    def parameter(self, name: str, position: int, default: Any = None) -> Any:
        """A parameter that is an attribute in some versions and an operand in others: a list or a number.

        Raises:
            Unsupported: it is not constant.
        """
        if self.has(position):
            return self.constant(position, name).tolist()
        return self.attribute(name, default)

    def output(self, position: int = 0) -> Tensor:
        """An output's name, type and shape; the name is empty if nothing reads it."""
        return self.node.outputs[position]

    def out_shape(self, position: int = 0) -> tuple[int, ...]:
        """An output's shape."""
        return self.node.outputs[position].shape

    def wants(self, position: int) -> bool:
        """Whether an output is named."""
        return position < len(self.node.outputs) and bool(self.node.outputs[position].name)

    def emit(self, expression: relax.Expr) -> relax.Expr:
        """Binds an expression that is used several times."""
        return self.builder.emit(expression)

    def te(self, function: Callable[..., Any], *arguments: Any, name: str | None = None) -> relax.Expr:
        """Emits a tensor expression, for what Relax has no operator for.

        Args:
            function: Maps a ``te.Tensor`` for each expression among ``arguments`` to one or several.
            arguments: Expressions, and anything else.
            name: Name of the TensorIR function.
        """
        hint = name or self.operator.lower()
        bound = [self.bound(argument) if isinstance(argument, relax.Expr) else argument for argument in arguments]
        return self.builder.emit_te(function, *bound, primfunc_name_hint=hint)

    def bound(self, expression: relax.Expr) -> relax.Expr:
        """An expression as a variable, with its type."""
        if isinstance(expression, relax.Var) or not isinstance(expression, relax.Call):
            return expression
        return self.builder.emit(expression)


def constant(array: npt.NDArray[Any]) -> relax.Expr:
    """A Relax constant."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return relax.const(contiguous, str(array.dtype))


def sizes(value: Any) -> list[int]:
    """A parameter as a list of integers."""
    return [int(item) for item in (value if isinstance(value, Sequence) else [value])]


def positive(axis: int, rank: int) -> int:
    """A nonnegative axis."""
    return int(axis) % max(1, rank)


__all__ = ["HALF", "RULES", "Primitive", "Rule", "Unsupported", "constant", "positive", "rule", "sizes", "te"]
