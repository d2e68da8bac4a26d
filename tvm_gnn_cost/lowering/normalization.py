"""Lowers layer normalization to a single function."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

#: Relax's kind of a function that elementwise operators can be fused after.
_FUSABLE = 4


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
        shape = list(x.shape)
        kept = [axis for axis in range(rank) if axis not in axes]
        size = tirx.const(math.prod(int(shape[axis]) for axis in axes), x.dtype)

        def of_row(value: Any, name: str) -> te.Tensor:
            places = [te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes]

            def total(*row: Any) -> Any:
                at = dict(zip(kept, row, strict=True)) | dict(zip(axes, places, strict=True))
                return te.sum(value(*(at[axis] for axis in range(rank))), axis=places)

            return te.compute([shape[axis] for axis in kept], total, name=name)

        def row_of(at: Any) -> list[Any]:
            return [at[axis] for axis in kept]

        sums = of_row(x, "sums")

        def difference(*at: Any) -> Any:
            return x(*at) - sums(*row_of(at)) / size

        squares = of_row(lambda *at: difference(*at) * difference(*at), "squares")
        inverse = te.compute(
            squares.shape,
            lambda *row: tirx.const(1, x.dtype) / tirx.sqrt(squares(*row) / size + tirx.const(epsilon, x.dtype)),
            name="inverse_deviation",
        )

        def result(*at: Any) -> Any:
            value = difference(*at) * inverse(*row_of(at))
            parameters = [at[axis] for axis in axes]
            if scale:
                value = value * factor(*parameters)
            return value + summand(*parameters) if center else value

        return te.compute(shape, result, name="layer_norm")

    return builder.call_te(
        normalized, *call.args, primfunc_name_hint="layer_norm", primfunc_attrs={"op_pattern": _FUSABLE}
    )
