from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.lowering.relax_modules import build, outputs, transposes, weights
from tvm_gnn_cost.lowering import forms
from tvm_gnn_cost.lowering.layouts import convert_layouts

Operator = Callable[[Any], Any]


def test_its_examples_hold() -> None:
    assert doctest.testmod(forms).failed == 0


def between(*operators: Operator, shape: tuple[int, ...] = (2, 4, 6, 5)) -> tvm.IRModule:
    """Operators behind a convolution and its activation, each before another convolution if it can be read by one."""
    rank = len(shape)
    convolve = getattr(op.nn, f"conv{rank - 2}d")

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        x = builder.emit(op.tanh(builder.emit(convolve(x, weights(8, shape[1], *[1] * (rank - 2))))))

        def output(operator: Operator) -> Any:
            result = builder.emit(operator(x))
            if result.ty.ndim != rank:
                return result
            if str(result.ty.dtype) != "float32":
                result = builder.emit(op.astype(result, "float32"))
            return builder.emit(convolve(result, weights(3, int(result.ty.shape[1]), *[1] * (rank - 2))))

        return relax.Tuple([output(operator) for operator in operators])

    return build(emit, shape)


def pictures(mod: tvm.IRModule) -> int:
    """The outputs with channels and more than one pixel, which are transposed."""
    shapes = [[int(size) for size in field.shape.values] for field in mod["main"].ret_ty.fields]
    return sum(len(shape) > 2 and max(shape[2:]) > 1 for shape in shapes)


def same(mod: tvm.IRModule, names: Sequence[str] = ()) -> tvm.IRModule:
    """The module converted; it must compute the same."""
    results = convert_layouts(mod)
    relax.analysis.well_formed(results)
    pairs = list(zip(outputs(results), outputs(mod), strict=True))
    for (item, expected), name in zip(pairs, names or [""] * len(pairs), strict=True):
        assert item.dtype == expected.dtype
        np.testing.assert_allclose(item, expected, rtol=1e-4, atol=1e-4, err_msg=name)
    return results


def constant(*shape: int, low: float = 0.5, high: float = 1.5, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.random.default_rng(1).uniform(low, high, shape).astype(dtype), dtype)


UNARY = (
    *("abs", "acos", "asin", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "isfinite", "isinf"),
    *("isnan", "negative", "round", "sigmoid", "sign", "sin", "sinh", "square", "tan", "tanh", "trunc", "nn.relu"),
    *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus", "ones_like", "zeros_like"),
)
POSITIVE = ("acosh", "log", "rsqrt", "sqrt")
BINARY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power", "maximum", "minimum"),
    *("atan2", "log_add_exp", "equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
)
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


def positive(name: str) -> Operator:
    return lambda x: named(name)(op.add(x, relax.const(2.5)))


def binary(name: str) -> Operator:
    return lambda x: named(name)(op.abs(x), constant(8, 1, 1))


def logical(name: str) -> Operator:
    return lambda x: named(name)(op.greater(x, relax.const(0.1)), op.less(x, relax.const(0.2)))


def bitwise(name: str) -> Operator:
    return lambda x: named(name)(integers(x), relax.const(2, "int32"))


def reduced(name: str) -> Operator:
    return lambda x: named(name)(x, [2, 3], keepdims=True)


def named(name: str) -> Any:
    result: Any = op
    for part in name.split("."):
        result = getattr(result, part)
    return result


def integers(x: Any) -> Any:
    return op.astype(op.add(op.abs(op.multiply(x, relax.const(5.0))), relax.const(1.0)), "int32")


ELEMENTWISE: dict[str, Operator] = {
    **{name: named(name) for name in UNARY},
    **{name: positive(name) for name in POSITIVE},
    **{name: binary(name) for name in BINARY},
    **{name: logical(name) for name in LOGICAL},
    **{name: bitwise(name) for name in BITWISE},
    "atanh": lambda x: op.atanh(op.multiply(x, relax.const(0.5))),
    "logical_not": lambda x: op.logical_not(op.greater(x, relax.const(0.1))),
    "bitwise_not": lambda x: op.bitwise_not(integers(x)),
    "clip": lambda x: op.clip(x, -0.1, 0.2),
    "astype": lambda x: op.astype(x, "float16"),
    "full_like": lambda x: op.full_like(x, relax.const(3.0)),
    "where": lambda x: op.where(op.greater(x, relax.const(0.0)), x, constant(1, 8, 1, 5)),
    "a row": lambda x: op.multiply(constant(5), x),
    "a column": lambda x: op.add(x, constant(6, 1)),
    "a batch": lambda x: op.add(x, constant(2, 1, 1, 1)),
    "relu6": lambda x: op.minimum(op.maximum(x, relax.const(0.0)), relax.const(6.0)),
    "hard-swish": lambda x: op.multiply(
        x, op.divide(op.minimum(op.maximum(op.add(x, relax.const(3.0)), relax.const(0.0)), relax.const(6.0)),
                     relax.const(6.0))),
}  # fmt: skip


def group_norm(x: Any) -> Any:
    """In its parts, with the groups as an axis of their own."""
    groups = op.reshape(x, (2, 2, 4, 6, 5))
    mean, variance = (function(groups, [2, 3, 4], keepdims=True) for function in (op.mean, op.variance))
    normed = op.divide(op.subtract(groups, mean), op.sqrt(op.add(variance, relax.const(1e-5))))
    return op.multiply(op.reshape(normed, (2, 8, 6, 5)), constant(8, 1, 1))


OTHERS: dict[str, Operator] = {
    "max_pool2d": lambda x: op.nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1)),
    "max_pool2d ceil": lambda x: op.nn.max_pool2d(x, (3, 2), (2, 2), ceil_mode=True),
    "avg_pool2d": lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 1), (1, 1, 1, 1), count_include_pad=True),
    "avg_pool2d without": lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 1), (1, 1, 1, 1), count_include_pad=False),
    "adaptive": lambda x: op.nn.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive to one": lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
    "resize linear": lambda x: op.image.resize2d(x, (12, 7), method="linear"),
    "resize nearest": lambda x: op.image.resize2d(x, (12, 10), method="nearest_neighbor", rounding_method="floor",
                                                 coordinate_transformation_mode="asymmetric"),
    "resize cubic": lambda x: op.image.resize2d(x, (3, 10), method="cubic",
                                                coordinate_transformation_mode="align_corners"),
    **{name: reduced(name) for name in ("sum", "mean", "max", "min", "prod", "variance", "std")},
    "mean over channels": lambda x: op.mean(x, [1], keepdims=True),
    "sum over the end": lambda x: op.sum(x, [-1], keepdims=True),
    "sum over all": lambda x: op.sum(x, None, keepdims=True),
    "argmax": lambda x: op.argmax(x, 1, keepdims=True),
    "argmin": lambda x: op.argmin(x, -1, keepdims=True),
    "softmax": lambda x: op.nn.softmax(x, 1),
    "log_softmax": lambda x: op.nn.log_softmax(x, -1),
    "cumsum": lambda x: op.cumsum(x, 2),
    "cumprod": lambda x: op.cumprod(x, 1),
    "flip": lambda x: op.flip(x, 3),
    "repeat": lambda x: op.repeat(x, 2, 1),
    "tile": lambda x: op.tile(x, (1, 3, 2, 1)),
    "prelu": lambda x: op.nn.prelu(x, constant(8), 1),
    "layer_norm": lambda x: op.nn.layer_norm(x, constant(8), constant(8), axes=[1]),
    "layer_norm last": lambda x: op.nn.layer_norm(x, constant(5), constant(5), axes=[-1]),
    "group_norm": lambda x: op.nn.group_norm(x, constant(8), constant(8), 2, 1, [2, 3]),
    "group norm in its parts": group_norm,
    "instance_norm": lambda x: op.nn.instance_norm(x, constant(8), constant(8), 1, [2, 3]),
    "pad": lambda x: op.nn.pad(x, (0, 0, 1, 2, 3, 0, 0, 4), pad_value=0.5),
    "pad reflect": lambda x: op.nn.pad(x, (0, 0, 0, 0, 1, 2, 3, 0), pad_mode="reflect"),
    "slice": lambda x: op.strided_slice(x, [1, -1], [1, 0], [7, 5], [2, 2]),
    "take": lambda x: op.take(x, relax.const(np.array([3, 1, 7]), "int64"), 1, mode="wrap"),
    "concat": lambda x: op.concat([x, constant(2, 3, 6, 5), x], 1),
    "concat rows": lambda x: op.concat([x, x], -2),
    "stack and sum": lambda x: op.sum(op.stack([x, constant(2, 8, 6, 5), x], 0), [0]),
    "split": lambda x: op.multiply(relax.TupleGetItem(op.split(x, 2, 1), 0),
                                     relax.TupleGetItem(op.split(x, [3, 7], 1), 1)),
    "broadcast_to": lambda x: op.broadcast_to(op.mean(x, [2], keepdims=True), (2, 8, 3, 5)),
    "quantize": lambda x: op.dequantize(op.quantize(x, constant(8), relax.const(np.zeros(8, "int8")), 1),
                                        constant(8), relax.const(np.zeros(8, "int8")), 1),
    "squeeze and excite": lambda x: op.multiply(x, op.sigmoid(op.nn.conv2d(
        op.nn.relu(op.nn.conv2d(op.mean(x, [2, 3], keepdims=True), weights(2, 8, 1, 1))), weights(8, 2, 1, 1)))),
    "squeeze and excite by products": lambda x: op.multiply(x, op.reshape(op.sigmoid(op.matmul(
        op.reshape(op.mean(x, [2, 3], keepdims=True), (2, 8)), constant(8, 8))), (2, 8, 1, 1))),
    "attention": lambda x: op.reshape(op.permute_dims(op.matmul(
        op.permute_dims(op.reshape(x, (2, 8, 30)), (0, 2, 1)), constant(8, 8)), (0, 2, 1)), (2, 8, 6, 5)),
    "channels last in the network": lambda x: op.permute_dims(op.nn.layer_norm(
        op.permute_dims(x, (0, 2, 3, 1)), constant(8), constant(8), axes=[-1]), (0, 3, 1, 2)),
    "transposes that cancel": lambda x: op.permute_dims(op.permute_dims(x, (0, 3, 1, 2)), (0, 2, 3, 1)),
}  # fmt: skip


@pytest.mark.parametrize("operators", [ELEMENTWISE, OTHERS])
def test_operators_take_the_form_of_convolutions(operators: dict[str, Operator]) -> None:
    mod = between(*operators.values())
    # The first input and the last outputs alone.
    assert transposes(same(mod, list(operators))) == 1 + pictures(mod)


SMALLER: dict[str, tuple[Operator, int]] = {
    "mean over a picture": (lambda x: op.mean(x, [2, 3]), 1),
    "sum over channels": (lambda x: op.sum(x, [1]), 1),
    "max over rows": (lambda x: op.max(x, [2]), 2),
    "argmax of channels": (lambda x: op.argmax(x, 1), 1),
    "one channel": (lambda x: op.take(x, relax.const(3, "int64"), 1, mode="wrap"), 1),
    "one row": (lambda x: op.take(x, relax.const(3, "int64"), 2, mode="wrap"), 2),
    "flattened": (lambda x: op.flatten(op.mean(x, [2, 3], keepdims=True)), 1),
    "squeezed": (lambda x: op.squeeze(op.mean(x, [2, 3], keepdims=True), [2, 3]), 1),
    "expanded": (lambda x: op.expand_dims(x, [0]), 2),
    "flattened with its places": (lambda x: op.reshape(x, (2, 240)), 2),
    "tokens": (lambda x: op.permute_dims(op.reshape(x, (2, 8, 30)), (0, 2, 1)), 1),
    "argmax of all": (lambda x: op.argmax(x, None), 2),
    "stack at the end": (lambda x: op.stack([x, x], -1), 2),
    "rms_norm": (lambda x: op.nn.rms_norm(x, constant(5), axes=[-1]), 4),
    "shuffled channels": (lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 2, 4, 6, 5)), (0, 2, 1, 3, 4)),
                                               (2, 8, 6, 5)), 3),
    "depth to space": (lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 2, 2, 2, 6, 5)), (0, 3, 4, 1, 5, 2)),
                                            (2, 2, 12, 10)), 3),
    "space to depth": (lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 8, 3, 2, 5, 1)), (0, 3, 5, 1, 2, 4)),
                                            (2, 16, 3, 5)), 3),
}  # fmt: skip


def test_results_of_another_rank_need_no_more_transposes() -> None:
    same(between(*(operator for operator, _ in SMALLER.values())), list(SMALLER))
    for name, (operator, expected) in SMALLER.items():
        assert (name, transposes(convert_layouts(between(operator)))) == (name, expected)


@pytest.mark.parametrize("shape", [(2, 4, 9), (1, 4, 5, 6, 4)])
def test_pooling_of_sequences_and_volumes(shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    kinds = [getattr(op.nn, f"{kind}_pool{rank}d") for kind in ("max", "avg", "adaptive_avg")]
    mod = between(*(lambda x, pool=pool: pool(x, [2] * rank) for pool in kinds), shape=shape)
    assert transposes(same(mod)) == 1 + len(kinds)


def test_resized_volumes() -> None:
    mod = between(lambda x: op.image.resize3d(x, (8, 6, 5)), shape=(1, 4, 5, 6, 4))
    assert transposes(same(mod)) == 2


SETTINGS: list[dict[str, int]] = [
    {},
    {"strides": 2, "padding": 1},
    {"dilation": 2},
    {"strides": 2, "dilation": 2, "padding": 2},
]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank(rank: int) -> None:
    convolve = getattr(op.nn, f"conv{rank}d")

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        def output(groups: int, settings: dict[str, int]) -> Any:
            kernel = weights(8, 4 // groups, *(3, 2, 3)[:rank])
            attributes = {key: (value,) * rank for key, value in settings.items()}
            return builder.emit(convolve(x, kernel, groups=groups, **attributes))

        return relax.Tuple([output(groups, settings) for groups in (1, 2, 4) for settings in SETTINGS])

    assert transposes(same(build(emit, (2, 4, *(7, 8, 6)[:rank])))) == 1 + 3 * len(SETTINGS)
