"""The competition's CSV file of ranked configurations."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.tpugraphs.format import COUNTED_TILES

_HEADER = ("ID", "TopConfigs")


def row(collection: str, name: str, scores: npt.NDArray[np.float64]) -> tuple[str, str]:
    """The row of one graph: its ID, and its configurations from the best to the worst; of tiles only the best five.

    Equal scores stay in their order.

    >>> row("tile:xla", "fusion.7", np.array([0.1, 0.9, 0.5]))
    ('tile:xla:fusion.7', '1;2;0')
    """
    order = np.argsort(-scores, kind="stable")
    kept = order[:COUNTED_TILES] if collection.startswith("tile") else order
    return f"{collection}:{name}", ";".join(map(str, kept.tolist()))


def write_submission(path: Path, rows: Iterable[tuple[str, str]]) -> int:
    """Writes the file, whole or not at all, and returns its number of rows.

    Raises:
        InputError: an ID occurs twice.
    """
    seen: set[str] = set()
    with replacing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEADER)
        for identifier, ranked in rows:
            if identifier in seen:
                raise InputError(f"{identifier} occurs twice; a graph can be ranked once")
            seen.add(identifier)
            writer.writerow((identifier, ranked))
    return len(seen)
