"""Cards: JSON files that describe the machine, date and settings of the measurements beside them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json


def read_card(path: Path, fields: Mapping[str, type]) -> dict[str, Any] | None:
    """Reads a card; returns None if the file is missing.

    Args:
        path: The file.
        fields: Name -> type of the required fields.

    Raises:
        InputError: the file is not a JSON object, or a field is missing or has another type.
    """
    if not path.exists():
        return None
    try:
        card = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not a card of measurements: not JSON ({error}); choose another folder") from error
    if not isinstance(card, dict):
        raise InputError(f"{path} is not a card of measurements: not a JSON object; choose another folder")
    for name, kind in fields.items():
        if not isinstance(card.get(name), kind):
            raise InputError(
                f"{path} is not a card of measurements: its field '{name}' is missing or wrong; choose another folder"
            )
    return card


def check_same(path: Path, what: str, measured: object, here: object) -> None:
    """Rejects adding measurements to a folder that was measured under other conditions.

    Args:
        path: The card of the folder.
        what: Name of the condition, such as ``the processor``.
        measured: Its value in the card.
        here: Its current value.

    Raises:
        InputError: the two differ.
    """
    if measured != here:
        raise InputError(
            f"{path}: measured with {what} {measured}, but now it is {here}; such measurements are not comparable, "
            "choose another folder"
        )


def with_run(runs: Sequence[Mapping[str, Any]], settings: Any) -> list[Mapping[str, Any]]:
    """The runs of a card with a run of today with these settings added, unless it is there already.

    Args:
        runs: The runs so far.
        settings: A dataclass of JSON values.
    """
    # In the form in which it is read from the card.
    run = json.loads(json.dumps({"date": today(), **asdict(settings)}))
    return [*runs, *([] if run in runs else [run])]


def today() -> str:
    """Today's date in UTC, in ISO format."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
