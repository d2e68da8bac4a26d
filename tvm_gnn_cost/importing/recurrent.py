"""Unrolls LSTM, GRU and RNN to primitive operators.

ONNX Runtime's quantizer turns an LSTM into ``DynamicQuantizeLSTM``: its weights are integers, and their other factor is
quantized to 8 bits, with the range of the input or of a step's states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value

#: ONNX Runtime's LSTM with integer weights.
_QUANTIZED = "DynamicQuantizeLSTM"

#: Operator -> number of gates, and the default activations.
_OPERATORS = {"LSTM": (4, ("Sigmoid", "Tanh", "Tanh")), "GRU": (3, ("Sigmoid", "Tanh")), "RNN": (1, ("Tanh",))}

#: For each direction, whether it is reversed.
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

#: Activation -> the defaults of its parameters alpha and beta, for activations with parameters; None without a default.
_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "affine": (None, None),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "scaledtanh": (None, None),
    "thresholdedrelu": (1.0,),
}

#: Activations that are ONNX operators.
_SIMPLE = {item.lower(): item for item in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")}

#: Maximum number of unrolled steps.
_MOST = 2048

#: The ONNX operator set of the expansion.
_OPSET = 18

_Activation = Callable[[Value], Any]


def recurrent(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``LSTM``, ``GRU`` and ``RNN``."""
    with simplifier.at_opset(_OPSET):
        return _Layer(simplifier, call).outputs()


class _Layer:
    """One recurrent operator.

    Args:
        simplifier: Receives the operators.
        call: The operator.
    """

    def __init__(self, simplifier: Simplifier, call: Call) -> None:
        self.simplifier, self.call = simplifier, call
        self.is_quantized = call.node.op_type == _QUANTIZED
        self.operator = "LSTM" if self.is_quantized else call.node.op_type
        self.gates, self.defaults = _OPERATORS[self.operator]
        direction = call.attributes.get("direction", "forward")
        if direction not in _DIRECTIONS:
            raise Refused(f"its direction '{direction}' is unknown")
        self.directions = _DIRECTIONS[direction]
        self.has_batch_first = bool(call.attributes.get("layout", 0))
        x, self.of_input, self.of_state = (
            _tensor(call, position, meaning)
            for position, meaning in enumerate(("input", "weights", "recurrent weights"))
        )
        if self.is_quantized:
            self.of_input, self.of_state = self._real(self.of_input, 8), self._real(self.of_state, 10)
        self.dtype, self.hidden = x.dtype, int(self.of_state.shape[-1])
        self.x = self.emit("Transpose", x, perm=[1, 0, 2]) if self.has_batch_first else x
        self.steps, self.batch, self.features = (int(size) for size in self.x.shape)
        if not 0 < self.steps <= _MOST:
            raise Refused(f"it has {self.steps} steps, and 1 to {_MOST} can be unrolled")
        self.clip = call.attributes.get("clip")
        self.activations = self._activations()
        self.masks = self._masks()

    def emit(self, operator: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Any:
        """Adds an operator."""
        return self.simplifier.emit(operator, *inputs, outputs=outputs, name=self.call.name, **attributes)

    def outputs(self) -> Sequence[Value]:
        """The states of all steps, the last states, and the last cells."""
        rows = self.gates * self.hidden
        of_input, of_state = self._biases()
        # The input's part of the gates is a single product for all steps and directions.
        flat = self.rounded(self.reshaped(self.x, (self.steps * self.batch, self.features)))
        weights = self.reshaped(self.of_input, (len(self.directions) * rows, self.features))
        product = self.emit("MatMul", flat, self.emit("Transpose", weights, perm=[1, 0]))
        if of_input is not None:
            product = self.emit("Add", product, self.reshaped(of_input, (len(self.directions) * rows,)))
        states, cells, sequences = [], [], []
        for number, backwards in enumerate(self.directions):
            direction = _Direction(self, number, None if of_state is None else self.of_direction(of_state, number))
            state, cell = self._initial(5, number), self._initial(6, number)
            result: list[Value] = [None] * self.steps
            for step in range(self.steps)[:: -1 if backwards else 1]:
                share = self.cut(product, 0, step * self.batch, (step + 1) * self.batch)
                share = self.cut(share, 1, number * rows, (number + 1) * rows)
                new, changed = direction.step(share, state, cell)
                # After the end of a sequence, outputs are zero and its state does not change.
                result[step] = self.masked(step, new, np.zeros((self.batch, self.hidden), self.dtype))
                state = self.masked(step, new, state)
                cell = None if changed is None else self.masked(step, changed, cell)
            sequences.append(self.joined(result, 0))
            states.append(state)
            cells.append(cell)
        return self._arranged(sequences, states, cells)

    def _real(self, weights: Any, position: int) -> Any:
        """Weights [directions, rows, columns] of integers [directions, columns, rows], with scale and zero point."""
        given = self.call.input(position), self.call.input(position + 1)
        count, _, rows = weights.shape
        scale, zero = (
            None
            if not isinstance(item, Tensor | np.ndarray)
            else self.reshaped(item, (count, 1, rows if len(item.shape) == 2 else 1))
            for item in given
        )
        values = self.emit("Cast", weights, to=TensorProto.FLOAT)
        if zero is not None:
            values = self.emit("Sub", values, self.emit("Cast", zero, to=TensorProto.FLOAT))
        return self.emit("Transpose", self.emit("Mul", values, scale), perm=[0, 2, 1])

    def rounded(self, value: Any) -> Any:
        """Quantizes the other factor of integer weights."""
        if not self.is_quantized:
            return value
        return self.emit("DequantizeLinear", *self.emit("DynamicQuantizeLinear", value, outputs=3))

    def _arranged(self, sequences: list[Any], states: list[Any], cells: list[Any]) -> Sequence[Value]:
        """Outputs in the operator's layout."""
        shape = (self.steps, 1, self.batch, self.hidden)
        every = self.joined([self.reshaped(sequence, shape) for sequence in sequences], 1)
        last: list[Any] = [self.joined([self.reshaped(state, (1, *state.shape)) for state in states], 0), None]
        if self.operator == "LSTM":
            last[1] = self.joined([self.reshaped(cell, (1, *cell.shape)) for cell in cells], 0)
        if self.has_batch_first:
            every = self.emit("Transpose", every, perm=[2, 0, 1, 3])
            last = [None if item is None else self.emit("Transpose", item, perm=[1, 0, 2]) for item in last]
        return [every, *last]

    def _initial(self, position: int, number: int) -> Any:
        """The initial state or cell of a direction: [batch, hidden]."""
        if self.operator != "LSTM" and position == 6:
            return None
        given = self.call.input(position)
        if given is None:
            return np.zeros((self.batch, self.hidden), self.dtype)
        if self.has_batch_first:
            given = self.emit("Transpose", given, perm=[1, 0, 2])
        return self.of_direction(given, number)

    def _biases(self) -> tuple[Any, Any]:
        """The biases [directions, rows] of the input's product, and the separate ones of the state's product."""
        given, rows = self.call.input(3), self.gates * self.hidden
        if given is None:
            return None, None
        first, second = self.cut(given, 1, 0, rows), self.cut(given, 1, rows, 2 * rows)
        if self.operator != "GRU" or not self.call.attributes.get("linear_before_reset"):
            return self.emit("Add", first, second), None
        # Only the candidate's bias is separate: the reset gate is applied to it.
        zeros = np.zeros((1, self.hidden), self.dtype)
        kept = np.concatenate([zeros, zeros, zeros + 1], 1)
        return self.emit("Add", first, self.emit("Mul", second, 1 - kept)), self.emit("Mul", second, kept)

    def _masks(self) -> list[Value]:
        """For each step, whether each sequence has it: [batch, 1]; None where all are long enough."""
        lengths = self.call.input(4)
        if lengths is None:
            return [None] * self.steps
        if isinstance(lengths, np.ndarray):
            return [None if (lengths > item).all() else lengths.reshape(-1, 1) > item for item in range(self.steps)]
        column = self.reshaped(lengths, (self.batch, 1))
        return [self.emit("Greater", column, np.array(item, np.int32)) for item in range(self.steps)]

    def masked(self, step: int, new: Any, old: Any) -> Any:
        """The new value of sequences that have the step, the old value of the others."""
        mask = self.masks[step]
        if mask is None:
            return new
        if isinstance(mask, np.ndarray) and not mask.any():
            return old
        return self.emit("Where", mask, new, old)

    def _activations(self) -> list[list[_Activation]]:
        """The activations of each direction, with their parameters."""
        count, attributes = len(self.defaults), self.call.attributes
        names = attributes.get("activations") or self.defaults * len(self.directions)
        given = [list(attributes.get(item) or ()) for item in ("activation_alpha", "activation_beta")]
        results = []
        for name in names:
            defaults = _PARAMETERS.get(name.lower(), ())
            values = [
                rest.pop(0) if rest else default for default, rest in zip(defaults, given[: len(defaults)], strict=True)
            ]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                raise Refused(f"its activation '{name}' lacks a parameter")
            results.append(self._activation(name, *known))
        # RNN's default has two, for two directions.
        if len(results) < count * len(self.directions):
            raise Refused(f"it has {len(results)} activations and needs {count * len(self.directions)}")
        return [results[number * count :][:count] for number in range(len(self.directions))]

    def _activation(self, name: str, alpha: float = 0.0, beta: float = 0.0) -> _Activation:
        """Applies an activation with its parameters, after clipping."""
        low = name.lower()
        if low not in _SIMPLE and low not in _PARAMETERS:
            raise Refused(f"its activation '{name}' is unknown")

        def apply(value: Value) -> Any:
            if low in _SIMPLE:
                return self.emit(_SIMPLE[low], value)
            if low == "affine":
                return self.emit("Add", self.emit("Mul", value, self.number(alpha)), self.number(beta))
            if low == "scaledtanh":
                inner = self.emit("Tanh", self.emit("Mul", value, self.number(beta)))
                return self.emit("Mul", inner, self.number(alpha))
            if low == "hardsigmoid":
                return self.emit("HardSigmoid", value, alpha=alpha, beta=beta)
            operators = {"elu": "Elu", "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu"}
            return self.emit(operators[low], value, alpha=alpha)

        return apply

    def clipped(self, value: Any) -> Any:
        """Clips a value to the operator's bounds."""
        if not self.clip:
            return value
        return self.emit("Clip", value, self.number(-self.clip), self.number(self.clip))

    def number(self, value: float) -> Any:
        """A scalar of the layer's type."""
        return np.array(value, self.dtype)

    def of_direction(self, value: Any, number: int) -> Any:
        """Selects a direction from a tensor whose first axis is the direction."""
        return self.reshaped(self.cut(value, 0, number, number + 1), value.shape[1:])

    def cut(self, value: Any, axis: int, start: int, end: int) -> Any:
        """A slice along an axis; the value itself if it is the whole axis."""
        if start == 0 and end == value.shape[axis]:
            return value
        return self.emit("Slice", value, np.array([start]), np.array([end]), np.array([axis]))

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        """Reshapes a value."""
        return value if value.shape == tuple(shape) else self.emit("Reshape", value, np.array(shape, np.int64))

    def joined(self, values: list[Any], axis: int) -> Any:
        """Concatenates values."""
        return values[0] if len(values) == 1 else self.emit("Concat", *values, axis=axis)


class _Direction:
    """The steps of one direction of a layer.

    Args:
        layer: The layer.
        number: The direction.
        bias: Bias of the state's product [rows]; None without.
    """

    def __init__(self, layer: _Layer, number: int, bias: Any) -> None:
        self.layer, self.bias = layer, bias
        weights = layer.of_direction(layer.of_state, number)
        self.weights = layer.emit("Transpose", weights, perm=[1, 0])
        self.activations = layer.activations[number]
        self.peepholes: list[Any] = [None] * 3
        if layer.operator == "LSTM" and layer.call.input(7) is not None:
            row = layer.of_direction(layer.call.input(7), number)
            self.peepholes = [layer.cut(row, 0, item * layer.hidden, (item + 1) * layer.hidden) for item in range(3)]
        kinds: Mapping[str, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
            "LSTM": self._lstm,
            "GRU": self._gru,
            "RNN": self._rnn,
        }
        self.step = kinds[layer.operator]

    def _of_state(self, state: Any, start: int, end: int) -> Any:
        """The state's part of the gates from ``start`` to ``end``."""
        hidden = self.layer.hidden
        weights = self.layer.cut(self.weights, 1, start * hidden, end * hidden)
        return self.layer.emit("MatMul", self.layer.rounded(state), weights)

    def _gate(self, together: Any, number: int) -> Any:
        hidden = self.layer.hidden
        return self.layer.cut(together, 1, number * hidden, (number + 1) * hidden)

    def _active(self, place: int, value: Any, cell: Any = None, peephole: int = 0) -> Any:
        """A gate: with its peephole, clipped and activated."""
        weights = self.peepholes[peephole]
        if cell is not None and weights is not None:
            value = self.layer.emit("Add", value, self.layer.emit("Mul", weights, cell))
        return self.activations[place](self.layer.clipped(value))

    def _lstm(self, share: Any, state: Any, cell: Any) -> tuple[Any, Any]:
        emit = self.layer.emit
        total = emit("Add", share, self._of_state(state, 0, 4))
        i = self._active(0, self._gate(total, 0), cell, 0)
        if self.layer.call.attributes.get("input_forget"):
            f = emit("Sub", self.layer.number(1), i)
        else:
            f = self._active(0, self._gate(total, 2), cell, 2)
        candidate = self._active(1, self._gate(total, 3))
        cell = emit("Add", emit("Mul", f, cell), emit("Mul", i, candidate))
        o = self._active(0, self._gate(total, 1), cell, 1)
        # The cell is not clipped, as in ONNX Runtime.
        return emit("Mul", o, self.activations[2](cell)), cell

    def _gru(self, share: Any, state: Any, _: Any) -> tuple[Any, Any]:
        emit = self.layer.emit
        if self.layer.call.attributes.get("linear_before_reset"):
            product = self._of_state(state, 0, 3)
            if self.bias is not None:
                product = emit("Add", product, self.bias)
            total = emit("Add", share, product)
            z, r = (self._active(0, self._gate(total, item)) for item in (0, 1))
            rest = emit("Mul", r, self._gate(product, 2))
        else:
            total = emit("Add", self.layer.cut(share, 1, 0, 2 * self.layer.hidden), self._of_state(state, 0, 2))
            z, r = (self._active(0, self._gate(total, item)) for item in (0, 1))
            rest = self._of_state(emit("Mul", r, state), 2, 3)
        new = self._active(1, emit("Add", self._gate(share, 2), rest))
        return emit("Add", new, emit("Mul", z, emit("Sub", state, new))), None

    def _rnn(self, share: Any, state: Any, _: Any) -> tuple[Any, Any]:
        return self._active(0, self.layer.emit("Add", share, self._of_state(state, 0, 1))), None


def _tensor(call: Call, position: int, meaning: str) -> Any:
    value = call.input(position)
    if not isinstance(value, Tensor | np.ndarray) or len(value.shape) != 3:
        raise Refused(f"its {meaning} does not have three axes")
    return value


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = dict.fromkeys((*_OPERATORS, f"com.microsoft:{_QUANTIZED}"), recurrent)
