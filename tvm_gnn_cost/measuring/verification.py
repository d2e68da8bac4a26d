"""Compares the outputs of a program with a reference, up to the rounding errors of its dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.arguments import KINDS, Argument, Kind, draw, is_float, nudged

#: Dtype -> relative size of a rounding error.
_PRECISION = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}

#: Relative size of a rounding error of other floating point types.
_COARSE = 0.1

#: Minimum and maximum tolerance relative to the largest value, in rounding errors.
_LEAST, _MOST = 10.0, 300.0

#: Minimum share of finite values, and of stable values, for an output to verify anything.
_ENOUGH = 0.5

#: For programs that round to integers: the share of integers that may differ by 1, and of values derived from them that
#: may differ by ``_STEP`` of the largest value.
_ROUNDED, _STEP = 1e-3, 0.05

Outputs = list[npt.NDArray[Any]]


def precision_of(dtypes: Sequence[str]) -> float:
    """Relative size of a rounding error of the least precise dtype; 0 without floats."""
    return max(
        (_PRECISION.get(dtype, _COARSE) for dtype in dtypes if dtype.startswith(("float", "bfloat"))), default=0.0
    )


def tolerance(precision: float, terms: int) -> float:
    """The tolerated difference of two programs' outputs, relative to the largest value.

    Args:
        precision: See :func:`precision_of`.
        terms: Number of terms of the longest sum.

    >>> f"{tolerance(1e-6, 1):.2g} {tolerance(1e-6, 4608):.2g} {tolerance(1e-6, 10**9):.2g}"
    '1.1e-05 7.8e-05 0.0003'
    """
    return precision * min(_LEAST + math.sqrt(terms), _MOST)


@dataclass(frozen=True)
class Reference:
    """The expected outputs of a program for random arguments.

    Attributes:
        kind: How the arguments were drawn.
        expected: The outputs, in the order of the output arguments.
        loose: For each output, the flat indices of values that are sensitive to rounding the arguments, and their
            absolute tolerances; NaN for any value.
        tolerance: The tolerance of other values, relative to the largest value.
        verifies: Whether the outputs vary enough to detect a wrong program.
        rounds: Whether the program rounds to integers or branches on comparisons.
    """

    kind: Kind
    expected: Outputs
    loose: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
    tolerance: float
    verifies: bool
    rounds: bool = False

    def save(self, path: Path) -> None:
        """Writes it to an npz file."""
        # NumPy cannot load dtypes that it lacks.
        arrays = {f"expected_{i}": _storable(output) for i, output in enumerate(self.expected)}
        arrays |= {f"places_{i}": places for i, (places, _) in enumerate(self.loose)}
        arrays |= {f"limits_{i}": limits for i, (_, limits) in enumerate(self.loose)}
        about = {"kind": self.kind, "tolerance": self.tolerance, "verifies": self.verifies, "rounds": self.rounds}
        np.savez(path, **{name: np.array(value) for name, value in about.items()}, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Reference:
        """Reads the file of :meth:`save`."""
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
        """What is wrong with outputs, as a predicate; empty if they are correct."""
        if len(outputs) != len(self.expected):
            return f"has {len(outputs)} outputs, not {len(self.expected)}"
        for number, (output, expected, loose) in enumerate(zip(outputs, self.expected, self.loose, strict=True)):
            said = self._compare(_storable(output), _storable(expected), *loose)
            if said:
                return f"computes a wrong output {number}: {said}"
        return ""

    def _compare(
        self,
        output: npt.NDArray[Any],
        expected: npt.NDArray[Any],
        places: npt.NDArray[np.int64],
        limits: npt.NDArray[np.float64],
    ) -> str:
        if output.shape != expected.shape or output.dtype != expected.dtype:
            return f"{output.dtype}{list(output.shape)} instead of {expected.dtype}{list(expected.shape)}"
        output, expected = output.ravel(), expected.ravel()
        if not is_float(expected.dtype):
            wrong = output != expected
            wrong[places] = False
            count = int(wrong.sum())
            if self.tolerance and count <= _ROUNDED * wrong.size:
                wrong &= np.abs(output.astype(np.float64) - expected.astype(np.float64)) > 1
            return f"{int(wrong.sum())} of {wrong.size} values" if wrong.any() else ""
        largest = _largest(expected)
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(output - expected)
        # Infinities of the same sign are equal, and so are NaNs.
        odd = ~np.isfinite(differences)
        if odd.any():
            same = (output == expected) | (np.isnan(output) & np.isnan(expected))
            differences[odd] = np.where(same[odd], 0, np.inf)
        wrong = differences > self.tolerance * (largest or 1.0)
        if not wrong.any():
            return ""
        wrong[places] = differences[places] > limits
        few = self.rounds and int(wrong.sum()) <= _ROUNDED * wrong.size
        if not wrong.any() or (few and float(differences[wrong].max()) <= _STEP * largest):
            return ""
        off = float(differences[wrong].max()) / (largest or 1.0)
        by = f"by {100 * off:.2g}% of the largest" if math.isfinite(off) else "NaN or infinity at other positions"
        return f"{int(wrong.sum())} of {wrong.size} values, {by}"


def make_reference(
    run: Callable[[Outputs], Outputs],
    arguments: Sequence[Argument],
    dtypes: Sequence[str],
    terms: int,
    rounds: bool = False,
    kinds: Sequence[Kind] = KINDS,
) -> Reference:
    """Runs a program on random arguments, and again on arguments perturbed by a rounding error.

    Args:
        run: Runs the program: maps all arguments to the output arguments.
        arguments: The program's arguments.
        dtypes: The dtypes that it computes with.
        terms: Number of terms of its longest sum.
        rounds: Whether it rounds to integers or branches on comparisons.
        kinds: How to draw the arguments; a later kind is used if the outputs of the earlier kinds verify nothing.
    """
    precision = precision_of(dtypes)
    made: list[Reference] = []
    for kind in kinds:
        drawn = draw(arguments, kind)
        expected = [_storable(output) for output in run(drawn)]
        allowed = tolerance(precision, terms)
        loose, stable = [], True
        again = (
            [_storable(output) for output in run([nudged(output, precision) for output in drawn])]
            if precision
            else expected
        )
        for output, nudged_output in zip(expected, again, strict=True):
            places, limits = _loose(output.ravel(), nudged_output.ravel(), allowed)
            loose.append((places, limits))
            stable = stable and len(places) <= (1 - _ENOUGH) * max(1, output.size)
        made.append(Reference(kind, expected, loose, allowed, stable and any(map(_tells, expected)), rounds))
        if made[-1].verifies:
            return made[-1]
    return made[0]


def _loose(
    output: npt.NDArray[Any], nudged_output: npt.NDArray[Any], allowed: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The flat indices of values that are sensitive to rounding the arguments, and their absolute tolerances."""
    if output is nudged_output:
        return np.empty(0, np.int64), np.empty(0)
    if not is_float(output.dtype):
        places = np.flatnonzero(output != nudged_output)
        return places, np.full(len(places), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        limits = 4 * np.abs(nudged_output - output)
        both_odd = (output == nudged_output) | (np.isnan(output) & np.isnan(nudged_output))
        floor = allowed * (_largest(output) or 1.0)
        places = np.flatnonzero(~(both_odd | (limits <= floor)))
        allowed_there = limits[places].astype(np.float64) + floor
    # NaN: no tolerance is known where an output is not finite.
    return places, np.where(np.isfinite(allowed_there), allowed_there, np.nan)


def _tells(output: npt.NDArray[Any]) -> bool:
    """Whether most values of an output are finite, and not all the same."""
    if not output.size:
        return False
    finite = output[np.isfinite(output)] if is_float(output.dtype) else output.astype(np.float64)
    differ = output.size == 1 or bool(np.ptp(finite) > 1e-6 * _largest(finite))
    return finite.size >= _ENOUGH * output.size and differ


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest absolute finite value; 0 if no value is finite."""
    if not values.size:
        return 0.0
    largest = float(np.abs(values).max())
    return largest if math.isfinite(largest) else float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _storable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Short floats, some of which NumPy lacks, as float32."""
    is_short = is_float(values.dtype) and values.dtype not in (np.float32, np.float64)
    return values.astype(np.float32) if is_short else values
