"""Reads JSON Lines files, plain, gzip or xz; broken lines are reported and skipped."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, replacing

#: What a damaged compressed file raises.
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


def find_file(folder: Path, name: str) -> Path | None:
    """The file ``name`` in a folder, else ``name.gz`` or ``name.xz``; None if there is none of them."""
    return next((path for suffix in ("", ".gz", ".xz") if (path := folder / f"{name}{suffix}").is_file()), None)


def open_file(path: Path) -> IO[bytes]:
    """Opens a file to read it, decompressed if its name ends in ``.gz`` or ``.xz``."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def unpack(folder: Path, names: Sequence[str]) -> None:
    """Replaces each compressed file of a folder by its content, so that lines can be added to it.

    One that is there uncompressed too stays: the other may have more lines by now.

    Args:
        folder: The folder.
        names: Patterns of the files' names without ``.gz`` or ``.xz``, relative to the folder.

    Raises:
        InputError: a file is damaged; it stays as it is.
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
    ``problems``. A damaged compressed file ends at the damage, with a problem at line 0.
    """
    with open_file(file) as lines:
        try:
            for number, text in enumerate(lines, 1):
                try:
                    entry = parse_json(text)
                    reason = "holds nothing (null)"
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
