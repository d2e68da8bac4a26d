"""A network of the zoo: its source, its inputs, and the tolerance of its library's outputs."""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: Inputs by name, in the network's order.
Arrays = dict[str, npt.NDArray[Any]]

#: Makes an input with a generator of random numbers.
Drawn = Callable[[np.random.Generator], npt.NDArray[Any]]


@dataclass(frozen=True)
class Zoo:
    """A third-party network.

    Attributes:
        name: In the options and the table.
        source: In the table.
        package: The required package, as Python imports it.
        make: Returns the network, a path or an ``nn.Module``, and its inputs; may write files into the folder.
        limit: Tolerance of the difference from the framework, relative to the largest value of an output.
    """

    name: str
    source: str
    package: str
    make: Callable[[Path], tuple[Any, Arrays]] = field(repr=False)
    limit: float = 3e-4

    @property
    def installed(self) -> bool:
        """Whether its package is installed; imports nothing."""
        return importlib.util.find_spec(self.package) is not None


def generator(name: str) -> np.random.Generator:
    """The generator of a network, which is seeded by its name."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def draw(name: str, inputs: dict[str, Drawn]) -> Arrays:
    """Random inputs of a network."""
    rng = generator(name)
    return {one: np.array(drawn(rng), order="C") for one, drawn in inputs.items()}


def normal(*shape: int, dtype: Any = np.float32) -> Drawn:
    """Normal values, of standard deviation 1."""
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: Any = np.float32) -> Drawn:
    """Uniform values between two."""
    return lambda rng: rng.uniform(low, high, shape).astype(dtype)


def image(batch: int, channels: int, height: int, width: int) -> Drawn:
    """Normal values at two scales: the means of mere noise would all be alike."""

    def drawn(rng: np.random.Generator) -> npt.NDArray[Any]:
        spots = rng.standard_normal((batch, channels, -(-height // 16), -(-width // 16)))
        large = spots.repeat(16, 2).repeat(16, 3)[:, :, :height, :width]
        return (large + 0.5 * rng.standard_normal(large.shape)).astype(np.float32)

    return drawn


def integers(high: int, *shape: int, low: int = 0, dtype: Any = np.int64) -> Drawn:
    """Integers from ``low`` to below ``high``."""
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def constant(value: npt.ArrayLike, dtype: Any) -> Drawn:
    """A constant."""
    return lambda _: np.asarray(value, dtype=dtype)


def mask(rows: int, columns: int, kept: int, dtype: Any = np.int64) -> Drawn:
    """Ones, and zeros for the padding at the end of each row."""
    return lambda _: np.tile(np.arange(columns) < kept, (rows, 1)).astype(dtype)
