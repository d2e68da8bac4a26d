"""Computes 3x3 convolutions with Winograd's minimal filtering, which needs 2.25 or 4 times fewer multiplications.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, arXiv:1509.09308: F(m x m, 3 x 3) computes
tiles of m x m outputs from tiles of (m + 2) x (m + 2) inputs. ``winograd_tiling.py`` schedules it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import Select, const, if_then_else
from tvm.tirx import all as both

from tvm_gnn_cost.lowering.blocks import FUSABLE
from tvm_gnn_cost.lowering.constants import constant_of
from tvm_gnn_cost.lowering.forms import rewritten
from tvm_gnn_cost.lowering.vectors import WIDEST

#: Names the stage that a block computes.
STAGE = "tvm_gnn_cost.winograd"

#: Minimum number of floating point operations of a convolution, computed directly.
_FEWEST = 2e7

#: Minimum number of rows and columns: with fewer, half of the tiles' outputs are discarded.
_SMALLEST = 8

#: Transformed weights larger than this do not stay in a core's cache between chunks of tiles.
_CACHED_WEIGHTS = 4 << 20

#: The matrices B^T, G and A^T of the paper, by the outputs along a side of a tile.
_MATRICES: dict[int, tuple[list[list[float]], list[list[float]], list[list[float]]]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}


def use_winograd(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces suitable convolutions of a Relax module; returns the module itself if there are none.

    Args:
        mod: A module in NHWC whose weights are constants in HWIO.
    """
    replacing = _Replacing(mod)
    other = rewritten(mod, replacing)
    return other if replacing.replaced else mod


@mutator
class _Replacing(PyExprMutator):  # type: ignore[misc]
    """Replaces convolutions."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.replaced = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != "relax.nn.conv2d":
            return call
        constant = constant_of(call.args[1], self.lookup_binding)
        if constant is None:
            return call
        weights = constant.value.numpy()
        if not _is_offered(call, weights.shape):
            return call
        self.replaced = True
        size = outputs_of_a_tile(*weights.shape[2:])
        padding = [int(item) for item in call.attrs.padding]
        return self.builder_.call_te(
            winograd,
            call.args[0],
            relax.const(transformed(weights, size)),
            size,
            padding,
            primfunc_name_hint="conv2d_winograd",
            primfunc_attrs={"op_pattern": FUSABLE},
        )


def _is_offered(call: relax.Call, weights: Sequence[int]) -> bool:
    """Whether Winograd applies to a convolution that is large enough."""
    attributes = call.attrs
    shape = [int(value) for value in call.ty.shape.values]
    return (
        (attributes.data_layout, attributes.kernel_layout, attributes.out_layout) == ("NHWC", "HWIO", "NHWC")
        and tuple(weights[:2]) == (3, 3)
        and int(attributes.groups) == 1
        and {int(stride) for stride in (*attributes.strides, *attributes.dilation)} == {1}
        and {str(argument.ty.dtype) for argument in (call, *call.args)} == {"float32"}
        # Whole vectors of input and output channels, and outputs that fill the tiles.
        and not any(channels % WIDEST for channels in weights[2:])
        and min(shape[1:3]) >= _SMALLEST
        and 2 * math.prod(shape) * math.prod(weights[:3]) >= _FEWEST
    )


def outputs_of_a_tile(inputs: int, outputs: int) -> int:
    """Outputs along a side of a tile, for the given numbers of channels.

    Tiles of 4 x 4 need the fewest multiplications, but read 36 / 9 times the weights.

    >>> outputs_of_a_tile(64, 64), outputs_of_a_tile(256, 256)
    (4, 2)
    """
    return 4 if 36 * 4 * inputs * outputs <= _CACHED_WEIGHTS else 2


def filled(tiles: int) -> int:
    """The number of tiles to compute, rounded up so that they fill register tiles and chunks.

    >>> filled(49), filled(196), filled(81)
    (50, 196, 81)
    """
    most = tiles + max(1, tiles // 32)
    return next((item for item in range(tiles, most + 1) if not (item % 9 and item % 10 and item % 14)), tiles)


def transformed(weights: npt.NDArray[Any], size: int) -> npt.NDArray[np.float32]:
    """The transformed weights for :func:`winograd`: G w G^T.

    Args:
        weights: Of shape (3, 3, inputs, outputs).
        size: Outputs along a side of a tile.

    Returns:
        An array of shape (size + 2, size + 2, inputs, outputs).
    """
    matrix = np.array(_MATRICES[size][1])
    result = np.einsum("ij,jkcd,lk->ilcd", matrix, weights.astype(np.float64), matrix)
    return np.ascontiguousarray(result, np.float32)


def winograd(data: te.Tensor, weights: te.Tensor, size: int, padding: Sequence[int]) -> te.Tensor:
    """A 3x3 convolution with stride 1, as a tensor expression.

    Args:
        data: Of shape (batch, height, width, inputs).
        weights: What :func:`transformed` gives, of shape (size + 2, size + 2, inputs, outputs).
        size: Outputs along a side of a tile.
        padding: Rows above, columns to the left, rows below and columns to the right.

    Returns:
        A tensor of shape (batch, rows, columns, outputs).
    """
    to_tiles, _, to_outputs = _MATRICES[size]
    batch, height, width, inputs = (int(size) for size in data.shape)
    outputs, side = int(weights.shape[3]), size + 2
    top, left, bottom, right = padding
    rows, columns = height + top + bottom - 2, width + left + right - 2
    down, across = -(-rows // size), -(-columns // size)
    tiles = filled(batch * down * across)

    def stage(name: str, shape: Sequence[int], value: Callable[..., Any]) -> te.Tensor:
        return te.compute(tuple(shape), value, name=name, attrs={STAGE: name})

    def padded(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = both(y >= top, y < top + height, x >= left, x < left + width)
        return if_then_else(inside, data[n, y - top, x - left, c], const(0.0, "float32"))

    def tile(i: Any, j: Any, p: Any, c: Any) -> Any:
        row = (p // across) % down * size + i
        # Padding tiles are computed from an arbitrary tile of the image and never read.
        return image[p // (down * across) % batch, row, p % across * size + j, c]

    image = stage("padded", (batch, down * size + 2, across * size + 2, inputs), padded)
    cut = stage("tiles", (side, side, tiles, inputs), tile)
    half = stage("inputs_rows", (side, side, tiles, inputs), lambda i, j, p, c: _row(to_tiles, i, cut, 0, j, p, c))
    ready = stage("inputs", (side, side, tiles, inputs), lambda i, j, p, c: _row(to_tiles, j, half, 1, i, p, c))
    k = te.reduce_axis((0, inputs), "k")
    products = stage(
        "products",
        (side, side, tiles, outputs),
        lambda i, j, p, c: te.sum(ready[i, j, p, k] * weights[i, j, k, c], axis=k),
    )
    back = stage(
        "outputs_rows", (size, side, tiles, outputs), lambda i, j, p, c: _row(to_outputs, i, products, 0, j, p, c)
    )
    done = stage("outputs", (size, size, tiles, outputs), lambda i, j, p, c: _row(to_outputs, j, back, 1, i, p, c))
    return stage(
        "image",
        (batch, rows, columns, outputs),
        lambda n, y, x, c: done[y % size, x % size, (n * down + y // size) * across + x // size, c],
    )


def _row(matrix: Sequence[Sequence[float]], row: Any, tensor: te.Tensor, axis: int, other: Any, p: Any, c: Any) -> Any:
    """A row of a matrix times one side of the tiles; no select is left after unrolling.

    Args:
        matrix: One of the transforms.
        row: Which of its rows; a loop's variable.
        tensor: Of shape (side, side, tiles, channels).
        axis: The side, 0 or 1.
        other: The index on the other side.
        p: The tile.
        c: The channel.
    """
    output = None
    for number in reversed(range(len(matrix))):
        value = None
        # The compiler does not remove products with 0 or 1, because of infinities.
        for column, factor in enumerate(matrix[number]):
            if factor:
                element = tensor[(column, other, p, c) if axis == 0 else (other, column, p, c)]
                if value is None:
                    value = element if factor == 1 else element * const(factor, "float32")
                else:
                    size = element if abs(factor) == 1 else element * const(abs(factor), "float32")
                    value = value + size if factor > 0 else value - size
        output = value if output is None else Select(row == number, value, output)
    return output
