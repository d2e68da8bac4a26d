"""Options that several commands share, and options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.errors import InputError

RootArgument = Annotated[Path, typer.Argument(help="The folder that contains npz or npz_all, as published.")]
ModelsOption = Annotated[
    list[str],
    typer.Option(
        "--model", help="COLLECTION=PATH, the file of a model or the folder that train wrote; may be repeated."
    ),
]
PermutationsOption = Annotated[
    int,
    typer.Option(min=1, max=100_000, help="Number of random groupings of the configurations to average over."),
]


def pairs(texts: Iterable[str]) -> dict[str, str | None]:
    """The values of NAME=VALUE texts by name; None where a text has no =.

    >>> pairs(["channels=64", "edges"])
    {'channels': '64', 'edges': None}
    """
    parts = (text.partition("=") for text in texts)
    return {name: value if is_given else None for name, is_given, value in parts}


def model_paths(texts: Iterable[str]) -> dict[str, Path]:
    """The paths of ``--model COLLECTION=PATH`` options by collection.

    Raises:
        InputError: a text has no =, or a collection occurs twice.
    """
    paths: dict[str, Path] = {}
    for text in texts:
        collection, is_given, path = text.partition("=")
        if not is_given or collection in paths:
            raise InputError(f"--model {text}: expected COLLECTION=PATH, each collection once")
        paths[collection] = Path(path)
    return paths
