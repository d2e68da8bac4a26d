"""Helpers that the readers of all measure records share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Problem:
    """A line of a file that was skipped, and the reason.

    >>> str(Problem(Path("log.json"), 3, "not JSON"))
    'log.json:3: not JSON'
    """

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def summarise_repeats(run_secs: Sequence[float]) -> tuple[float, float]:
    """The fastest of a program's repeats, and their coefficient of variation.

    What else runs on a machine only slows a program down, so the fastest repeat is the one that a second measurement
    gives again (``benchmarks/retest.py``). That of no repeat is infinite, the coefficient of fewer than two is NaN.

    >>> summarise_repeats([3.0, 1.0, 2.0])
    (1.0, 0.5)
    """
    if not run_secs:
        return math.inf, math.nan
    noise = float(np.std(run_secs, ddof=1) / np.mean(run_secs)) if len(run_secs) > 1 else math.nan
    return min(run_secs), noise


def latency_and_noise(
    programs: Sequence[Sequence[float]],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Applies :func:`summarise_repeats` to P programs: latency float64[P] in seconds and noise float32[P]."""
    found = [summarise_repeats(run_secs) for run_secs in programs]
    return np.array([latency for latency, _ in found]), np.array([noise for _, noise in found], np.float32)


def last_line(error: Exception) -> str:
    r"""Last line of an error's message: TVM's errors have the sentence below a traceback of their own.

    >>> last_line(RuntimeError("Traceback: ...\n  File tir.cc\nInternalError: no such loop"))
    'InternalError: no such loop'
    """
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
