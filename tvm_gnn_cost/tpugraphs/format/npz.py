"""Reads and writes TpuGraphs' npz files.

Configurations may be larger than memory and are read in chunks. The keys, shapes and meanings are those of the data
set's README; its integer types differ from those of the published files, so any type is accepted.
"""

from __future__ import annotations

import hashlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.tpugraphs.format import (
    LAST_DIMENSION,
    LAYOUT_VALUES,
    NO_DIMENSION,
    NODE_FEATURES,
    OPCODE_LIMIT,
    TILE_VALUES,
    Kind,
)

#: The arrays of a file by their names.
Fields = dict[str, npt.NDArray[Any]]

#: Configurations are read in chunks of about this size.
_CHUNK_BYTES = 1 << 22


def write_npz(path: Path, fields: Fields) -> None:
    """Writes a compressed npz file, whole or not at all."""
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **fields)


@dataclass(frozen=True)
class ConfiguredGraph:
    """A graph of n nodes and c configurations; the configurations stay in the file until they are read.

    Attributes:
        path: The file; its stem is the graph's name.
        kind: ``layout`` or ``tile``.
        node_feat: float32[n, 140].
        node_opcode: int64[n].
        edge_index: int64[2, m]; a column (u, v) means that u consumes v's output.
        config_nodes: int64[nc], the nodes that have layouts; empty for tiles.
        configs_shape: [c, nc, 18] for layouts, [c, 24] for tiles.
        runtime: float64[c]: nanoseconds for layouts, a multiple of the default tile's runtime for tiles. None where the
            file keeps it secret, as in the test split: the array is missing or all zero.
    """

    path: Path
    kind: Kind
    node_feat: npt.NDArray[np.float32]
    node_opcode: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int64]
    config_nodes: npt.NDArray[np.int64]
    configs_shape: tuple[int, ...]
    runtime: npt.NDArray[np.float64] | None

    @property
    def name(self) -> str:
        """The graph's name in the competition."""
        return self.path.stem

    def configs(self, chunk_size: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yields all configurations in order: int8[k, nc, 18] layouts or float32[k, 24] tiles.

        Args:
            chunk_size: Configurations in one chunk; by default as many as take 4 MiB in the file.

        Raises:
            InputError: the file is damaged, or a layout holds a value other than -1 to 5.
        """
        field, (count, *shape) = _config_field(self.kind), self.configs_shape
        with _open(self.path) as archive, _array(self.path, archive, field) as array:
            row_bytes = array.dtype.itemsize * math.prod(shape)
            rows = chunk_size or max(1, _CHUNK_BYTES // max(1, row_bytes))
            for start in range(0, count, rows):
                size = min(rows, count - start)
                chunk = np.frombuffer(array.read(size * row_bytes), array.dtype).reshape(size, *shape)
                if self.kind == "tile":
                    if not np.isfinite(chunk).all():
                        raise InputError(f"{self.path}: {field} holds a number that is not finite")
                    yield chunk.astype(np.float32)
                    continue
                with np.errstate(invalid="ignore"):
                    small = chunk.astype(np.int8)
                if not ((small == chunk) & (small >= NO_DIMENSION) & (small <= LAST_DIMENSION)).all():
                    allowed = f"{NO_DIMENSION} to {LAST_DIMENSION}"
                    raise InputError(
                        f"{self.path}: {field} holds a value that is not a dimension of a layout ({allowed})"
                    )
                yield small


def read_graph(path: Path, kind: Kind | None = None) -> ConfiguredGraph:
    """Reads a file, but only the shape of its configurations.

    Args:
        path: The file.
        kind: What its collection holds; by default what the file's fields tell.

    Raises:
        InputError: the file is damaged, has no configuration, or a field is missing or has a wrong shape; the message
            names the file and the field.
        OSError: the file cannot be read.
    """
    with _open(path) as archive:
        fields = _Fields(path, archive)
        feat = fields.floats("node_feat", ("n", NODE_FEATURES)).astype(np.float32)
        opcode = fields.integers("node_opcode", ("n",), limit=OPCODE_LIMIT)
        edges = fields.integers("edge_index", ("m", 2), limit=len(feat))
        kind = kind or ("tile" if "config_feat" in fields else "layout")
        if kind == "layout":
            nodes = fields.integers("node_config_ids", ("nc",), limit=len(feat))
            expected: tuple[str | int, ...] = ("c", "nc", LAYOUT_VALUES)
        else:
            nodes = np.zeros(0, np.int64)
            expected = ("c", TILE_VALUES)
        field = _config_field(kind)
        with _array(path, archive, field) as array:
            fields.check_shape(field, array.shape, expected)
        if not all(array.shape):
            raise InputError(f"{path}: {field} is empty, of the shape {list(array.shape)}: there is nothing to rank")
        if array.is_fortran:
            raise InputError(f"{path}: {field} is stored by columns; save numpy.ascontiguousarray of it")
        return ConfiguredGraph(path, kind, feat, opcode, edges.T, nodes, array.shape, _runtime(fields, kind))


def content_id(path: Path) -> str:
    """A digest of an npz file's arrays, from the checksums that the archive holds.

    Raises:
        InputError: the file is not an archive.
        OSError: the file cannot be read.
    """
    with _open(path) as archive:
        parts = sorted((member.filename, member.file_size, member.CRC) for member in archive.infolist())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _runtime(fields: _Fields, kind: Kind) -> npt.NDArray[np.float64] | None:
    if "config_runtime" not in fields:
        return None
    runtime = fields.floats("config_runtime", ("c",))
    if not runtime.any():
        return None
    if not (runtime > 0).all():
        raise InputError(f"{fields.path}: config_runtime holds a number that is not positive")
    if kind == "layout":
        return runtime
    normalizers = fields.floats("config_runtime_normalizers", ("c",))
    if not (normalizers > 0).all():
        raise InputError(f"{fields.path}: config_runtime_normalizers holds a number that is not positive")
    return runtime / normalizers


def _config_field(kind: Kind) -> str:
    return "node_config_feat" if kind == "layout" else "config_feat"


class _Fields:
    """Reads and checks the arrays of a file; a letter in an expected shape stands for the same size in all arrays."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self.sizes: dict[str, int] = {}

    def __contains__(self, field: str) -> bool:
        return f"{field}.npy" in self.archive.namelist()

    def check_shape(self, field: str, shape: tuple[int, ...], expected: tuple[str | int, ...]) -> None:
        """Refuses an array of another shape than expected."""
        sizes = [axis if isinstance(axis, int) else self.sizes.get(axis) for axis in expected]
        if len(shape) != len(sizes) or any(want not in (None, have) for want, have in zip(sizes, shape, strict=True)):
            names = [
                f"{axis} = {size}" if isinstance(axis, str) and size is not None else str(axis)
                for axis, size in zip(expected, sizes, strict=True)
            ]
            raise InputError(f"{self.path}: {field} has the shape {list(shape)}, not [{', '.join(names)}]")
        self.sizes |= {axis: have for axis, have in zip(expected, shape, strict=True) if isinstance(axis, str)}

    def floats(self, field: str, expected: tuple[str | int, ...]) -> npt.NDArray[np.float64]:
        """An array of finite numbers of any type, as float64."""
        with _array(self.path, self.archive, field) as array:
            raw = array.read(array.size)
        values = np.frombuffer(raw, array.dtype)
        values = values.reshape(array.shape[::-1]).T if array.is_fortran else values.reshape(array.shape)
        if values.size == 0 and len(expected) == 2 and isinstance(expected[1], int):
            values = values.reshape(0, expected[1])  # a graph without edges may have them as an empty list
        self.check_shape(field, values.shape, expected)
        if not np.isfinite(values).all():
            raise InputError(f"{self.path}: {field} holds a number that is not finite")
        return values.astype(np.float64)

    def integers(self, field: str, expected: tuple[str | int, ...], limit: int) -> npt.NDArray[np.int64]:
        """An array of whole numbers of any type, from 0 to ``limit`` - 1, as int64."""
        array = self.floats(field, expected)
        if ((array != np.floor(array)) | (array < 0) | (array >= limit)).any():
            raise InputError(f"{self.path}: {field} holds values other than whole numbers from 0 to {limit - 1}")
        return array.astype(np.int64)


class _Array:
    """One array of an archive, open after its header."""

    def __init__(self, path: Path, field: str, stream: IO[bytes]) -> None:
        self.path, self.field, self._stream = path, field, stream
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(stream)
        else:
            raise InputError(f"version {version} of the npy format")
        self.shape: tuple[int, ...]
        self.dtype: np.dtype[Any]
        self.shape, self.is_fortran, self.dtype = header
        if self.dtype.kind not in "fiu":
            raise InputError(f"it holds {self.dtype}, not numbers")
        self.size = self.dtype.itemsize * math.prod(self.shape)

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        with _damage(self.path, self.field):
            raw = self._stream.read(size)
            if len(raw) != size:
                raise InputError("it ends early")
        return raw


#: What the libraries raise for a damaged archive.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError),
    *(SyntaxError, tokenize.TokenError),  # NumPy evaluates the header as a Python literal
)


@contextmanager
def _damage(path: Path, field: str) -> Iterator[None]:
    """Turns the errors of a damaged archive into one that names the file and the field."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # The file cannot be opened. Without a name it is a seek to where a damaged directory points.
        raise InputError(f"{path}: {field} cannot be read ({error})") from error


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    with _damage(path, "the archive"):
        archive = zipfile.ZipFile(path)
    with archive:
        yield archive


@contextmanager
def _array(path: Path, archive: zipfile.ZipFile, field: str) -> Iterator[_Array]:
    name = f"{field}.npy"
    if name not in archive.namelist():
        raise InputError(f"{path}: the field {field} is missing")
    with _damage(path, field):
        stream = archive.open(name)
    with stream:
        with _damage(path, field):
            array = _Array(path, field, stream)
            # Checked before memory is allocated for it.
            if archive.getinfo(name).file_size - stream.tell() != array.size:
                raise InputError(f"its size is not that of the shape {list(array.shape)}")
        yield array
