"""Decomposes PyTorch operators that its ONNX exporter lacks, or silently exports with another meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

_ATEN = torch.ops.aten


def decompose(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with these operators decomposed; the program itself if it has none."""
    used = {node.target for node in program.graph.nodes if node.op == "call_function" and _is_wanted(node)}
    table = {operator: written for operator, written in _TABLE.items() if operator in used}
    return program.run_decompositions(table) if table else program


def _is_wanted(node: torch.fx.Node) -> bool:
    """Average pooling is decomposed only if it has ``divisor_override``, which the exporter ignores."""
    if node.target in _EXTREMES:
        return not (len(node.args) > 1 and node.args[1]) and not node.kwargs.get("dim")
    if node.target is _ATEN.scaled_dot_product_attention.default:
        query = node.args[0]
        assert isinstance(query, torch.fx.Node)
        return bool(query.meta["val"].dim() < 4)
    if node.target not in _AVERAGES:
        return node.target in _TABLE
    position = [argument.name for argument in node.target._schema.arguments].index("divisor_override")
    given = node.args[position] if position < len(node.args) else node.kwargs.get("divisor_override")
    return given is not None


def _average(axes: int) -> Callable[..., torch.Tensor]:
    pool: Any = (functional.avg_pool2d, functional.avg_pool3d)[axes - 2]

    def average(
        x: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,  # noqa: ARG001 - the sum is of the same numbers
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is None:
            return NotImplemented
        kernel = list(kernel_size) * (axes if len(kernel_size) == 1 else 1)
        if ceil_mode:
            # Windows that exceed the padding have a smaller divisor, so the input is padded and there are none.
            step = list(stride) * (axes if len(stride) == 1 else 1) or kernel
            pads = list(padding) * (axes if len(padding) == 1 else 1)
            ends = []
            for size, width, stride_, pad in zip(x.shape[-axes:], kernel, step, pads, strict=True):
                count = -(-(size + 2 * pad - width) // stride_) + 1
                if (count - 1) * stride_ >= size + pad:
                    count -= 1
                ends.append(max(0, (count - 1) * stride_ + width - size - 2 * pad))
            added = [item for pad, end in zip(pads[::-1], ends[::-1], strict=True) for item in (pad, pad + end)]
            summed = pool(functional.pad(x, added), kernel, step)
        else:
            summed = pool(x, kernel, list(stride) or None, list(padding), count_include_pad=True)
        return summed * (math.prod(kernel) / divisor_override)

    return average


def _adaptive_maximum(axes: int) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Adaptive pooling as one reduction per output, since its windows are static."""

    def maximum(x: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        sizes = list(x.shape[-axes:])
        windows = [
            [(i * size // count, -((-(i + 1) * size) // count)) for i in range(count)]
            for size, count in zip(sizes, output_size, strict=True)
        ]
        values, places = [], []
        for place in range(math.prod(output_size)):
            at, part = place, x
            starts: list[int] = []
            extents: list[int] = []
            for axis in reversed(range(axes)):
                start, end = windows[axis][at % output_size[axis]]
                at //= output_size[axis]
                part = part.narrow(axis - axes, start, end - start)
                starts.insert(0, start)
                extents.insert(0, end - start)
            flat = part.flatten(-axes)
            values.append(flat.amax(-1))
            where = flat.argmax(-1)
            index = torch.zeros_like(where)
            for axis in range(axes):
                coordinate = where // math.prod(extents[axis + 1 :]) % extents[axis] + starts[axis]
                index = index * sizes[axis] + coordinate
            places.append(index)
        shape = [*x.shape[:-axes], *output_size]
        return torch.stack(values, -1).reshape(shape), torch.stack(places, -1).reshape(shape)

    return maximum


def _extreme(reduce: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Reduces over all axes if none is given, which the exporter takes for a missing argument."""

    def extreme(x: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        return NotImplemented if dim else reduce(x, list(range(x.dim())), keepdim)

    return extreme


_EXTREMES = (_ATEN.amax.default, _ATEN.amin.default)


def _product(x: torch.Tensor, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Multiplies one half of an axis by the other until one element is left."""
    x = x if dtype is None else x.to(dtype)
    x = x.to(torch.int64) if x.dtype in (torch.bool, torch.int32, torch.int16, torch.int8, torch.uint8) else x
    while x.shape[dim] > 1:
        half = x.shape[dim] // 2
        rest = x.narrow(dim, 2 * half, x.shape[dim] - 2 * half)
        x = torch.cat([x.narrow(dim, 0, half) * x.narrow(dim, half, half), rest], dim)
    return x if keepdim else x.squeeze(dim)


def _whole_product(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _product(x.reshape(-1), 0, dtype=dtype)


def _running_product(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A parallel prefix product (Hillis and Steele 1986)."""
    x = x if dtype is None else x.to(dtype)
    size, shift = x.shape[dim], 1
    while shift < size:
        kept, others = x.narrow(dim, 0, shift), x.narrow(dim, shift, size - shift)
        x = torch.cat([kept, others * x.narrow(dim, 0, size - shift)], dim)
        shift *= 2
    return x


def _median(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower median."""
    ordered, places = torch.sort(x, dim)
    results = [item.narrow(dim, (x.shape[dim] - 1) // 2, 1) for item in (ordered, places)]
    values, indices = results if keepdim else [item.squeeze(dim) for item in results]
    return values, indices


def _distances(x: torch.Tensor, y: torch.Tensor, p: float = 2.0, _mode: int | None = None) -> torch.Tensor:
    difference = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (difference != 0).to(x.dtype).sum(-1)
    if math.isinf(p):
        return difference.amax(-1)
    if p in (1.0, 2.0):
        return difference.sum(-1) if p == 1 else difference.square().sum(-1).sqrt()
    return difference.pow(p).sum(-1).pow(1 / p)


def _search(
    ordered: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> Any:
    """Number of elements that are less than each value."""
    if sorter is not None:
        return NotImplemented
    is_right = right if side is None else side == "right"
    rows, column = ordered.unsqueeze(-2), values.unsqueeze(-1)
    before = rows <= column if is_right else rows < column
    return before.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *more: Any,
    **named: Any,
) -> Any:
    """Attention of fewer than four axes, with leading axes added: the exporter requires four."""
    missing = 4 - query.dim()
    if missing <= 0:
        return NotImplemented

    def four(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(*[1] * missing, *x.shape)

    mask = attn_mask if attn_mask is None else attn_mask.reshape(*[1] * (4 - attn_mask.dim()), *attn_mask.shape)
    result = functional.scaled_dot_product_attention(four(query), four(key), four(value), mask, *more, **named)
    return result.reshape(result.shape[missing:])


_AVERAGES = (_ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default)

#: Operator -> its decomposition.
_TABLE: dict[Any, Callable[..., Any]] = {
    _ATEN.avg_pool2d.default: _average(2),
    _ATEN.avg_pool3d.default: _average(3),
    # The exporter's is the logarithm of a sigmoid that has underflowed.
    _ATEN.log_sigmoid.default: lambda x: -functional.softplus(-x),
    _ATEN.prod.default: _whole_product,
    _ATEN.prod.dim_int: _product,
    _ATEN.cumprod.default: _running_product,
    _ATEN.median.dim: _median,
    _ATEN.cdist.default: _distances,
    _ATEN._cdist_forward.default: _distances,
    _ATEN.searchsorted.Tensor: _search,
    _ATEN.scaled_dot_product_attention.default: _attention,
    _ATEN.amax.default: _extreme(torch.amax),
    _ATEN.amin.default: _extreme(torch.amin),
    _ATEN.adaptive_max_pool1d.default: _adaptive_maximum(1),
    _ATEN.adaptive_max_pool2d.default: _adaptive_maximum(2),
    _ATEN.adaptive_max_pool3d.default: _adaptive_maximum(3),
}
