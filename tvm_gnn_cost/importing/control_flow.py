"""Unrolls control flow and sequences whose conditions and iteration counts are constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Scope, Simplifier, Value

#: Maximum number of iterations that are unrolled.
_MOST = 2048


def choose(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``If``: the branch of a constant condition; otherwise both branches and a select of their values."""
    condition = call.input(0)
    branches = [call.attributes[name] for name in ("then_branch", "else_branch")]
    if isinstance(condition, np.ndarray):
        return _run(simplifier, call, branches[0 if condition.any() else 1], {})
    known = len(simplifier.refused)
    try:
        results = [_run(simplifier, call, branch, {}) for branch in branches]
    finally:
        # One of them may never run: its operators may not fit the shapes that come with the other condition.
        if len(simplifier.refused) > known:
            reason = "which of its branches runs depends on an input; make its condition a constant if only one is used"
            simplifier.refuse("If", reason, call.name)
    scalar = simplifier.emit("Reshape", condition, np.zeros(0, np.int64), name=call.name)
    outputs: list[Value] = []
    for item, other in zip(*results, strict=True):
        if not (isinstance(item, Tensor | np.ndarray) and isinstance(other, Tensor | np.ndarray)):
            raise Refused("its branches return values other than tensors, and its condition is not constant")
        if (item.shape, item.dtype) != (other.shape, other.dtype):
            raise Refused("its branches return tensors of different shapes, and its condition is not constant")
        outputs.append(simplifier.emit("Where", scalar, item, other, name=call.name))
    return outputs


def loop(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``Loop``, unrolled."""
    count, condition, states = call.input(0), call.input(1), list(call.inputs[2:])
    body = call.attributes["body"]
    if isinstance(count, Tensor):
        raise Refused("the number of its iterations depends on values that are only known when it runs")
    scanned: list[list[Value]] = [[] for _ in body.output[1 + len(states) :]]
    number = 0
    while (count is None or number < int(count.item())) and _known(condition):  # type: ignore[union-attr]
        if number >= _MOST:
            raise Refused(f"it has more than {_MOST} iterations")
        names = [value.name for value in body.input]
        given: list[Value] = [np.array(number, np.int64), np.array(True), *states]
        condition, *rest = _run(simplifier, call, body, dict(zip(names, given, strict=True)))
        states, values = rest[: len(states)], rest[len(states) :]
        for collected, value in zip(scanned, values, strict=True):
            collected.append(value)
        number += 1
    return [*states, *(_stacked(simplifier, call, values, 0) for values in scanned)]


def scan(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``Scan``, unrolled."""
    if call.version < 9:
        raise Refused("it is from an operator set before 9")
    body, count = call.attributes["body"], call.attributes["num_scan_inputs"]
    split = len(call.inputs) - count
    states, inputs = list(call.inputs[:split]), call.inputs[split:]
    outputs = len(body.output) - split
    axes = call.attributes.get("scan_input_axes") or [0] * count
    backwards = call.attributes.get("scan_input_directions") or [0] * count
    output_axes = call.attributes.get("scan_output_axes") or [0] * outputs
    prepended = call.attributes.get("scan_output_directions") or [0] * outputs
    first = inputs[0]
    assert isinstance(first, Tensor | np.ndarray)
    steps = first.shape[axes[0]]
    if steps > _MOST:
        raise Refused(f"it has more than {_MOST} steps")
    scanned: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(steps):
        slices = [
            simplifier.emit("Gather", value, np.array(steps - 1 - step if back else step), axis=axis, name=call.name)
            for value, axis, back in zip(inputs, axes, backwards, strict=True)
        ]
        names = [value.name for value in body.input]
        result = _run(simplifier, call, body, dict(zip(names, [*states, *slices], strict=True)))
        states = result[:split]
        for values, value in zip(scanned, result[split:], strict=True):
            values.append(value)
    ordered = [values[::-1] if back else values for values, back in zip(scanned, prepended, strict=True)]
    return [
        *states,
        *(_stacked(simplifier, call, values, axis) for values, axis in zip(ordered, output_axes, strict=True)),
    ]


def _known(condition: Value) -> bool:
    if isinstance(condition, Tensor):
        raise Refused("when it ends depends on values that are only known when it runs")
    return condition is None or bool(np.asarray(condition).any())


def _run(simplifier: Simplifier, call: Call, graph: onnx.GraphProto, given: Mapping[str, Value]) -> list[Any]:
    """The outputs of an operator's subgraph."""
    scope = Scope(dict(given), call.scope)
    for tensor in graph.initializer:
        scope.values[tensor.name] = onnx.numpy_helper.to_array(tensor)
    simplifier.count += 1
    return simplifier.graph(graph, scope, f"{call.node.op_type}_{simplifier.count}/")


def _stacked(simplifier: Simplifier, call: Call, values: Sequence[Value], axis: int) -> Value:
    if not values:
        raise Refused("it has no iterations, so the shapes of its outputs are unknown")
    rank = len(values[0].shape) + 1  # type: ignore[union-attr]
    with simplifier.at_opset(13):
        rows = [simplifier.emit("Unsqueeze", value, np.array([axis % rank]), name=call.name) for value in values]
        stacked: Value = simplifier.emit("Concat", *rows, axis=axis % rank, name=call.name)
    return stacked


def _sequence(value: Value) -> list[Any]:
    if not isinstance(value, list):
        raise Refused("its operand is not a sequence")
    return value


def _position(call: Call, number: int, count: int) -> int:
    return int(call.constant(number, "position").item()) % max(1, count)


def construct(_: Simplifier, call: Call) -> Sequence[Value]:
    """``SequenceConstruct`` and ``SequenceEmpty``."""
    return [list(call.inputs)]


def at(_: Simplifier, call: Call) -> Sequence[Value]:
    """``SequenceAt``."""
    values = _sequence(call.input(0))
    return [values[_position(call, 1, len(values))]]


def insert(_: Simplifier, call: Call) -> Sequence[Value]:
    """``SequenceInsert``."""
    values = list(_sequence(call.input(0)))
    # As in a Python list, -1 inserts before the last value.
    place = len(values) if call.input(2) is None else int(call.constant(2, "position").item())
    values.insert(place, call.input(1))
    return [values]


def erase(_: Simplifier, call: Call) -> Sequence[Value]:
    """``SequenceErase``."""
    values = list(_sequence(call.input(0)))
    del values[-1 if call.input(1) is None else _position(call, 1, len(values))]
    return [values]


def length(_: Simplifier, call: Call) -> Sequence[Value]:
    """``SequenceLength``."""
    return [np.array(len(_sequence(call.input(0))), np.int64)]


def concatenate(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``ConcatFromSequence``."""
    values, axis = _sequence(call.input(0)), call.attributes["axis"]
    if call.attributes.get("new_axis"):
        return [_stacked(simplifier, call, values, axis)]
    return [simplifier.emit("Concat", *values, axis=axis, name=call.name)]


def split(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``SplitToSequence``."""
    value, axis = call.input(0), call.attributes["axis"]
    if not isinstance(value, Tensor | np.ndarray):
        raise Refused("it takes a sequence")
    size = value.shape[axis]
    sizes = np.array(1) if call.input(1) is None else call.constant(1, "sizes")
    if sizes.ndim == 0:
        step = int(sizes)
        sizes = np.array([min(step, size - start) for start in range(0, size, step)], np.int64)
    ends = np.cumsum(sizes)
    with simplifier.at_opset(13):
        parts = [
            simplifier.emit("Slice", value, np.array([end - size]), np.array([end]), np.array([axis]), name=call.name)
            for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
        ]
        if call.input(1) is None and not call.attributes["keepdims"]:
            parts = [simplifier.emit("Squeeze", part, np.array([axis]), name=call.name) for part in parts]
    return [parts]


def optional(_: Simplifier, call: Call) -> Sequence[Value]:
    """``Optional`` and ``OptionalGetElement``: the value itself."""
    if call.input(0) is None:
        raise Refused("it has no element")
    return [call.input(0)]


def has_element(_: Simplifier, call: Call) -> Sequence[Value]:
    """``OptionalHasElement``."""
    return [np.array(call.input(0) is not None)]


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {
    "If": choose,
    "Loop": loop,
    "Scan": scan,
    "SequenceConstruct": construct,
    "SequenceEmpty": construct,
    "SequenceAt": at,
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceLength": length,
    "ConcatFromSequence": concatenate,
    "SplitToSequence": split,
    "Optional": optional,
    "OptionalGetElement": optional,
    "OptionalHasElement": has_element,
}
