"""Normalizations as a single function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_gnn_cost.lowering.blocks import FUSABLE


def layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Layer norm by the mean and the mean of squared differences from it, both of a row before the next.

    TVM's own takes the mean of squares less the squared mean, which is wrong where the mean is large. Operators for
    mean and variance would be two functions, which read the tensor three times.

    Args:
        builder: Receives the function.
        call: A call of ``relax.nn.layer_norm``.
    """
    attributes = call.attrs
    rank = call.args[0].ty.ndim
    axes = sorted(int(axis) % rank for axis in attributes.axes)
    epsilon, center, scale = float(attributes.epsilon), bool(attributes.center), bool(attributes.scale)

    def normalized(x: te.Tensor, factor: te.Tensor, summand: te.Tensor) -> te.Tensor:
        base = normalize(x, axes, True, epsilon, 0.0)

        def result(*at: Any) -> Any:
            parameters = [at[axis] for axis in axes]
            value = base(*at) * factor(*parameters) if scale else base(*at)
            return value + summand(*parameters) if center else value

        return te.compute(x.shape, result, name="layer_norm") if scale or center else base

    return builder.call_te(
        normalized, *call.args, primfunc_name_hint="layer_norm", primfunc_attrs={"op_pattern": FUSABLE}
    )


def normalize(x: te.Tensor, axes: Sequence[int], is_centered: bool, inner: float, outer: float) -> te.Tensor:
    """x, less its mean if it is centered, divided by sqrt(the mean of squares + inner) + outer."""
    shape, kept = list(x.shape), [axis for axis in range(len(x.shape)) if axis not in axes]
    count = tirx.const(math.prod(int(shape[axis]) for axis in axes), x.dtype)

    def over(name: str, term: Any) -> te.Tensor:
        summed = [te.reduce_axis((0, shape[axis]), name="k") for axis in axes]

        def total(*at: Any) -> Any:
            index = dict(zip(kept, at, strict=True)) | dict(zip(axes, summed, strict=True))
            return te.sum(term(*(index[axis] for axis in range(len(shape)))), axis=summed)

        return te.compute([shape[axis] for axis in kept], total, name=name)

    def row(at: Sequence[Any]) -> list[Any]:
        return [at[axis] for axis in kept]

    if is_centered:
        sums = over("sums", x)

        def centered(*at: Any) -> Any:
            return x(*at) - sums(*row(at)) / count
    else:
        centered = x
    squares = over("squares", lambda *at: centered(*at) * centered(*at))
    one, near, far = (tirx.const(number, x.dtype) for number in (1, inner, outer))
    deviation = te.compute(
        squares.shape, lambda *at: one / (tirx.sqrt(squares(*at) / count + near) + far), name="inverse_deviation"
    )
    return te.compute(shape, lambda *at: centered(*at) * deviation(*row(at)), name="normalized")
