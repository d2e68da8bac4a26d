"""Transposed convolutions as convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.constants import constant, constant_of
from tvm_gnn_cost.lowering.forms import rewritten, shape_of

#: Operator -> the convolution and the layouts that are rewritten.
_TRANSPOSED = {
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d, "NCW", "IOW"),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d, "NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": (relax.op.nn.conv3d, "NCDHW", "IODHW"),
}


def convolve_transposed(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces transposed convolutions with constant weights, without groups and dilation, by convolutions.

    Of s outputs in a row, where s is the stride, each sums other weights over the same inputs. So a convolution with
    stride 1 computes s times the channels, which are then interleaved. TVM inserts zeros between the inputs and
    multiplies them.
    """
    return rewritten(mod, _Replacing(mod))


@mutator
class _Replacing(PyExprMutator):  # type: ignore[misc]
    """Replaces transposed convolutions."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        known = _TRANSPOSED.get(getattr(call.op, "name", ""))
        if known is None or any(shape_of(value) is None for value in (call, *call.args)):
            return call
        convolution, *layouts = known
        x, weights = call.args
        values = constant_of(weights, self.lookup_binding)
        attributes = call.attrs
        if [attributes.data_layout, attributes.kernel_layout] != layouts or attributes.out_layout != layouts[0]:
            return call
        if int(attributes.groups) != 1 or any(int(step) != 1 for step in attributes.dilation):
            return call
        if values is None or len({str(value.ty.dtype) for value in (call, *call.args)}) > 1:
            return call
        images, _, *sizes = shape_of(x) or []
        _, channels, *outputs = shape_of(call) or []
        strides = [int(stride) for stride in attributes.strides]
        before = [int(size) for size in attributes.padding][: len(sizes)]
        matrix = phases(values.value.numpy(), strides)
        # Output o is number (o + before) % stride of those that the convolution computes at (o + before) // stride.
        first = [low // stride for low, stride in zip(before, strides, strict=True)]
        last = [(low + size - 1) // stride for low, size, stride in zip(before, outputs, strides, strict=True)]
        low = [count - 1 - place for count, place in zip(matrix.shape[2:], first, strict=True)]
        high = [place - size + 1 for place, size in zip(last, sizes, strict=True)]
        if min(low) < 0 or min(high) < 0:
            return call
        result = convolution(x, constant(matrix, str(values.ty.dtype)), padding=[*low, *high])
        places = [b - a + 1 for a, b in zip(first, last, strict=True)]
        wide = [place * stride for place, stride in zip(places, strides, strict=True)]
        if max(strides) > 1:
            rank = len(sizes)
            result = relax.op.reshape(self.builder_.emit(result), [images, *strides, channels, *places])
            # Each axis of places, then that of the outputs at a place.
            order = [
                axis for pair in zip(range(rank + 2, 2 * rank + 2), range(1, rank + 1), strict=True) for axis in pair
            ]
            result = relax.op.permute_dims(self.builder_.emit(result), [0, rank + 1, *order])
            result = relax.op.reshape(self.builder_.emit(result), [images, channels, *wide])
        if wide == outputs:
            return result
        offsets = [start - place * stride for start, place, stride in zip(before, first, strides, strict=True)]
        ends = [offset + size for offset, size in zip(offsets, outputs, strict=True)]
        return relax.op.strided_slice(self.builder_.emit(result), list(range(2, len(sizes) + 2)), offsets, ends)


def phases(weights: npt.NDArray[Any], strides: Sequence[int]) -> npt.NDArray[Any]:
    """The weights of the convolution.

    Args:
        weights: Those of the transposed convolution, of shape (inputs, outputs, *kernel).
        strides: By axis.

    Returns:
        Of shape (product of the strides * outputs, inputs, *taps).

    >>> phases(np.array([[[1, 2, 3]]]), [2]).tolist()  # o[2 u] = 3 x[u - 1] + 1 x[u], o[2 u + 1] = 2 x[u]
    [[[3, 1]], [[0, 2]]]
    """
    inputs, outputs, *kernel = weights.shape
    rank = len(kernel)
    taps = [-(-count // stride) for count, stride in zip(kernel, strides, strict=True)]
    sides = [(0, count * stride - size) for count, stride, size in zip(taps, strides, kernel, strict=True)]
    padded = np.pad(weights, [(0, 0), (0, 0), *sides])
    split = padded.reshape(inputs, outputs, *(size for pair in zip(taps, strides, strict=True) for size in pair))
    tap_axes, stride_axes = range(2, 2 * rank + 2, 2), range(3, 2 * rank + 3, 2)
    ordered = split.transpose(*stride_axes, 1, 0, *tap_axes).reshape(-1, inputs, *taps)
    return np.ascontiguousarray(np.flip(ordered, tuple(range(2, rank + 2))))
