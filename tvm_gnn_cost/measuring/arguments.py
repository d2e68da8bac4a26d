"""Random arguments to run programs with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

#: Number of values to draw; larger arguments repeat them. A prime, so that no dimension has this period.
_DRAWN = 262_147

#: How floats and integers are drawn: with both signs, or positive for programs that cannot handle both.
Kind = Literal["signed", "positive"]
KINDS: tuple[Kind, ...] = ("signed", "positive")


class Argument(NamedTuple):
    """A parameter of a program.

    Attributes:
        dtype: TVM's name of its dtype.
        shape: Its shape.
        bound: Exclusive upper bound of integers that are used as indices; 0 for other arguments.
        written: Whether the program writes it.
    """

    dtype: str
    shape: tuple[int, ...]
    bound: int = 0
    written: bool = False


def draw(arguments: Sequence[Argument], kind: Kind = "signed") -> list[npt.NDArray[Any]]:
    """Values of all arguments, including outputs; the same in every process.

    Args:
        arguments: The arguments.
        kind: How they are drawn.
    """
    return [
        _values(argument, kind, np.random.default_rng([KINDS.index(kind), number]))
        for number, argument in enumerate(arguments)
    ]


def nudged(values: npt.NDArray[Any], precision: float) -> npt.NDArray[Any]:
    """Floats perturbed by about a rounding error; integers unchanged.

    Args:
        values: An argument.
        precision: Relative size of a rounding error.
    """
    if not is_float(values.dtype):
        return values
    count = min(values.size, _DRAWN)
    signs = np.random.default_rng(1).choice(np.array([-1.0, 1.0]), count)
    return (values.astype(np.float64) * (1 + precision * np.resize(signs, values.shape))).astype(values.dtype)


def is_float(dtype: Any) -> bool:
    """Whether a dtype is a floating point type, including types that NumPy lacks."""
    name: str = np.dtype(dtype).name
    return name.startswith(("float", "bfloat"))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for TVM's name of a dtype.

    Raises:
        TypeError: NumPy has no such dtype.
    """
    if name.startswith(("bfloat", "float8", "float6", "float4")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))
    return np.dtype(name)


def _values(argument: Argument, kind: Kind, rng: np.random.Generator) -> npt.NDArray[Any]:
    dtype, size = numpy_dtype(argument.dtype), math.prod(argument.shape)
    count = min(size, _DRAWN)
    if dtype == np.bool_:
        drawn: npt.NDArray[Any] = rng.integers(0, 2, count).astype(bool)
    elif is_float(dtype):
        drawn = rng.normal(0, 0.5, count) if kind == "signed" else rng.uniform(0.5, 1.5, count)
    elif argument.bound:
        drawn = rng.integers(0, argument.bound, count)
    elif kind == "positive":
        drawn = rng.integers(1, 10, count)
    else:
        limits = np.iinfo(dtype)
        drawn = rng.integers(max(-100, int(limits.min)), min(100, int(limits.max)), count, endpoint=True)
    return np.resize(drawn.astype(dtype), argument.shape)
