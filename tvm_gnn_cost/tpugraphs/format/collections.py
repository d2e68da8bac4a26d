"""Finds the files of the five collections below a folder, as published."""

from __future__ import annotations

from pathlib import Path

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import Kind

#: The names that the competition gives the collections.
COLLECTIONS = ("layout:xla:random", "layout:xla:default", "layout:nlp:random", "layout:nlp:default", "tile:xla")
SPLITS = ("train", "valid", "test")

#: The competition's archive puts ``npz_all`` above what the repository's own download calls ``npz``.
_ABOVE = ("npz_all/npz", "npz", ".")


def collection_kind(collection: str) -> Kind:
    """What a collection's configurations are.

    Raises:
        InputError: there is no such collection.

    >>> collection_kind("layout:xla:random")
    'layout'
    """
    if collection not in COLLECTIONS:
        raise InputError(f"unknown collection '{collection}'; one of: {', '.join(COLLECTIONS)}")
    return "tile" if collection.startswith("tile") else "layout"


def check_split(split: str) -> None:
    """Refuses a name that is not a split.

    Raises:
        InputError: there is no such split.
    """
    if split not in SPLITS:
        raise InputError(f"unknown split '{split}'; one of: {', '.join(SPLITS)}")


def collection_folder(root: Path, collection: str) -> Path:
    """The folder that holds a collection's splits.

    Args:
        root: The folder that holds ``npz_all`` or ``npz``, or one of these two.
        collection: One of :data:`COLLECTIONS`.

    Raises:
        InputError: there is no such collection.
        FileNotFoundError: the root does not hold the collection.
    """
    collection_kind(collection)
    below = Path(*collection.split(":"))
    for above in _ABOVE:
        if (root / above / below).is_dir():
            return (root / above / below).resolve()
    raise FileNotFoundError(
        f"{root} does not hold {collection}: there is no folder {below} in it, nor in its npz or npz_all/npz"
    )


def collections_in(root: Path) -> tuple[str, ...]:
    """The collections that a root holds."""
    names = []
    for collection in COLLECTIONS:
        try:
            collection_folder(root, collection)
        except FileNotFoundError:
            continue
        names.append(collection)
    return tuple(names)


def graph_files(root: Path, collection: str, split: str) -> tuple[Path, ...]:
    """The files of one split, sorted by name; empty where the split is missing or empty.

    Raises:
        InputError: there is no such collection or split.
        FileNotFoundError: the root does not hold the collection.
    """
    check_split(split)
    return tuple(sorted((collection_folder(root, collection) / split).glob("*.npz")))
