"""Tells whether a program computes what another one does, as far as their types can."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.arguments import KINDS, Argument, Kind, draw, is_float, nudged

#: Dtype -> how much a rounding changes a value, relative to it.
_PRECISION = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}

#: That of types with fewer digits.
_COARSE = 0.1

#: The least and the largest difference, relative to the largest value, that roundings explain; in roundings.
_LEAST, _MOST = 10.0, 300.0

#: An output verifies little if fewer of its values are finite, or are the same within a rounding.
_ENOUGH = 0.5

#: Where values are rounded to integers, so many of them may differ by one, and so many that are computed from them by
#: such a share of the largest.
_ROUNDED, _STEP = 1e-3, 0.05

Outputs = list[npt.NDArray[Any]]


def precision_of(dtypes: Sequence[str]) -> float:
    """How much a rounding to the coarsest of these types changes a value, relative to it; 0 without floats."""
    return max((_PRECISION.get(one, _COARSE) for one in dtypes if one.startswith(("float", "bfloat"))), default=0.0)


def tolerance(precision: float, terms: int) -> float:
    """The difference of two programs' outputs, relative to the largest value, that their roundings explain.

    Args:
        precision: See :func:`precision_of`.
        terms: How many values the longest sum adds up.

    >>> f"{tolerance(1e-6, 1):.2g} {tolerance(1e-6, 4608):.2g} {tolerance(1e-6, 10**9):.2g}"
    '1.1e-05 7.8e-05 0.0003'
    """
    return precision * min(_LEAST + math.sqrt(terms), _MOST)


@dataclass(frozen=True)
class Reference:
    """What a program must give for drawn arguments.

    Attributes:
        kind: How they were drawn.
        expected: The outputs, in the order of the arguments that are written.
        loose: For each output, the flat places where a rounding of the arguments changes much, and how much there is
            allowed; NaN where nothing can be said.
        tolerance: The difference that is allowed elsewhere, relative to the largest value.
        verifies: Whether outputs differ enough from each other to tell a right program from a wrong one.
        rounds: Whether the program rounds to integers, or decides by comparing.
    """

    kind: Kind
    expected: Outputs
    loose: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
    tolerance: float
    verifies: bool
    rounds: bool = False

    def save(self, path: Path) -> None:
        """Writes it to an npz file."""
        # NumPy cannot read back the types that it does not know.
        arrays = {f"expected_{i}": _storable(one) for i, one in enumerate(self.expected)}
        arrays |= {f"places_{i}": places for i, (places, _) in enumerate(self.loose)}
        arrays |= {f"limits_{i}": limits for i, (_, limits) in enumerate(self.loose)}
        about = {"kind": self.kind, "tolerance": self.tolerance, "verifies": self.verifies, "rounds": self.rounds}
        np.savez(path, **{name: np.array(value) for name, value in about.items()}, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Reference:
        """Reads what :meth:`save` wrote."""
        with np.load(path) as file:
            count = sum(name.startswith("expected_") for name in file.files)
            return cls(
                KINDS[KINDS.index(str(file["kind"]))],
                [file[f"expected_{i}"] for i in range(count)],
                [(file[f"places_{i}"], file[f"limits_{i}"]) for i in range(count)],
                float(file["tolerance"]),
                bool(file["verifies"]),
                bool(file["rounds"]),
            )

    def check(self, outputs: Outputs) -> str:
        """Why these outputs are wrong, in a sentence without a subject; empty if they are right."""
        if len(outputs) != len(self.expected):
            return f"gives {len(outputs)} outputs, not {len(self.expected)}"
        for number, (found, expected, loose) in enumerate(zip(outputs, self.expected, self.loose, strict=True)):
            said = self._compare(_storable(found), _storable(expected), *loose)
            if said:
                return f"computes something else in output {number}: {said}"
        return ""

    def _compare(
        self,
        found: npt.NDArray[Any],
        expected: npt.NDArray[Any],
        places: npt.NDArray[np.int64],
        limits: npt.NDArray[np.float64],
    ) -> str:
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
        found, expected = found.ravel(), expected.ravel()
        if not is_float(expected.dtype):
            wrong = found != expected
            wrong[places] = False
            count = int(wrong.sum())
            if self.tolerance and count <= _ROUNDED * wrong.size:
                wrong &= np.abs(found.astype(np.float64) - expected.astype(np.float64)) > 1
            return f"{int(wrong.sum())} of {wrong.size} values" if wrong.any() else ""
        largest = _largest(expected)
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(found - expected)
        # Infinities of one sign are equal, and so are NaNs.
        odd = ~np.isfinite(differences)
        if odd.any():
            same = (found == expected) | (np.isnan(found) & np.isnan(expected))
            differences[odd] = np.where(same[odd], 0, np.inf)
        wrong = differences > self.tolerance * (largest or 1.0)
        if not wrong.any():
            return ""
        wrong[places] = differences[places] > limits
        few = self.rounds and int(wrong.sum()) <= _ROUNDED * wrong.size
        if not wrong.any() or (few and float(differences[wrong].max()) <= _STEP * largest):
            return ""
        off = float(differences[wrong].max()) / (largest or 1.0)
        by = f"by {100 * off:.2g}% of the largest" if math.isfinite(off) else "NaN or infinity in other places"
        return f"{int(wrong.sum())} of {wrong.size} values, {by}"


def make_reference(
    run: Callable[[Outputs], Outputs],
    arguments: Sequence[Argument],
    dtypes: Sequence[str],
    terms: int,
    rounds: bool = False,
    kinds: Sequence[Kind] = KINDS,
) -> Reference:
    """Runs a program on drawn arguments, and again on arguments that differ by a rounding.

    Args:
        run: Runs it: takes the arguments and gives those that are written.
        arguments: Its arguments.
        dtypes: The types of what it computes with.
        terms: How many values its longest sum adds up.
        rounds: Whether it rounds to integers, or decides by comparing.
        kinds: How to draw the arguments; the second way if the first one verifies nothing, and so on.
    """
    precision = precision_of(dtypes)
    made: list[Reference] = []
    for kind in kinds:
        drawn = draw(arguments, kind)
        expected = [_storable(one) for one in run(drawn)]
        allowed = tolerance(precision, terms)
        loose, stable = [], True
        again = [_storable(one) for one in run([nudged(one, precision) for one in drawn])] if precision else expected
        for one, other in zip(expected, again, strict=True):
            places, limits = _loose(one.ravel(), other.ravel(), allowed)
            loose.append((places, limits))
            stable = stable and len(places) <= (1 - _ENOUGH) * max(1, one.size)
        made.append(Reference(kind, expected, loose, allowed, stable and any(map(_tells, expected)), rounds))
        if made[-1].verifies:
            return made[-1]
    return made[0]


def _loose(
    one: npt.NDArray[Any], other: npt.NDArray[Any], allowed: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The places where a rounding of the arguments changes much, and the difference that is allowed there."""
    if one is other:
        return np.empty(0, np.int64), np.empty(0)
    if not is_float(one.dtype):
        places = np.flatnonzero(one != other)
        return places, np.full(len(places), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        limits = 4 * np.abs(other - one)
        both_odd = (one == other) | (np.isnan(one) & np.isnan(other))
        floor = allowed * (_largest(one) or 1.0)
        places = np.flatnonzero(~(both_odd | (limits <= floor)))
        found = limits[places].astype(np.float64) + floor
    # Where one of the two is no number, nothing can be said.
    return places, np.where(np.isfinite(found), found, np.nan)


def _tells(output: npt.NDArray[Any]) -> bool:
    """Whether an output's values tell anything: they are finite, most of them, and not all the same."""
    if not output.size:
        return False
    finite = output[np.isfinite(output)] if is_float(output.dtype) else output.astype(np.float64)
    differ = output.size == 1 or bool(np.ptp(finite) > 1e-6 * _largest(finite))
    return finite.size >= _ENOUGH * output.size and differ


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest absolute value among the finite ones; 0 if there is none."""
    if not values.size:
        return 0.0
    largest = float(np.abs(values).max())
    return largest if math.isfinite(largest) else float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _storable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values of short floats, some of which NumPy does not know, as float32."""
    is_short = is_float(values.dtype) and values.dtype not in (np.float32, np.float64)
    return values.astype(np.float32) if is_short else values
