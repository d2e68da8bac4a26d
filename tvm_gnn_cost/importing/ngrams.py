"""Expands ``TfIdfVectorizer``, which counts n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value


def vectorize(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``TfIdfVectorizer`` of integers: one output element for each n-gram of the pool.

    An n-gram occurs where its numbers follow each other, with up to ``max_skip_count`` skipped between any two.
    """
    value, attributes = call.tensor(0), call.attributes
    pool = attributes.get("pool_int64s")
    if pool is None:
        raise Refused("it is of type string")
    places = np.array(attributes["ngram_indexes"])
    length = value.shape[-1]
    row = value if len(value.shape) == 2 else simplifier.emit("Reshape", value, np.array([1, length]), name=call.name)
    totals: list[Any] = []
    columns: list[int] = []
    first = 0
    for size, sequences in _by_size(pool, attributes["ngram_counts"]):
        group, first = places[first : first + len(sequences)], first + len(sequences)
        if not len(sequences) or not attributes["min_gram_length"] <= size <= attributes["max_gram_length"]:
            continue
        windows = _windows(length, size, attributes["max_skip_count"])
        if not len(windows):
            continue
        with simplifier.at_opset(18):
            totals.append(_counted(simplifier, call, row, windows, sequences))
        columns.extend(group.tolist())
    with simplifier.at_opset(18):
        output = _arranged(simplifier, call, totals, columns, int(places.max()) + 1, row.shape[0])
        output = _weighted(simplifier, call, output, places)
        if len(value.shape) == 1:
            output = simplifier.emit("Reshape", output, np.array([int(places.max()) + 1]), name=call.name)
    return [output]


def _by_size(pool: Sequence[int], starts: Sequence[int]) -> list[tuple[int, npt.NDArray[Any]]]:
    """The n-grams of each length, one per row."""
    ends = [*starts[1:], len(pool)]
    return [
        (size, np.array(pool[start:end], np.int64).reshape(-1, size))
        for size, (start, end) in enumerate(zip(starts, ends, strict=True), start=1)
    ]


def _windows(length: int, size: int, skips: int) -> npt.NDArray[Any]:
    """The positions of the numbers of an n-gram, one n-gram position per row."""
    steps = range(1, skips + 2) if size > 1 else range(1, 2)
    results = [start + step * np.arange(size) for step in steps for start in range(length - step * (size - 1))]
    return np.array(results, np.int64).reshape(-1, size)


def _counted(
    simplifier: Simplifier, call: Call, row: Any, windows: npt.NDArray[Any], sequences: npt.NDArray[Any]
) -> Value:
    """Number of occurrences of each n-gram in each row: ``(rows, n-grams)``."""
    read = simplifier.emit("Gather", row, windows[:, None], axis=1, name=call.name)
    equal = simplifier.emit("Equal", read, sequences.astype(row.dtype), name=call.name)
    number = simplifier.emit("Cast", equal, to=TensorProto.FLOAT, name=call.name)
    whole = simplifier.emit("ReduceMin", number, np.array([-1]), keepdims=0, name=call.name)
    total: Value = simplifier.emit("ReduceSum", whole, np.array([1]), keepdims=0, name=call.name)
    return total


def _arranged(
    simplifier: Simplifier, call: Call, totals: list[Any], columns: list[int], width: int, rows: int
) -> Value:
    """The counts in their output columns; zeros elsewhere."""
    counts = simplifier.emit("Concat", *totals, np.zeros((rows, 1), np.float32), axis=1, name=call.name)
    order = np.full(width, len(columns))
    order[columns] = np.arange(len(columns))
    arranged: Value = simplifier.emit("Gather", counts, order, axis=1, name=call.name)
    return arranged


def _weighted(simplifier: Simplifier, call: Call, counts: Value, places: npt.NDArray[Any]) -> Value:
    """Term frequencies, inverse document frequencies, or both."""
    mode = call.attributes["mode"]
    weighted: Any = counts
    if mode == "IDF":
        weighted = simplifier.emit("Min", weighted, np.array(1, np.float32), name=call.name)
    if mode != "TF" and call.attributes.get("weights"):
        weights = np.ones(int(places.max()) + 1, np.float32)
        weights[places] = call.attributes["weights"]
        weighted = simplifier.emit("Mul", weighted, weights, name=call.name)
    result: Value = weighted
    return result


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {"TfIdfVectorizer": vectorize}
