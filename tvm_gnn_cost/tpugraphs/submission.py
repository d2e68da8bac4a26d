"""The competition's table of ranked configurations."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

_HEADER = ("ID", "TopConfigs")
#: Of a tile graph the best ones alone are named, of a layout graph all.
_TILES = 5


def row(collection: str, name: str, scores: npt.NDArray[np.float64]) -> tuple[str, str]:
    """The line of one graph: its ID and its configurations, the best first; equal scores stay in their order."""
    order = np.argsort(-scores, kind="stable")
    kept = order[:_TILES] if collection.startswith("tile") else order
    return f"{collection}:{name}", ";".join(map(str, kept.tolist()))


def write_submission(path: Path, rows: Iterable[tuple[str, str]]) -> int:
    """Writes the table and returns its number of rows.

    Raises:
        ValueError: an ID occurs twice; nothing is written.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    path.parent.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    try:
        with unfinished.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_HEADER)
            for identifier, ranked in rows:
                if identifier in seen:
                    raise ValueError(f"{identifier} occurs twice; a graph can be ranked once")
                seen.add(identifier)
                writer.writerow((identifier, ranked))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return len(seen)
