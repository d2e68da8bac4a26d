"""Reads JSON Lines files, plain or gzip; broken lines are reported and skipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.records import Problem


def find_file(folder: Path, name: str) -> Path | None:
    """The file ``name`` in a folder, else ``name.gz``; None if there is neither."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def parsed_lines(file: Path, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Yields the number of each line, from 1, and its JSON value.

    The value of a broken line is None, and its :class:`~tvm_gnn_cost.datasets.records.Problem` is appended to
    ``problems``. A damaged gzip file ends at the damage, with a problem at line 0.
    """
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
        try:
            for number, text in enumerate(lines, 1):
                try:
                    entry = json.loads(text)
                    reason = "holds nothing (null)"
                except (ValueError, RecursionError) as error:
                    entry, reason = None, f"not JSON ({error})"
                if entry is None:
                    problems.append(Problem(file, number, reason))
                yield number, entry
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
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
