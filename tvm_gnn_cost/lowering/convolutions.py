"""Depthwise and grouped convolutions, and those whose number of channels is no multiple of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.blocks import FUSABLE
from tvm_gnn_cost.lowering.constants import constant, constant_of
from tvm_gnn_cost.lowering.forms import rewritten, shape_of
from tvm_gnn_cost.lowering.padding import padded_columns

#: Largest number of channels of an input that is not transposed. More of them would be far apart in memory.
_FEW = 4

#: Operator -> the data and kernel layouts that are lowered here.
_LAYOUTS = {
    "relax.nn.conv1d": ("NWC", "WIO"),
    "relax.nn.conv2d": ("NHWC", "HWIO"),
    "relax.nn.conv3d": ("NDHWC", "DHWIO"),
}


def lower_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """Lowers convolutions that TVM lowers to something that is not tiled well.

    - Depthwise ones have the index ``channel + rc`` there, with an ``rc`` of extent 1, so that the channels do not look
      contiguous.
    - Others with groups get an axis for the groups.
    - Constant weights whose number of channels is no multiple of a vector are padded with zeros, as those of products
      are.
    - Images of few channels are read in the layout they come in. Tiles read single values of the input, wherever they
      are.

    Args:
        mod: A module in Relax's operators, with convolutions in channels-last layouts; others are left as they are.
    """
    return rewritten(mod, _Lowering(mod))


@mutator
class _Lowering(PyExprMutator):  # type: ignore[misc]
    """Replaces convolutions."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        layouts = _LAYOUTS.get(getattr(call.op, "name", ""))
        if layouts is None or any(shape_of(value) is None for value in (call, *call.args)):
            return call
        x, weights = call.args
        attributes = call.attrs
        if (attributes.data_layout, attributes.kernel_layout, attributes.out_layout) != (*layouts, layouts[0]):
            return call
        if len({str(value.ty.dtype) for value in (call, x, weights)}) > 1:
            return call
        *kernel, inner, channels = shape_of(weights) or []
        groups = int(attributes.groups)
        columns = channels // groups
        values = constant_of(weights, self.lookup_binding)
        padded = columns if values is None else padded_columns(columns)
        is_depthwise = inner == 1 and columns == 1
        image = None if is_depthwise else self._channels_first(x)
        if not is_depthwise:
            if groups == 1 and padded == columns and image is None:
                return call
            shape = [*kernel, inner, *([groups] if groups > 1 else []), columns]
            if values is not None:
                sides = [(0, 0)] * (len(shape) - 1) + [(0, padded - columns)]
                weights = constant(np.pad(values.value.numpy().reshape(shape), sides), str(values.ty.dtype))
            elif groups > 1:
                weights = self.builder_.emit(relax.op.reshape(weights, shape))
        result = self.builder_.call_te(
            _convolution,
            x if image is None else image,
            weights,
            *([int(item) for item in items] for items in (attributes.strides, attributes.padding, attributes.dilation)),
            None if is_depthwise else columns,
            image is not None,
            primfunc_name_hint=call.op.name.rpartition(".")[2],
            primfunc_attrs={"op_pattern": FUSABLE},
        )
        if is_depthwise or groups == 1:
            return result
        return relax.op.reshape(self.builder_.emit(result), shape_of(call))

    def _channels_first(self, value: Any) -> Any:
        """The value of few channels, before the spatial axes, that another is a transpose of; None if there is none."""
        call: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if getattr(getattr(call, "op", None), "name", "") != "relax.permute_dims" or call.attrs.axes is None:
            return None
        rank = value.ty.ndim
        is_moved = [int(axis) % rank for axis in call.attrs.axes] == [0, *range(2, rank), 1]
        return call.args[0] if is_moved and (shape_of(value) or [0])[-1] <= _FEW else None


def _convolution(
    x: te.Tensor,
    weights: te.Tensor,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
    columns: int | None,
    is_channels_first: bool,
) -> te.Tensor:
    """A convolution.

    Args:
        x: Of shape (images, *sizes, channels), or (images, channels, *sizes) if ``is_channels_first``.
        weights: Of shape (*kernel, input channels of a group, groups, at least ``columns``); without the axis of the
            groups if there is one group. Those of a depthwise convolution are of shape (*kernel, 1, channels).
        strides: By axis.
        padding: Before each axis, then after each.
        dilation: By axis.
        columns: Output channels of a group; None for a depthwise convolution.
        is_channels_first: The layout of ``x``.

    Returns:
        Of shape (images, *sizes, groups, columns), or (images, *sizes, channels) without the axis of the groups.
    """
    images, *sizes = (int(size) for size in x.shape)
    del sizes[0 if is_channels_first else -1]
    rank = len(strides)
    kernel, inner, outer = (
        [int(size) for size in weights.shape[:rank]],
        int(weights.shape[rank]),
        weights.shape[rank + 1 :],
    )
    before, after = padding[:rank], padding[rank:]

    def in_order(image: Any, place: Sequence[Any], channel: Any) -> list[Any]:
        return [image, channel, *place] if is_channels_first else [image, *place, channel]

    padded = topi.nn.pad(x, in_order(0, before, 0), in_order(0, after, 0), name="pad_temp") if any(padding) else x
    taps = [te.reduce_axis((0, size), f"r{axis}") for size, axis in zip(kernel, "yxz", strict=False)]
    summed = [] if columns is None else [te.reduce_axis((0, inner), "rc")]

    def value(image: Any, *at: Any) -> Any:
        place, channel = at[:rank], at[rank:]
        here = [p * stride + tap * step for p, stride, tap, step in zip(place, strides, taps, dilation, strict=True)]
        source = channel[0] if columns is None else summed[0] + (channel[0] * inner if len(channel) > 1 else 0)
        tap = (*taps, *(summed or [0]), *channel)
        return te.sum(padded[tuple(in_order(image, here, source))] * weights[tap], axis=[*taps, *summed])

    places = [
        (size + low + high - (count - 1) * step - 1) // stride + 1
        for size, low, high, count, step, stride in zip(sizes, before, after, kernel, dilation, strides, strict=True)
    ]
    result = te.compute((images, *places, *outer), value, name="convolution")
    if columns is None or int(outer[-1]) == columns:
        return result
    return te.compute((images, *places, *outer[:-1], columns), lambda *at: result(*at), name="columns")
