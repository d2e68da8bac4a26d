"""What the readers of measure records share, whatever TVM wrote them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Problem:
    """Something in a file that was left out, and why."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class Progress(Protocol):
    """Told of every chunk of records; the command line draws it."""

    def extracted(self, done: int, total: int) -> None:
        """So many of the records are in the store now."""


@dataclass(frozen=True)
class Extraction:
    """What an extraction did: programs added, programs that were there already, records left out."""

    added: int
    known: int
    problems: tuple[Problem, ...]


def summarise_repeats(run_secs: Sequence[float]) -> tuple[float, float]:
    """Median in seconds (infinite for no repeat) and coefficient of variation (NaN for fewer than two)."""
    if not run_secs:
        return math.inf, math.nan
    noise = float(np.std(run_secs, ddof=1) / np.mean(run_secs)) if len(run_secs) > 1 else math.nan
    return float(np.median(run_secs)), noise


def latency_and_noise(
    programs: Sequence[Sequence[float]],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """:func:`summarise_repeats` of each program: float64[P] and float32[P]."""
    found = [summarise_repeats(run_secs) for run_secs in programs]
    return np.array([latency for latency, _ in found]), np.array([noise for _, noise in found], np.float32)


def last_line(error: Exception) -> str:
    """What an error of TVM's says below its traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


class CollectProgress(Protocol):
    """Told of every step; the command line draws it."""

    def found(self, workload: str, new_tasks: int) -> None:
        """The tasks of a workload are known."""

    def measured(self, valid: int, failed: int) -> None:
        """Programs were measured."""

    def finished(self, task: str) -> None:
        """A task has all of its programs, now or from an earlier run."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


def drop_broken_last_line(path: Path) -> None:
    """A process that was killed while it wrote leaves half a line, and TVM refuses such a file."""
    if path.exists():
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):
            path.write_bytes(text[: text.rfind(b"\n") + 1])
