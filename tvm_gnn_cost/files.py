"""Writes files atomically: a kill, a full disk or a power cut leaves the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, and renames it to ``path`` when the block ends without an error.

    The folder of ``path`` is created if it is missing. After an error the temporary file is removed and ``path`` is
    unchanged.

    Raises:
        OSError: the folder or the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "result.txt"
    ...     with replacing(path) as unfinished:
    ...         _ = unfinished.write_text("done")
    ...     path.read_text()
    'done'
    """
    path = path.resolve()  # the target of a symbolic link is replaced, and the link stays
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        _sync(unfinished)
        unfinished.replace(path)
        # The rename is in the folder: without this a power cut can undo it.
        _sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically, as UTF-8; a pipe or a device, such as ``/dev/stdout``, is written to directly."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file atomically, indented by one space."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def drop_broken_last_line(path: Path) -> None:
    """Removes a last line that has no line break; a missing file stays missing.

    A killed process leaves such a line, and TVM refuses to read a file that has one.
    """
    if path.exists():
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):
            os.truncate(path, text.rfind(b"\n") + 1)


def keep_first_lines(path: Path, count: int) -> None:
    """Truncates a file to its first ``count`` lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) > count:
        os.truncate(path, sum(map(len, lines[:count])))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
