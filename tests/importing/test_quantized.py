from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.importing.graphs import computed
from tests.importing.relax.against_onnxruntime import model_of, reference
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.quantized import EXPANSIONS
from tvm_gnn_cost.importing.simplify import simplify

KEPT = (
    *("Add", "Sub", "Mul", "Div", "Round", "Clip", "Cast", "Reshape", "Gather", "Min", "Max", "ReduceMin", "ReduceMax"),
    *("Equal", "Where", "ConvInteger", "MatMulInteger"),
)


def graph_of(model: onnx.ModelProto) -> Graph:
    return simplify(model, "net", KEPT, EXPANSIONS)


class Drawn:
    """An operator with some of what it may have.

    Attributes:
        choice: Chooses what it has.
        operands: Its operands by name.
        attributes: Its attributes.
    """

    def __init__(self, seed: int) -> None:
        self.choice, self.draw = random.Random(seed), np.random.default_rng(seed)
        self.operands: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}

    def integers(self, dtype: Any, *shape: int) -> Any:
        """Integers of the whole range of a type."""
        bounds = np.iinfo(dtype)
        return self.draw.integers(bounds.min, bounds.max + 1, shape).astype(dtype)

    def scale(self, *shape: int) -> Any:
        """Scales."""
        return self.draw.uniform(0.01, 0.1, shape).astype(np.float32)

    def byte(self) -> Any:
        """int8 or uint8."""
        return self.choice.choice([np.int8, np.uint8])

    def check(self, operator: str, outputs: list[str], opset: int) -> None:
        """Compares the operator with ONNX Runtime, with some operands as constants; integers must be the same."""
        first = next(iter(self.operands))
        # ONNX Runtime takes a zero point for each channel of the weights only where it is known to be 0.
        open_ = [name for name in self.operands if name != "wz" and self.choice.random() < 0.3]
        for name in open_:
            # On x86 processors without VNNI, its products of uint8 and int8 that is no constant may saturate.
            if self.operands[name].dtype == np.int8:
                self.operands[name] = np.asarray(self.operands[name] // 2)
        inputs = {name: operand for name, operand in self.operands.items() if name == first or name in open_}
        weights = {name: operand for name, operand in self.operands.items() if name not in inputs}
        node = helper.make_node(operator, list(self.operands), outputs, **self.attributes)
        model = model_of(node, inputs, weights, opset=opset)
        for actual, wanted in zip(computed(graph_of(model), inputs), reference(model, inputs), strict=True):
            assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=0)


def parameters(drawn: Drawn, shape: tuple[int, ...], opset: int) -> tuple[int, ...]:
    """The sizes of a scale: of the whole tensor, of each place on an axis, or of blocks along one."""
    kinds = ["tensor", "axis", "blocks"][: 2 if opset < 21 else 3] if opset > 10 else ["tensor"]
    kind = drawn.choice.choice(kinds)
    if kind == "tensor":
        return ()
    axis = drawn.choice.randrange(-len(shape), len(shape))
    drawn.attributes["axis"] = axis
    if kind == "axis":
        return (shape[axis],)
    drawn.attributes["block_size"] = 2
    return tuple(-(-size // 2) if place == axis % len(shape) else size for place, size in enumerate(shape))


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize("seed", range(10))
def test_quantize(opset: int, seed: int) -> None:
    drawn = Drawn(seed)
    shape = drawn.choice.choice([(3,), (2, 3, 4), (1, 4, 5, 5)])
    x = drawn.draw.normal(size=shape, scale=10).astype(np.float32)
    x.reshape(-1)[:3] = [np.inf, -np.inf, 1e9]
    sizes = parameters(drawn, shape, opset)
    types = [np.int8, np.uint8, *([np.int16, np.uint16] if opset >= 21 else [])]
    drawn.operands = {"x": x, "s": drawn.scale(*sizes), "z": drawn.integers(drawn.choice.choice(types), *sizes)}
    drawn.check("QuantizeLinear", ["y"], opset)


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize("seed", range(10))
def test_dequantize(opset: int, seed: int) -> None:
    drawn = Drawn(seed)
    shape = drawn.choice.choice([(3,), (2, 3, 4), (1, 4, 5, 5)])
    dtype = drawn.choice.choice([np.int8, np.uint8, np.int32, *([np.int16, np.uint16] if opset >= 21 else [])])
    sizes = parameters(drawn, shape, opset)
    drawn.operands = {"x": drawn.integers(dtype, *shape), "s": drawn.scale(*sizes)}
    if dtype != np.int32:
        drawn.operands["z"] = drawn.integers(dtype, *sizes)
    drawn.check("DequantizeLinear", ["y"], opset)


def test_halves_are_rounded_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    model = model_of(helper.make_node("QuantizeLinear", ["x", "s"], ["y"]), {"x": x}, {"s": np.array(1, np.float32)})
    model.graph.node[0].attribute.append(helper.make_attribute("output_dtype", TensorProto.INT8))
    np.testing.assert_array_equal(computed(graph_of(model), {"x": x})[0], np.array([-2, -2, 0, 0, 2, 2], np.int8))


@pytest.mark.parametrize("offset", [0, 5, -5, None])
def test_dynamic_quantize(offset: int | None) -> None:
    drawn = Drawn(0)
    x = np.zeros((3, 5)) if offset is None else drawn.draw.normal(size=(3, 5)) * 3 + offset
    drawn.operands = {"x": x.astype(np.float32)}
    drawn.check("DynamicQuantizeLinear", ["y", "s", "z"], 11)


@pytest.mark.parametrize("seed", range(10))
def test_linear_convolution(seed: int) -> None:
    drawn = Drawn(seed)
    groups = drawn.choice.choice([1, 2])
    pads = [drawn.choice.randrange(2) for _ in range(4)]
    drawn.attributes = {"group": groups, "strides": [drawn.choice.choice([1, 2]), 1], "pads": pads}
    count = drawn.choice.choice([(), (6,)])
    # ONNX Runtime has no kernel for uint8 images with other weights than int8 ones.
    drawn.operands = {
        "x": drawn.integers(np.uint8, 2, 4, 5, 6),
        "xs": drawn.scale(),
        "xz": drawn.integers(np.uint8),
        "w": drawn.integers(np.int8, 6, 4 // groups, 3, 2),
        "ws": drawn.scale(*count),
        "wz": np.zeros(count, np.int8),
        "s": np.asarray(drawn.scale() * 20, np.float32),
        "z": drawn.integers(np.uint8),
    }
    if drawn.choice.random() < 0.5:
        drawn.operands["b"] = drawn.draw.integers(-2000, 2000, 6).astype(np.int32)
    drawn.check("QLinearConv", ["y"], 10)


@pytest.mark.parametrize("seed", range(10))
def test_linear_product(seed: int) -> None:
    drawn = Drawn(seed)
    left, right = drawn.choice.choice([((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5))])
    count = (5,) if len(right) == 2 and drawn.choice.random() < 0.5 else ()
    drawn.operands = {
        "a": drawn.integers(np.uint8, *left),
        "as": drawn.scale(),
        "az": drawn.integers(np.uint8),
        "b": drawn.integers(np.int8, *right),
        "bs": drawn.scale(*count),
        "bz": drawn.integers(np.int8, *count),
        "s": np.asarray(drawn.scale() * 20, np.float32),
        "z": drawn.integers(np.uint8),
    }
    drawn.check("QLinearMatMul", ["y"], 10)


def test_what_tvm_has_no_arithmetic_of_is_refused() -> None:
    x = np.zeros(3, ml_dtypes.float8_e4m3fn)
    model = model_of(helper.make_node("DequantizeLinear", ["x", "s"], ["y"]), {"x": x}, {"s": np.array(1, np.float32)})
    with pytest.raises(InputError, match=r"DequantizeLinear.*type float8_e4m3fn is not supported"):
        graph_of(model)
