"""Simplifies an ONNX model with static shapes to a list of primitive operators.

A single pass over the operators:

1. operators on constants are folded (``folding.py``), and so are those that read a shape;
2. control flow with constant conditions and iteration counts is unrolled (``control_flow.py``);
3. recurrent and quantized operators are expanded (``recurrent.py``, ``quantized.py``);
4. other composite operators are replaced by their function definitions in ONNX;
5. the rest are primitive operators, whose output types ONNX infers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.folding import POOLS, RANDOM, counted, evaluate
from tvm_gnn_cost.importing.graph import Graph, Node, Operand, Tensor, live_nodes

#: The value of a name: an operand, or a sequence of operands.
Value = Operand | list[Any]

#: Maximum number of elements of constants that ONNX's shape inference receives, such as shapes and axes.
_PARAMETER = 4096

#: Maximum number of elements of a tensor.
_LARGEST = 2**31


class Refused(Exception):
    """An operator cannot be imported; the message says why, as in "the size of its output depends on values"."""


@dataclass
class Scope:
    """The values of names in a graph and in its enclosing graphs."""

    values: dict[str, Value] = field(default_factory=dict)
    outer: Scope | None = None

    def __getitem__(self, name: str) -> Value:
        if not name:
            return None
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise Refused(f"it reads '{name}', which nothing computes")


#: Expands an operator: takes the simplifier and the call, and returns the outputs, or None to keep the operator.
Expansion = Callable[["Simplifier", "Call"], Sequence[Value] | None]


@dataclass(frozen=True)
class Call:
    """An operator with its operands, as an expansion sees it.

    Attributes:
        node: The operator.
        inputs: Its operands.
        attributes: Its attributes, including defaults.
        version: The operator set version of its definition.
        scope: The names that its subgraphs may read.
        name: The name to report.
    """

    node: onnx.NodeProto
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    version: int
    scope: Scope
    name: str

    def input(self, position: int) -> Value:
        """An operand; None if it is omitted."""
        return self.inputs[position] if position < len(self.inputs) else None

    def tensor(self, position: int) -> Tensor | npt.NDArray[Any]:
        """A required operand that is not a sequence.

        Raises:
            Refused: it is missing or a sequence.
        """
        value = self.input(position)
        if not isinstance(value, Tensor | np.ndarray):
            raise Refused(f"its input {position} is missing or a sequence")
        return value

    def constant(self, position: int, meaning: str) -> npt.NDArray[Any]:
        """A constant operand.

        Raises:
            Refused: it is not constant.
        """
        value = self.input(position)
        if not isinstance(value, np.ndarray):
            raise Refused(f"its {meaning} must be constant")
        return value


class Simplifier:
    """Simplifies one model.

    Args:
        name: The network's name, for errors.
        primitives: The operators to keep.
        expansions: How other operators are expanded to these.
        seconds: Time limit in seconds.

    Attributes:
        nodes: The primitive operators so far.
        refused: Operators that cannot be imported: operator -> reason -> names of nodes.
    """

    def __init__(
        self, name: str, primitives: Collection[str], expansions: Mapping[str, Expansion], seconds: float
    ) -> None:
        self.name, self.primitives, self.expansions = name, primitives, expansions
        self.nodes: list[Node] = []
        self.refused: dict[tuple[str, str], list[str]] = {}
        self.end = time.monotonic() + seconds
        self.opsets: dict[str, int] = {}
        self.count = 0

    def model(self, model: onnx.ModelProto) -> Graph:
        """The primitive operators of a model."""
        self.opsets = {opset.domain or "": opset.version for opset in model.opset_import}
        versions = [self.opsets[domain] for domain in ("", "ai.onnx") if domain in self.opsets]
        # A model with operators of other domains only has no version of ONNX's default domain.
        self.opsets[""] = max(versions, default=1 if self.opsets else 0)
        self.opsets.pop("ai.onnx", None)
        self._check_opset()
        if not model.graph.output:
            raise InputError(f"{self.name} has no outputs")
        scope = Scope({initializer.name: _weight(initializer) for initializer in model.graph.initializer})
        for sparse in model.graph.sparse_initializer:
            scope.values[sparse.values.name] = _dense(sparse)
        inputs = []
        for value in model.graph.input:
            if value.name not in scope.values:
                try:
                    tensor = _tensor(value.name, value.type)
                except Refused as error:
                    raise InputError(f"input '{value.name}' of {self.name} cannot be imported: {error}") from error
                inputs.append(tensor)
                scope.values[value.name] = _or_empty(tensor)
        outputs = self.graph(model.graph, scope, "")
        named = tuple(zip([value.name for value in model.graph.output], outputs, strict=True))
        for name, output in named:
            if not isinstance(output, Tensor | np.ndarray):
                self.refuse("output", f"'{name}' is not a tensor", "")
        nodes = live_nodes(self.nodes, outputs)
        return Graph(tuple(inputs), named, nodes)

    def _check_opset(self) -> None:
        newest = defs.onnx_opset_version()
        if not 1 <= self.opsets[""] <= newest:
            raise InputError(
                f"{self.name} is of ONNX's operator set {self.opsets['']}, and the installed onnx knows 1 to {newest}: "
                "pip install -U onnx, or export it with an older one (opset_version=)"
            )

    def graph(self, graph: onnx.GraphProto, scope: Scope, prefix: str) -> list[Any]:
        """The values of a graph's outputs.

        Args:
            graph: The graph; the names that it reads must be in ``scope``.
            scope: The values of its inputs; those of its nodes are added.
            prefix: Prefix of the names of its tensors.
        """
        for node in graph.node:
            self.node(node, scope, prefix, "")
        return [scope[value.name] for value in graph.output]

    def node(self, node: onnx.NodeProto, scope: Scope, prefix: str, reported: str) -> None:
        """Adds an operator's outputs to a scope.

        Args:
            node: The operator.
            scope: Holds its operands.
            prefix: Prefix of the names of its tensors.
            reported: The name of the operator that it was expanded from; empty for the operator itself.
        """
        name = reported or node.name or (node.output[0] if node.output else "")
        if time.monotonic() > self.end:
            raise InputError(f"importing took too long, at {node.op_type} '{name}'")
        try:
            outputs = self._values(node, scope, prefix, name)
        except Refused as error:
            self.refuse(node.op_type, str(error), name)
            outputs = self._placeholders(node, scope, prefix)
        for output, value in zip(node.output, outputs, strict=False):
            if output:
                scope.values[output] = value

    def refuse(self, operator: str, reason: str, name: str) -> None:
        """Records that an operator cannot be imported."""
        self.refused.setdefault((operator, reason), []).append(name)

    def _values(self, node: onnx.NodeProto, scope: Scope, prefix: str, name: str) -> Sequence[Value]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        operator = node.op_type if not domain else f"{domain}:{node.op_type}"
        inputs = tuple(scope[value] for value in node.input)
        schema = self._schema(node.op_type, domain)
        if schema is None and not domain:
            # ONNX Runtime adds non-standard operators to ONNX's domain, and newer operators to older operator sets.
            operator = f"com.microsoft:{operator}"
        version = schema.since_version if schema is not None else 1
        call = Call(node, inputs, _attributes(node, schema), version, scope, name)
        if operator in _SIZES:
            return _SIZES[operator](call)
        simple = _trivial(operator, call)
        if simple is not None:
            return simple
        constants = [operand for operand in inputs if operand is None or isinstance(operand, np.ndarray)]
        if len(constants) == len(inputs) and not _has_graph(node):
            result = evaluate(node, constants, self._imports())
            if result is not None:
                return result
        if operator in self.expansions:
            expanded = self.expansions[operator](self, call)
            if expanded is not None:
                return expanded
        if operator not in self.primitives and schema is not None:
            function = self._function(schema, node, inputs)
            if function is not None:
                return self._expand(function, call, schema)
        if schema is None and domain:
            raise Refused(f"there is no rule for it, which is of the domain {domain}")
        if schema is None:
            raise Refused(f"ONNX operator set {self.opsets['']} does not have it")
        if operator not in self.primitives:
            raise Refused("its result is random" if operator in RANDOM else "there is no rule for it")
        return self._primitive(node, schema, call, prefix)

    def emit(self, operator: str, *inputs: Value, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Adds an ONNX operator, which is folded or expanded like those of the model. For expansions.

        Args:
            operator: Its name, in the model's ONNX operator set.
            inputs: Its operands.
            outputs: Number of outputs.
            name: The name to report.
            attributes: Its attributes.

        Returns:
            The output, or a list of them if there are several.
        """
        self.count += 1
        names = [f"{operator.lower()}_{self.count}_{number}" for number in range(outputs)]
        scope = Scope({f"in{number}": value for number, value in enumerate(inputs)})
        given = ["" if value is None else f"in{number}" for number, value in enumerate(inputs)]
        node = helper.make_node(operator, given, names, name=name, **attributes)
        values = self._values(node, scope, "", name)
        return values[0] if outputs == 1 else list(values)

    def at_opset(self, version: int) -> _AtOpset:
        """A context in which :meth:`emit` uses another ONNX operator set."""
        return _AtOpset(self, version)

    def _primitive(self, node: onnx.NodeProto, schema: Any, call: Call, prefix: str) -> Sequence[Value]:
        if any(isinstance(operand, list) for operand in call.inputs):
            raise Refused("it takes a sequence")
        self.count += 1
        types = self._infer(node, schema, call.inputs)
        outputs = []
        for output in node.output:
            # Unnamed outputs are dropped; rules recognize them by their empty names.
            label = f"{prefix}{output}" if output else f"unnamed_{self.count}"
            tensor = _tensor(label, types[output]) if output else Tensor("", np.dtype("float32"), ())
            operand = call.input(0)
            if output and node.op_type in POOLS and isinstance(operand, Tensor | np.ndarray):
                windows = counted(call.attributes, operand.shape[2:], tensor.shape[2:])
                tensor = Tensor(label, tensor.dtype, (*tensor.shape[:2], *windows))
            outputs.append(tensor)
        operands: tuple[Any, ...] = call.inputs
        operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
        self.nodes.append(Node(operator, call.version, call.name, operands, tuple(outputs), call.attributes))
        return [_or_empty(output) for output in outputs]

    def _infer(self, node: onnx.NodeProto, schema: Any, inputs: Sequence[Value]) -> dict[str, onnx.TypeProto]:
        """The types of an operator's outputs.

        Raises:
            Refused: the shapes depend on values, or the use of the operator is invalid.
        """
        types, data = {}, {}
        for name, value in zip(node.input, inputs, strict=True):
            if isinstance(value, Tensor | np.ndarray):
                types[name] = _type(value)
                if isinstance(value, np.ndarray) and value.size <= _PARAMETER:
                    data[name] = numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
        if node.op_type in _LIKE_INPUT and not node.domain:
            return {node.output[0]: types[node.input[0]]}
        try:
            inferred: dict[str, onnx.TypeProto] = shape_inference.infer_node_outputs(
                schema, node, types, data, None, self._imports(), 10
            )
        except Exception as error:
            raise Refused(f"it is invalid by ONNX's shape inference: {' '.join(str(error).split())}") from error
        for output in node.output:
            if output and not _is_fixed(inferred.get(output)):
                raise Refused("the size of its output depends on values that are only known when it runs")
        return inferred

    def _placeholders(self, node: onnx.NodeProto, scope: Scope, prefix: str) -> Sequence[Value]:
        """Placeholder outputs of an operator that cannot be imported, so that the other operators are checked too."""
        try:
            inputs = tuple(scope[value] for value in node.input)
            schema = self._schema(node.op_type, node.domain)
            if schema is not None:
                inferred = self._infer(node, schema, inputs)
                return [_tensor(prefix + value, inferred[value]) if value else None for value in node.output]
        except Refused:
            pass
        raise _Stopped

    def _schema(self, operator: str, domain: str) -> Any:
        version = self.opsets.get(domain)
        if version is None:
            return None
        try:
            return defs.get_schema(operator, version, domain)
        except defs.SchemaError:
            return None

    def _imports(self) -> list[onnx.OperatorSetIdProto]:
        return [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]

    def _function(self, schema: Any, node: onnx.NodeProto, inputs: Sequence[Value]) -> onnx.FunctionProto | None:
        """ONNX's function definition of an operator; None without."""
        version = self.opsets.get(node.domain, 1)

        def newest(versions: Sequence[int]) -> int | None:
            """The newest definition that is not newer than the model."""
            return max([item for item in versions if item <= version], default=min(versions, default=None))

        known = newest(schema.function_opset_versions) if schema.has_function else None
        if known is not None:
            return _parsed(schema.get_function_with_opset_version(known))
        known = newest(schema.context_dependent_function_opset_versions)
        if known is None or any(isinstance(operand, list) for operand in inputs):
            return None
        types = [b"" if operand is None else _type(operand).SerializeToString() for operand in inputs]  # type: ignore[arg-type]
        body = schema.get_context_dependent_function_with_opset_version(known, node.SerializeToString(), types)
        return _parsed(body) if body else None

    def _expand(self, function: onnx.FunctionProto, call: Call, schema: Any) -> Sequence[Value]:
        """The outputs of an operator by its function definition."""
        scope = Scope()
        for name, value in zip(function.input, [*call.inputs, *[None] * len(function.input)], strict=False):
            scope.values[name] = value
        given = {attribute.name: attribute for attribute in call.node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.type:
                given[name] = attribute.default_value
        opsets, self.opsets = self.opsets, dict(self.opsets)
        self.opsets.update({opset.domain: opset.version for opset in function.opset_import})
        self.count += 1
        prefix = f"{call.node.op_type}_{self.count}/"
        reported = call.name
        try:
            for inner in function.node:
                self.node(_with_attributes(inner, given), scope, prefix, reported)
        finally:
            self.opsets = opsets
        # A definition does not compute omitted outputs.
        return [scope.values.get(name) for name in function.output]


class _Stopped(Exception):
    """An operator cannot be imported, and has no placeholders."""


@dataclass
class _AtOpset:
    simplifier: Simplifier
    version: int

    def __enter__(self) -> None:
        self.before = self.simplifier.opsets
        self.simplifier.opsets = {**self.before, "": self.version}

    def __exit__(self, *_: object) -> None:
        self.simplifier.opsets = self.before


def simplify(
    model: onnx.ModelProto,
    name: str,
    primitives: Collection[str],
    expansions: Mapping[str, Expansion],
    seconds: float = 120.0,
) -> Graph:
    """The primitive operators of an ONNX model.

    Args:
        model: A model with static input shapes and without local functions.
        name: The network's name, for errors.
        primitives: The operators to keep, named as in :attr:`Node.operator`.
        expansions: How operators are expanded.
        seconds: Time limit in seconds.

    Raises:
        InputError: it has operators that cannot be imported; the message names each with the reason.
    """
    simplifier = Simplifier(name, primitives, expansions, seconds)
    graph = None
    with suppress(_Stopped, RecursionError):
        graph = simplifier.model(model)
    if simplifier.refused or graph is None:
        raise InputError(refusal(name, simplifier.refused))
    return graph


def refusal(name: str, refused: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """The error message for operators that cannot be imported.

    >>> refusal("net", {("NonZero", "its size depends on values"): ["a", "b"]})[:80]
    "net cannot be imported: operator NonZero ('a' and 1 more): its size depends on v"
    """
    parts = []
    for (operator, reason), names in refused.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        parts.append(f"operator {operator} ('{names[0]}'{more}): {reason}")
    return (
        f"{name} cannot be imported: {'; '.join(parts)}; export the network without them, or run that part outside of "
        "the network"
    )


def _attributes(node: onnx.NodeProto, schema: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type:
                defaults[name] = _attribute(attribute.default_value)
    return defaults | {attribute.name: _attribute(attribute) for attribute in node.attribute}


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SparseTensorProto):
        return _dense(value)
    if not isinstance(value, str) and isinstance(value, Sequence):
        return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in value]
    return value


def _trivial(operator: str, call: Call) -> Sequence[Value] | None:
    """The outputs of identities and constants; None for other operators."""
    value = call.input(0)
    if operator == "Identity":
        return [value]
    if operator == "Constant":
        return [_constant(call)]
    if operator == "Dropout" and isinstance(value, Tensor):
        ratio, training = call.input(1), call.input(2)
        is_training = training is not None and not (isinstance(training, np.ndarray) and not training.any())
        if is_training and not (isinstance(ratio, np.ndarray) and not ratio.any()):
            raise Refused("it is exported in training mode, with a random result")
        # Before opset 10, the mask had the type of the operand.
        dtype = np.dtype(bool) if call.version >= 10 else value.dtype
        return [value, np.ones(value.shape, dtype)]
    if operator == "Cast" and isinstance(value, Tensor):
        wanted = helper.tensor_dtype_to_np_dtype(int(call.attributes["to"]))
        return [value] if wanted == value.dtype else None
    return None


def _constant(call: Call) -> npt.NDArray[Any]:
    types = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, value in call.attributes.items():
        if name in types:
            return np.array(value, types[name])
        if name in ("value", "sparse_value"):
            return np.asarray(value)
    raise Refused("it is a string")


def _shape(call: Call) -> Sequence[Value]:
    value = call.input(0)
    if not isinstance(value, Tensor | np.ndarray):
        raise Refused("it takes a sequence")
    start, end = call.attributes.get("start", 0), call.attributes.get("end")
    return [np.array(value.shape[start:end], np.int64)]


def _size(call: Call) -> Sequence[Value]:
    value = call.input(0)
    if not isinstance(value, Tensor | np.ndarray):
        raise Refused("it takes a sequence")
    return [np.array(int(np.prod(value.shape, dtype=np.int64)), np.int64)]


def _eye_like(call: Call) -> Sequence[Value]:
    value = call.input(0)
    assert isinstance(value, Tensor | np.ndarray)
    dtype = call.attributes.get("dtype")
    rows, columns = value.shape
    wanted = value.dtype if dtype is None else helper.tensor_dtype_to_np_dtype(dtype)
    return [np.eye(rows, columns, call.attributes["k"]).astype(wanted)]


#: Operators whose result depends only on the shape of their operand.
_SIZES: dict[str, Callable[[Call], Sequence[Value]]] = {"Shape": _shape, "Size": _size, "EyeLike": _eye_like}

#: Operators without type inference in ONNX, whose output has the type of their first operand.
_LIKE_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(
        attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for attribute in node.attribute
    )


def _type(value: Tensor | npt.NDArray[Any]) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _tensor(name: str, proto: onnx.TypeProto) -> Tensor:
    element = proto.tensor_type.elem_type
    shape = tuple(int(item.dim_value) for item in proto.tensor_type.shape.dim)
    if element == onnx.TensorProto.STRING:
        raise Refused("its type is string")
    if int(np.prod(shape, dtype=object)) > _LARGEST:
        raise Refused(f"'{name}' would have {' x '.join(map(str, shape))} elements")
    return Tensor(name, np.dtype(helper.tensor_dtype_to_np_dtype(element)), shape)


def _weight(tensor: onnx.TensorProto) -> npt.NDArray[Any]:
    """Loads a weight.

    Raises:
        InputError: its data does not fit its shape.
    """
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # errors of any type
        raise InputError(f"weight '{tensor.name}' is damaged: {' '.join(str(error).split())}") from error


def _or_empty(tensor: Tensor) -> Tensor | npt.NDArray[Any]:
    """A tensor without elements, as a constant."""
    return np.zeros(tensor.shape, tensor.dtype) if 0 in tensor.shape else tensor


def _is_fixed(proto: onnx.TypeProto | None) -> bool:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return False
    return all(item.HasField("dim_value") for item in proto.tensor_type.shape.dim)


def _dense(sparse: onnx.SparseTensorProto) -> npt.NDArray[Any]:
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _parsed(function: Any) -> onnx.FunctionProto:
    if isinstance(function, onnx.FunctionProto):
        return function
    proto = onnx.FunctionProto()
    proto.ParseFromString(function if isinstance(function, bytes) else function.SerializeToString())
    return proto


def _with_attributes(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function definition, with the attributes of the calling operator."""
    if not any(attribute.ref_attr_name or attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute):
        return node
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                added = copied.attribute.add()
                added.CopyFrom(given[attribute.ref_attr_name])
                added.name = attribute.name
        else:
            added = copied.attribute.add()
            added.CopyFrom(attribute)
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = [_with_attributes(node, given) for node in attribute.g.node]
                del added.g.node[:]
                added.g.node.extend(inner)
    return copied
