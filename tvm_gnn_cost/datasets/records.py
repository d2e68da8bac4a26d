"""Reads files of measure records: JSON Lines, plain, gzip or xz."""

from __future__ import annotations

import gzip
import lzma
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, replacing


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

    Other load on the machine only slows a program down, so the fastest repeat is the most reproducible
    (``benchmarks/retest.py``). Without repeats, it is infinite; the coefficient of fewer than two repeats is NaN.

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
    results = [summarise_repeats(run_secs) for run_secs in programs]
    return np.array([latency for latency, _ in results]), np.array([noise for _, noise in results], np.float32)


def last_line(error: Exception) -> str:
    r"""Last line of an error's message; TVM's errors contain a C++ traceback before it.

    >>> last_line(RuntimeError("Traceback: ...\n  File tir.cc\nInternalError: no such loop"))
    'InternalError: no such loop'
    """
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


class Failure(StrEnum):
    """Kind of a failed measurement, as written in graph stores and measure records.

    >>> Failure("build-timeout") is Failure.BUILD_TIMEOUT
    True
    """

    INSTANTIATION_ERROR = "instantiation-error"
    BUILD_ERROR = "build-error"
    BUILD_TIMEOUT = "build-timeout"
    RUN_ERROR = "run-error"
    RUN_TIMEOUT = "run-timeout"
    WRONG_ANSWER = "wrong-answer"
    UNKNOWN = "unknown"


WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def is_database(folder: Path) -> bool:
    """Whether a folder holds a MetaSchedule database, plain or compressed."""
    return find_file(folder, WORKLOADS) is not None


#: Exceptions that damaged compressed files raise.
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


def find_file(folder: Path, name: str) -> Path | None:
    """The file ``name`` in a folder, else ``name.gz`` or ``name.xz``; None if none exists."""
    return next((path for suffix in ("", ".gz", ".xz") if (path := folder / f"{name}{suffix}").is_file()), None)


def open_file(path: Path) -> IO[bytes]:
    """Opens a file to read it, decompressed if its name ends in ``.gz`` or ``.xz``."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def unpack(folder: Path, names: Sequence[str]) -> None:
    """Decompresses the files of a folder in place, so that lines can be appended.

    A file that also exists uncompressed is kept: the latter may have more lines.

    Args:
        folder: The folder.
        names: Patterns of the files' names without ``.gz`` or ``.xz``, relative to the folder.

    Raises:
        InputError: a file is damaged; it is not changed.
    """
    for path in [path for name in names for suffix in (".gz", ".xz") for path in sorted(folder.glob(name + suffix))]:
        if path.with_suffix("").exists():
            continue
        try:
            with open_file(path) as packed:
                content = packed.read()
        except DAMAGED as error:
            raise InputError(f"{path} is cut off or damaged ({error}); get it again") from error
        with replacing(path.with_suffix("")) as unfinished:
            unfinished.write_bytes(content)
        path.unlink()


def parsed_lines(file: Path, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Yields the number of each line, from 1, and its JSON value.

    The value of a broken line is None, and its :class:`~tvm_gnn_cost.datasets.records.Problem` is appended to
    ``problems``. A damaged compressed file is read up to the damage, with a problem at line 0.
    """
    with open_file(file) as lines:
        try:
            for number, text in enumerate(lines, 1):
                try:
                    entry = parse_json(text)
                    reason = "is null"
                except ValueError as error:
                    entry, reason = None, f"not JSON ({error})"
                if entry is None:
                    problems.append(Problem(file, number, reason))
                yield number, entry
        except DAMAGED as error:
            problems.append(Problem(file, 0, f"the compressed file is cut off or damaged ({error})"))


def parsed_objects(file: Path | None, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line number and the value of each JSON object; other lines are appended to ``problems``.

    Args:
        file: The file; None yields nothing.
        problems: Receives a problem for each line that is skipped.
    """
    for line, entry in parsed_lines(file, problems) if file else ():
        if isinstance(entry, dict):
            yield line, entry
        elif entry is not None and file:
            problems.append(Problem(file, line, "expected a JSON object"))
