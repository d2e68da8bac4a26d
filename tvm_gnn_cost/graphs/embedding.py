"""FastText vectors of node types, trained on random walks over syntax trees.

FastText (Bojanowski et al. 2017, arXiv:1607.04606) computes a word's vector from its character n-grams, so unseen
node types have vectors too. The package ``fasttext`` trains; this module reads vectors without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.extras import missing_packages_named
from tvm_gnn_cost.files import replacing, write_text
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.graphs.ragged import offsets_of

#: FastText's end-of-line word, which has no n-grams.
_END = "</s>"


@dataclass(frozen=True)
class NodeTypeVectors:
    """A trained FastText model.

    Attributes:
        words: The node types that were trained on, in FastText's order (most frequent first).
        rows: float32[len(words) + buckets, dim]: one row for each word, then one for each bucket of n-grams.
        min_chars: Length of the shortest n-grams.
        max_chars: Length of the longest n-grams.
        buckets: Number of rows into which n-grams are hashed.
    """

    words: tuple[str, ...]
    rows: npt.NDArray[np.float32]
    min_chars: int
    max_chars: int
    buckets: int

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.rows.shape[1])

    def vector(self, name: str) -> npt.NDArray[np.float32]:
        """The mean of the rows of a name and its n-grams: float32[dim]; zeros without rows."""
        rows = subword_rows(name, len(self.words), self.min_chars, self.max_chars, self.buckets)
        if name in self._numbers:
            rows = [self._numbers[name], *rows]
        if not rows:
            return np.zeros(self.dim, np.float32)
        mean: npt.NDArray[np.float32] = self.rows[rows].mean(axis=0)
        return mean

    def matrix(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """The vectors of several names: float32[len(names), dim]."""
        return np.stack([self.vector(name) for name in names]) if names else np.zeros((0, self.dim), np.float32)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, Any]]:
        """Arrays and JSON from which :meth:`from_arrays` restores the vectors."""
        meta = {"words": list(self.words), "min_chars": self.min_chars, "max_chars": self.max_chars}
        return {"node_type_rows": self.rows}, meta

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[np.float32]], meta: Mapping[str, Any]) -> NodeTypeVectors:
        """The inverse of :meth:`to_arrays`.

        Raises:
            InputError: a field is missing or has a wrong type, or the array's shape does not fit the words.
        """
        missing = [name for name in ("words", "min_chars", "max_chars") if name not in meta]
        missing += [] if "node_type_rows" in arrays else ["node_type_rows"]
        if missing:
            raise InputError(f"the node type vectors lack '{missing[0]}'; train or save them again")
        words, sizes = meta["words"], (meta["min_chars"], meta["max_chars"])
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise InputError("the node type vectors' 'words' are not a list of strings; train or save them again")
        if not all(isinstance(size, int) for size in sizes):
            raise InputError("the node type vectors' 'min_chars' and 'max_chars' are not integers; train them again")
        rows = np.asarray(arrays["node_type_rows"], np.float32)
        if rows.ndim != 2 or len(rows) <= len(words):
            raise InputError(f"node_type_rows has the shape {rows.shape}, too small for {len(words)} words")
        return NodeTypeVectors(tuple(words), rows, *sizes, len(rows) - len(words))


def subword_rows(name: str, words: int, min_chars: int, max_chars: int, buckets: int) -> list[int]:
    """Rows of the n-grams of ``<name>``, as in ``Dictionary::computeSubwords`` of FastText 0.9.3 (dictionary.cc).

    N-grams are counted in UTF-8 characters and hashed byte by byte. ``words`` is the row of the first bucket.

    >>> subword_rows("For", 10, 3, 5, 2000)  # of <Fo, <For, <For>, For, For> and or>
    [1042, 1432, 234, 746, 836, 1400]
    """
    if name == _END or buckets == 0:
        return []
    characters = [character.encode() for character in f"<{name}>"]
    rows = []
    for first in range(len(characters)):
        for length in range(max(1, min_chars), max_chars + 1):
            last = first + length
            if last > len(characters):
                break
            # The markers < and > are no n-grams by themselves.
            if length == 1 and (first == 0 or last == len(characters)):
                continue
            rows.append(words + _fnv1a(b"".join(characters[first:last])) % buckets)
    return rows


def _fnv1a(text: bytes) -> int:
    """32-bit FNV-1a with FastText's deviation: each byte is sign-extended to 32 bits before the XOR."""
    value = 2166136261
    for byte in text:
        value ^= byte if byte < 128 else byte | 0xFFFFFF00
        value = value * 16777619 & 0xFFFFFFFF
    return value


def train_vectors(
    graphs: ProgramGraphs,
    *,
    dim: int = 16,
    seed: int = 0,
    walks: int = 40_000,
    walk_length: int = 12,
    window: int = 3,
    epochs: int = 5,
    min_chars: int = 3,
    max_chars: int = 5,
    buckets: int = 2000,
) -> NodeTypeVectors:
    """Trains FastText's skip-gram on random walks over the syntax trees.

    Args:
        graphs: The graphs.
        dim: Length of a vector.
        seed: Seeds the walks; FastText 0.9.3 always starts from the same weights, so a seed fixes the vectors.
        walks: Number of walks.
        walk_length: Number of nodes of a walk.
        window: Maximum distance in a walk between a node and the neighbours that it predicts.
        epochs: Passes over all walks.
        min_chars: Length of the shortest character n-grams.
        max_chars: Length of the longest character n-grams.
        buckets: Number of rows into which n-grams are hashed.

    Raises:
        InputError: no graph has a node, or a node type's name is empty or contains a space.
        WorkError: FastText failed.
    """
    spaced = [name for name in graphs.type_names if not name or name.split() != [name]]
    if spaced:
        raise InputError(
            f"node type name {spaced[0]!r} is empty or has a space in it, and FastText would take it apart"
        )
    sentences = random_walks(graphs, walks, walk_length, seed)
    names = np.array(graphs.type_names, dtype=object)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "walks.txt"
        write_text(corpus, "".join(" ".join(line) + "\n" for line in names[sentences].tolist()))
        words, rows = _skip_gram(
            corpus,
            {
                "dim": dim,
                "ws": window,
                "epoch": epochs,
                "minn": min_chars,
                "maxn": max_chars,
                "bucket": buckets,
                "minCount": 1,
                # The default is meant for natural language; with a vocabulary this small, it would drop nearly every
                # word.
                "t": 0.05,
                # With several threads, training is not deterministic.
                "thread": 1,
                "verbose": 0,
            },
        )
    return NodeTypeVectors(words, rows, min_chars, max_chars, buckets)


def _skip_gram(corpus: Path, settings: Mapping[str, Any]) -> tuple[tuple[str, ...], npt.NDArray[np.float32]]:
    """Runs ``fasttext.train_unsupervised`` and returns its words and input matrix.

    With one thread FastText 0.9.3 initialises only the first tenth of that matrix and leaves the rest
    uninitialized, possibly NaN (``DenseMatrix::uniform``: ten blocks, one for each thread). So it runs in a separate
    process in which glibc fills allocations with zeros (``MALLOC_PERTURB_`` is the complement of the byte).

    Raises:
        WorkError: FastText failed.
    """
    with missing_packages_named():
        import fasttext

    model = corpus.with_suffix(".bin")
    script = (
        "import sys, json, fasttext\n"
        "fasttext.train_unsupervised(sys.argv[1], **json.loads(sys.argv[2])).save_model(sys.argv[3])"
    )
    command = [sys.executable, "-c", script, str(corpus), json.dumps(dict(settings)), str(model)]
    done = subprocess.run(command, env={**os.environ, "MALLOC_PERTURB_": "255"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise WorkError(f"FastText failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    trained = fasttext.load_model(str(model))
    return tuple(trained.words), np.array(trained.get_input_matrix(), np.float32)


def random_walks(graphs: ProgramGraphs, walks: int, length: int, seed: int) -> npt.NDArray[np.int32]:
    """Node types along random walks over the CHILD edges, in either direction: int32[walks, length].

    A walk starts at a node type with a probability proportional to the square root of its frequency, so that rare
    types occur often enough.

    Raises:
        InputError: no graph has a node.
    """
    nodes = len(graphs.node_type)
    if nodes == 0:
        raise InputError("every graph is empty, so there are no node types to train on")
    offsets, neighbours = _neighbours(graphs)
    rng = np.random.default_rng(seed)
    frequency = np.bincount(graphs.node_type, minlength=len(graphs.type_names)).astype(np.float64)
    share = np.sqrt(frequency)
    by_type = np.argsort(graphs.node_type, kind="stable")
    first = offsets_of(frequency.astype(np.int64))
    start_type = rng.choice(len(share), walks, p=share / share.sum())
    here = by_type[first[start_type] + (rng.random(walks) * frequency[start_type]).astype(np.int64)]
    out = np.empty((walks, length), np.int32)
    degree = np.diff(offsets)
    for step in range(length):
        out[:, step] = graphs.node_type[here]
        pick = offsets[here] + (rng.random(walks) * degree[here]).astype(np.int64)
        # A tree of one node has no edges: the walk stays at the node.
        here = np.where(degree[here] > 0, neighbours[np.minimum(pick, len(neighbours) - 1)], here)
    return out


def _neighbours(graphs: ProgramGraphs) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Neighbours over CHILD edges as a ragged array over the nodes of all graphs: offsets and node numbers."""
    child = graphs.edge_type == Relation.CHILD
    shift = np.repeat(graphs.node_offsets[:-1], np.diff(graphs.edge_offsets))[child]
    source, target = (graphs.edge_index[side, child] + shift for side in (0, 1))
    ends = np.concatenate([source, target])
    offsets = offsets_of(np.bincount(ends, minlength=len(graphs.node_type)))
    lists = np.concatenate([target, source])[np.argsort(ends, kind="stable")]
    return offsets, lists if len(lists) else np.zeros(1, np.int64)


def check_picture(path: Path) -> None:
    """Checks that Matplotlib can write the image format, before the work starts.

    Raises:
        InputError: its format is unknown.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise InputError(f"{path}: the file name must end in one of: {', '.join(f'.{name}' for name in formats)}")


def plot_vectors(vectors: NodeTypeVectors, path: Path) -> None:
    """Plots the trained node types by the two principal components of their unit vectors.

    Args:
        vectors: The vectors.
        path: The image file; its suffix selects the format.

    Raises:
        InputError: there are fewer than two node types, or Matplotlib cannot write the format.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_picture(path)
    names = [word for word in vectors.words if word != _END]
    if len(names) < 2:
        raise InputError(f"{len(names)} node type(s): a plot needs at least two")
    points = vectors.matrix(names).astype(np.float64)
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    points -= points.mean(axis=0)
    _, strength, directions = np.linalg.svd(points, full_matrices=False)
    flat = points @ directions[:2].T
    share = strength[:2] ** 2 / max(float((strength**2).sum()), 1e-12)
    # pyplot would change the caller's backend.
    figure = Figure(figsize=(12, 9))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.scatter(flat[:, 0], flat[:, 1], s=18, color="tab:blue")
    for name, point, label in zip(names, flat, _spread(flat), strict=True):
        axes.annotate(
            name,
            point,
            label,
            fontsize=8,
            va="center",
            parse_math=False,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "0.6"},
        )
    axes.margins(x=0.09)
    axes.set_xlabel(f"first principal component ({share[0]:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({share[1]:.0%})")
    axes.set_title("Node types by their FastText vectors")
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix.removeprefix("."), bbox_inches="tight", dpi=130)


def _spread(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Label positions right of the points: float64[n, 2]; each moves down until it overlaps no earlier one."""
    width, height = 0.13 * np.ptp(points[:, 0]), 0.017 * max(float(np.ptp(points[:, 1])), 1e-9)
    placed = np.zeros((0, 2))
    out = np.empty_like(points)
    for i in np.argsort(-points[:, 1]).tolist():
        place = points[i] + [0.06 * width, 0.0]
        while (
            len(placed)
            and ((np.abs(placed[:, 0] - place[0]) < width) & (np.abs(placed[:, 1] - place[1]) < height)).any()
        ):
            place = place - [0.0, height / 2]
        placed = np.vstack([placed, place])
        out[i] = place
    return out
