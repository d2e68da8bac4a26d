"""Writes ONNX's recurrent operators out step by step, in operators that TVM's importer has.

``torch.export`` programs need none of this: PyTorch's own decomposition does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper, shape_inference

#: Operator -> number of gates, and the activations of the gates and of what enters and leaves the state.
_OPERATORS = {"LSTM": (4, ("Sigmoid", "Tanh", "Tanh")), "GRU": (3, ("Sigmoid", "Tanh")), "RNN": (1, ("Tanh",))}

_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu")

#: For each direction, whether it goes through the steps from the last to the first.
_DIRECTIONS = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}


def unroll(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model without LSTM, GRU and RNN operators; itself if it has none.

    Args:
        model: A model whose inputs are of fixed sizes.

    Raises:
        NotImplementedError: an operator uses what PyTorch's exporter never writes, such as peepholes.
    """
    if not any(node.op_type in _OPERATORS for node in model.graph.node):
        return model
    model = shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    shapes = {
        value.name: [one.dim_value for one in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info)
    }
    constants = {tensor.name: tensor for tensor in graph.initializer} | {
        node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"
    }
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    nodes: list[onnx.NodeProto] = []
    for number, node in enumerate(graph.node):
        if node.op_type in _OPERATORS:
            written = _Unrolled(node, constants, f"unrolled_{number}", opset)
            written.write(shapes.get(node.input[0], []))
            nodes += written.nodes
            graph.initializer.extend(written.constants)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model


class _Unrolled:
    """The operators that replace one recurrent operator.

    Attributes:
        nodes: The operators.
        constants: Their constants.
    """

    def __init__(self, node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto], prefix: str, opset: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.node, self.prefix, self.opset = node, prefix, opset
        self.attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self.directions = _DIRECTIONS[self.attributes.get("direction", b"forward")]
        given = tuple(name.decode() for name in self.attributes.get("activations", ()))
        self.gates, defaults = _OPERATORS[node.op_type]
        self.activations = given or defaults * len(self.directions)
        self.x, w, r, b, lengths, *self.states, peepholes = [*node.input, *[""] * 8][:8]
        unsupported = {
            "sequence lengths": lengths,
            "peepholes": peepholes,
            "weights that are no constants": {w, r, b} - {"", *known},
            "other activations than " + ", ".join(_ACTIVATIONS): set(self.activations) - set(_ACTIVATIONS),
            **{name: self.attributes.get(name) for name in ("clip", "input_forget", "layout")},
        }
        for feature, used in unsupported.items():
            if used:
                raise NotImplementedError(f"operator {node.op_type} with {feature}")
        # [directions, gates * hidden, features], [directions, gates * hidden, hidden], [directions, 2 * gates * hidden]
        self.w, self.r = (numpy_helper.to_array(known[name]) for name in (w, r))
        self.b = numpy_helper.to_array(known[b]) if b else np.zeros((len(self.w), 2 * self.w.shape[1]), self.w.dtype)
        self.hidden = self.r.shape[-1]

    def write(self, shape: Sequence[int]) -> None:
        """Writes the operators for an input of [steps, batch, features]."""
        if len(shape) != 3 or not all(shape):
            raise NotImplementedError(f"operator {self.node.op_type} with an input of unknown sizes")
        steps, batch, _ = shape
        count = len(self.directions)
        zeros = np.zeros((1, batch, self.hidden), self.r.dtype)
        # State and cell are [1, batch, hidden].
        states, cells = (
            self._split(one, [1] * count, 0) if one else [self._constant(zeros)] * count for one in self.states
        )
        sequences = []
        for number, backwards in enumerate(self.directions):
            outputs, cells[number] = self._direction(number, steps, states[number], cells[number])
            sequence = self._add("Concat", *outputs, axis=0)
            rows = self._constant(np.array([steps, 1, batch, self.hidden]))
            sequences.append(self._add("Reshape", sequence, rows))
            states[number] = outputs[0 if backwards else -1]
        for parts, axis, output in zip((sequences, states, cells), (1, 0, 0), self.node.output, strict=False):
            if output:
                self.nodes.append(helper.make_node("Concat", parts, [output], axis=axis))

    def _direction(self, number: int, steps: int, state: str, cell: str) -> tuple[list[str], str]:
        """The state after each step, in the order of the input, and the last cell."""
        of_input, of_state = np.split(self.b[number], 2)
        # From each gate on; a step needs all of them, and a GRU maybe those of its candidate once more.
        self.recurrent = {
            first: (self._constant(self.r[number][first:].T), self._constant(of_state[first:]))
            for first in (0, (self.gates - 1) * self.hidden)
        }
        count = len(self.activations) // len(self.directions)
        self.functions = self.activations[number * count :][:count]
        # The input's share of all steps is one product.
        product = self._add("MatMul", self.x, self._constant(self.w[number].T))
        products = self._split(self._add("Add", product, self._constant(of_input)), [1] * steps, 0)
        outputs = [""] * steps
        for step in range(steps)[:: -1 if self.directions[number] else 1]:
            state, cell = getattr(self, f"_{self.node.op_type.lower()}")(products[step], state, cell)
            outputs[step] = state
        return outputs, cell

    def _lstm(self, product: str, state: str, cell: str) -> tuple[str, str]:
        gate, candidate, result = self.functions
        i, o, f, c = self._gates(self._add("Add", product, self._of_state(state)))
        kept = self._add("Mul", self._add(gate, f), cell)
        cell = self._add("Add", kept, self._add("Mul", self._add(gate, i), self._add(candidate, c)))
        return self._add("Mul", self._add(gate, o), self._add(result, cell)), cell

    def _gru(self, product: str, state: str, cell: str) -> tuple[str, str]:
        gate, candidate = self.functions
        of_input, of_state = self._gates(product), self._gates(self._of_state(state))
        z, r = (self._add(gate, self._add("Add", *both)) for both in list(zip(of_input, of_state, strict=True))[:2])
        if self.attributes.get("linear_before_reset"):
            share = self._add("Mul", r, of_state[2])
        else:
            share = self._of_state(self._add("Mul", r, state), 2 * self.hidden)
        new = self._add(candidate, self._add("Add", of_input[2], share))
        return self._add("Add", new, self._add("Mul", z, self._add("Sub", state, new))), cell

    def _rnn(self, product: str, state: str, cell: str) -> tuple[str, str]:
        return self._add(self.functions[0], self._add("Add", product, self._of_state(state))), cell

    def _of_state(self, state: str, first: int = 0) -> str:
        """The state's share of the gates from row ``first`` on, with its bias."""
        weights, bias = self.recurrent[first]
        return self._add("Add", self._add("MatMul", state, weights), bias)

    def _gates(self, together: str) -> list[str]:
        return self._split(together, [self.hidden] * self.gates, -1)

    def _split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        if len(sizes) == 1:
            return [value]
        outputs = [f"{self.prefix}_{len(self.nodes)}_{number}" for number in range(len(sizes))]
        if self.opset < 13:
            self.nodes.append(helper.make_node("Split", [value], outputs, axis=axis, split=sizes))
        else:
            self.nodes.append(helper.make_node("Split", [value, self._constant(np.array(sizes))], outputs, axis=axis))
        return outputs

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator and returns its output's name."""
        output = f"{self.prefix}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, value: npt.NDArray[Any] | np.generic) -> str:
        name = f"{self.prefix}_constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name
