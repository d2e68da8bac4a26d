"""Writes files atomically: a kill, a full disk or a power cut leaves the old file or the new file, never a partial one.

It also parses untrusted JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from tvm_gnn_cost.errors import InputError

#: Possible lone surrogates in JSON; Python also decodes them from bytes.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")

#: Suffix of files that are being written, after the process id.
_UNFINISHED = ".unfinished"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, and renames it to ``path`` when the block ends without an error.

    The folder of ``path`` is created if it is missing. After an error the temporary file is removed and ``path`` is
    unchanged. Temporary files of killed processes in the folder are removed.

    Raises:
        OSError: the folder or the file cannot be written; the message names it.

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
    _remove_leftovers(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
    try:
        with _named(path, unfinished):
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
        with _named(path):
            path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file atomically, indented by one space."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def parse_json(text: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: it is invalid, too deeply nested for Python's parser, or has a lone surrogate, which cannot be
            encoded as UTF-8.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text) if isinstance(text, str) else _SURROGATE_BYTES.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("JSON with a lone surrogate") from None
    return value


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends lines, given without line breaks, to a text file.

    A kill or a full disk may leave the last line incomplete, see :func:`drop_broken_last_line`.

    Raises:
        OSError: the file cannot be written; the message names it.
    """
    with _named(path), path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def check_file(path: Path) -> None:
    """Checks that a file can be written to a path, before the work starts.

    Raises:
        InputError: the path is a folder, or one of its parents is a file.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a file")
    check_folder(path.absolute().parent)


def check_folder(path: Path) -> None:
    """Checks that a folder can be created at a path, before the work starts.

    Raises:
        InputError: the path or one of its parents is a file.
    """
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file; expected a folder")


def check_input_file(path: Path) -> None:
    """Checks that a path is an existing file, before the libraries that read it are imported.

    Raises:
        InputError: it does not exist, or is a folder.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a file")
    if not path.exists():
        raise InputError(f"there is no file {path}")


def check_input_folder(path: Path) -> None:
    """Checks that a path is an existing folder, before the libraries that read it are imported.

    Raises:
        InputError: it does not exist, or is a file.
    """
    if not path.is_dir():
        raise InputError(f"{path} is a file; expected a folder" if path.exists() else f"there is no folder {path}")


def drop_broken_last_line(path: Path) -> None:
    """Removes a last line without a line break; does not create a missing file.

    A killed process leaves such a line, and TVM refuses to read the file then.
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


@contextmanager
def _named(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Names ``path`` in an OSError without a file name, such as that of a full disk, or with the temporary file's."""
    try:
        yield
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        if error.errno is None:
            raise OSError(f"{path}: {error}") from error
        raise OSError(error.errno, error.strerror, str(path)) from error


@cache
def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of killed processes; once per process, because folders may hold thousands of files."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        match = re.search(rf"\.(\d{{1,9}}){re.escape(_UNFINISHED)}$", path.name)
        if match is not None and not psutil.pid_exists(int(match[1])):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
