"""Expands operators of the domain ``ai.onnx.ml``: scaling, linear models and decision trees on numeric features."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value

_OPSET = 18

#: Maximum number of elements of the matrix of paths.
_LARGEST = 2**24

#: The comparison of a branch mode; those that ONNX lacks are negations of others.
_COMPARISONS = {
    "BRANCH_LEQ": ("LessOrEqual", False),
    "BRANCH_LT": ("Less", False),
    "BRANCH_GTE": ("GreaterOrEqual", False),
    "BRANCH_GT": ("Greater", False),
    "BRANCH_EQ": ("Equal", False),
    "BRANCH_NEQ": ("Equal", True),
}


@dataclass(frozen=True)
class _Writer:
    """Expands one operator to operators of ONNX's default domain."""

    simplifier: Simplifier
    call: Call

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        return self.simplifier.emit(operator, *inputs, name=self.call.name, **attributes)

    def attribute(self, name: str) -> Any:
        return self.call.attributes.get(name)

    def floats(self, name: str) -> npt.NDArray[Any]:
        """A list of numbers, from a float or a string attribute."""
        tensor = self.attribute(f"{name}_as_tensor")
        return np.asarray(self.attribute(name) or (), np.float32) if tensor is None else np.asarray(tensor)

    def numbers(self, dtype: Any = np.float32) -> Any:
        """The operand as float32 or float64."""
        return self.cast(self.call.tensor(0), dtype)

    def cast(self, value: Any, dtype: Any) -> Any:
        wanted = np.dtype(dtype)
        if value.dtype == wanted:
            return value
        return self("Cast", value, to=helper.np_dtype_to_tensor_dtype(wanted))

    def rows(self, dtype: Any = np.float32) -> Any:
        """The operand as a matrix of floats."""
        value = self.numbers(dtype)
        return value if len(value.shape) == 2 else self("Reshape", value, np.array([-1, value.shape[-1]]))


def _written(write: Callable[[_Writer], Any]) -> Expansion:
    def expansion(simplifier: Simplifier, call: Call) -> Sequence[Value]:
        with simplifier.at_opset(_OPSET):
            result = write(_Writer(simplifier, call))
        return result if isinstance(result, list) else [result]

    return expansion


def _features(write: _Writer) -> Any:
    value = write.call.tensor(0)
    places = write("Reshape", write.call.tensor(1), np.array([-1]))
    if len(value.shape) == 1:
        value = write("Reshape", value, np.array([1, value.shape[0]]))
    return write("Gather", value, places, axis=-1)


def _binarizer(write: _Writer) -> Any:
    value = write.call.tensor(0)
    return write.cast(write("Greater", value, np.array(write.attribute("threshold"), value.dtype)), value.dtype)


def _scaler(write: _Writer) -> Any:
    output = write.numbers()
    for operator, name in (("Sub", "offset"), ("Mul", "scale")):
        if write.attribute(name):
            output = write(operator, output, np.array(write.attribute(name), np.float32))
    return output


def _normalizer(write: _Writer) -> Any:
    x, norm = write.numbers(), write.attribute("norm")
    axes = np.array([-1])
    if norm == "MAX":
        size = write("ReduceMax", x, axes)
    elif norm == "L1":
        size = write("ReduceSum", write("Abs", x), axes)
    else:
        size = write("Sqrt", write("ReduceSum", write("Mul", x, x), axes))
    # A row of zeros stays zero.
    zero, one = np.array(0, np.float32), np.array(1, np.float32)
    return write("Div", x, write("Where", write("Equal", size, zero), one, size))


def _linear(write: _Writer, count: int) -> Any:
    """The products of rows with ``count`` vectors of coefficients."""
    matrix = write.floats("coefficients").reshape(count, -1).T
    scores = write("MatMul", write.rows(), np.ascontiguousarray(matrix))
    intercepts = write.floats("intercepts")
    return write("Add", scores, intercepts) if intercepts.size else scores


def _transformed(write: _Writer, scores: Any, kind: str) -> Any:
    """Scores after the operator's post transform."""
    names = {"NONE": None, "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
    if kind not in names:
        raise Refused(f"its post transform is {kind}")
    name = names[kind]
    return scores if name is None else write(name, scores)


def _linear_regressor(write: _Writer) -> Any:
    return _transformed(write, _linear(write, int(write.attribute("targets"))), write.attribute("post_transform"))


def _linear_classifier(write: _Writer) -> Any:
    labels = write.attribute("classlabels_ints")
    if not labels:
        raise Refused("its labels are strings")
    count = write.floats("coefficients").size // write.rows().shape[1]
    if count != len(labels):
        raise Refused("it distinguishes two classes by one score")
    scores = _linear(write, count)
    best = write("ArgMax", scores, axis=1, keepdims=0)
    return [
        write("Gather", np.array(labels, np.int64), best),
        _transformed(write, scores, write.attribute("post_transform")),
    ]


@dataclass(frozen=True)
class _Trees:
    """Decision trees as arrays.

    Attributes:
        features: The feature that each node compares.
        values: The threshold: ``(nodes,)``, or ``(nodes, members)`` for set membership, padded with NaN.
        modes: The comparison, such as ``BRANCH_LEQ``.
        tracks: Whether a missing value takes the true branch.
        paths: ``(nodes, leaves)``: 1 or -1 where a leaf is below the true or the false branch of a node, else 0.
        weights: ``(leaves, targets)``.
    """

    features: npt.NDArray[Any]
    values: npt.NDArray[Any]
    modes: list[str]
    tracks: npt.NDArray[Any]
    paths: npt.NDArray[Any]
    weights: npt.NDArray[Any]


def _summed(write: _Writer, trees: _Trees) -> Any:
    """The sum of the weights of the leaves that each row reaches: ``(rows, targets)``.

    All nodes are compared at once. A row reaches a leaf if all nodes on its path decide for it, which a product with
    the matrix of paths counts.
    """
    dtype = np.float64 if write.call.tensor(0).dtype == np.float64 else np.float32
    x = write.rows(dtype)
    if not len(trees.features):
        return np.repeat(trees.weights.sum(0, keepdims=True), x.shape[0], axis=0).astype(dtype)
    order = np.argsort(np.array(trees.modes), kind="stable")
    paths = trees.paths[order]
    parts = []
    for mode in sorted(set(trees.modes)):
        chosen = order[np.array(trees.modes)[order] == mode]
        read = write("Gather", x, trees.features[chosen], axis=1)
        decided = _decided(write, mode, read, trees.values[chosen].astype(dtype))
        if trees.tracks[chosen].any():
            decided = write("Or", decided, write("And", write("IsNaN", read), trees.tracks[chosen].astype(bool)))
        parts.append(write.cast(decided, np.float32))
    decisions = parts[0] if len(parts) == 1 else write("Concat", *parts, axis=1)
    # A path is taken if the number of true decisions on it is its number of true branches.
    wanted = (paths > 0).sum(0).astype(np.float32)
    agreed = write("MatMul", decisions, paths.astype(np.float32))
    reached = write.cast(write("Equal", agreed, wanted), dtype)
    return write("MatMul", reached, trees.weights.astype(dtype))


def _decided(write: _Writer, mode: str, read: Any, values: npt.NDArray[Any]) -> Any:
    """Whether each value takes the true branch of its node."""
    if mode == "BRANCH_MEMBER":
        equal = write("Equal", write("Unsqueeze", read, np.array([-1])), values)
        return write.cast(write("ReduceMax", write.cast(equal, np.float32), np.array([-1]), keepdims=0), np.bool_)
    if mode not in _COMPARISONS:
        raise Refused(f"its nodes have the mode {mode}")
    operator, is_opposite = _COMPARISONS[mode]
    decided = write(operator, read, values[..., 0])
    return write("Not", decided) if is_opposite else decided


def _paths(children: Mapping[int, tuple[int, int]], roots: Sequence[int], leaves: Sequence[int]) -> npt.NDArray[Any]:
    """The matrix of paths; nodes are in the order of ``children``."""
    rows = {node: row for row, node in enumerate(children)}
    columns = {leaf: column for column, leaf in enumerate(leaves)}
    if len(rows) * len(columns) > _LARGEST:
        raise Refused(f"its trees have {len(rows)} nodes and {len(columns)} leaves, which are too many")
    paths = np.zeros((len(rows), len(columns)), np.int8)
    stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(root, ()) for root in roots]
    while stack:
        node, path = stack.pop()
        if node not in children:
            for above, sign in path:
                paths[rows[above], columns[node]] = sign
            continue
        if len(path) > len(children):
            raise Refused("its trees have a cycle")
        true, false = children[node]
        stack += [(true, (*path, (node, 1))), (false, (*path, (node, -1)))]
    return paths


def _trees_of_lists(write: _Writer, kind: str, targets: int) -> _Trees:
    """The trees of the older operators, whose nodes are numbered within their tree."""
    names = list(zip(write.attribute("nodes_treeids"), write.attribute("nodes_nodeids"), strict=True))
    number = {name: i for i, name in enumerate(names)}
    modes = write.attribute("nodes_modes")
    nodes = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    leaves = [i for i, mode in enumerate(modes) if mode == "LEAF"]
    behind = [write.attribute(f"nodes_{item}nodeids") for item in ("true", "false")]
    children = {i: (number[names[i][0], behind[0][i]], number[names[i][0], behind[1][i]]) for i in nodes}
    inner = {item for pair in children.values() for item in pair}
    weights = np.zeros((len(leaves), targets), np.float64)
    column = {leaf: i for i, leaf in enumerate(leaves)}
    places = zip(*(write.attribute(f"{kind}_{item}") for item in ("treeids", "nodeids", "ids")), strict=True)
    for (tree, node, target), weight in zip(places, write.floats(f"{kind}_weights"), strict=True):
        weights[column[number[tree, node]], target] += weight
    values = write.floats("nodes_values")
    tracks = np.array(write.attribute("nodes_missing_value_tracks_true") or [0] * len(modes))
    return _Trees(
        np.array(write.attribute("nodes_featureids"), np.int64)[nodes],
        values[nodes, None],
        [modes[i] for i in nodes],
        tracks[nodes],
        _paths(children, [i for i in range(len(names)) if i not in inner], leaves),
        weights,
    )


def _tree_regressor(write: _Writer) -> Any:
    kind = write.attribute("aggregate_function")
    targets = int(write.attribute("n_targets"))
    trees = _trees_of_lists(write, "target", targets)
    prediction = write.cast(_summed(write, trees), np.float32)
    if kind == "AVERAGE":
        prediction = write("Div", prediction, np.array(len(set(write.attribute("nodes_treeids"))), np.float32))
    elif kind != "SUM":
        raise Refused(f"its aggregate function is {kind}")
    base = write.floats("base_values").astype(np.float32)
    prediction = write("Add", prediction, base) if base.size else prediction
    return _transformed(write, prediction, write.attribute("post_transform"))


def _tree_classifier(write: _Writer) -> Any:
    labels = write.attribute("classlabels_int64s")
    if not labels:
        raise Refused("its labels are strings")
    if len(set(write.attribute("class_ids"))) == 1:
        raise Refused("it distinguishes two classes by one score")
    scores = write.cast(_summed(write, _trees_of_lists(write, "class", len(labels))), np.float32)
    base = write.floats("base_values").astype(np.float32)
    scores = write("Add", scores, base) if base.size else scores
    best = write("ArgMax", scores, axis=1, keepdims=0)
    return [
        write("Gather", np.array(labels, np.int64), best),
        _transformed(write, scores, write.attribute("post_transform")),
    ]


def _trees(write: _Writer) -> Any:
    """``TreeEnsemble``, whose nodes and leaves are numbered separately."""
    names = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
    modes = [names[int(attribute)] for attribute in write.attribute("nodes_modes")]
    count, targets = len(modes), int(write.attribute("n_targets"))
    leaf_targets = write.attribute("leaf_targetids")
    behind = [
        [item + count if is_leaf else item for item, is_leaf in zip(ids, flags, strict=True)]
        for ids, flags in (
            (write.attribute("nodes_truenodeids"), write.attribute("nodes_trueleafs")),
            (write.attribute("nodes_falsenodeids"), write.attribute("nodes_falseleafs")),
        )
    ]
    children = dict(enumerate(zip(*behind, strict=True)))
    leaves = [count + i for i in range(len(leaf_targets))]
    # A tree of a single leaf is encoded as a node with that leaf in both branches.
    if any(true == false for true, false in children.values()):
        raise Refused("one of its trees is a single leaf")
    weights = np.zeros((len(leaves), targets), np.float64)
    weights[np.arange(len(leaves)), leaf_targets] = write.attribute("leaf_weights")
    tracks = np.array(write.attribute("nodes_missing_value_tracks_true") or [0] * count)
    kind = ("AVERAGE", "SUM", "MIN", "MAX")[write.attribute("aggregate_function")]
    roots = list(write.attribute("tree_roots"))
    features = np.array(write.attribute("nodes_featureids"), np.int64)
    values = _with_sets(
        np.asarray(write.attribute("nodes_splits"), np.float64), modes, write.attribute("membership_values")
    )
    total: Any = _summed(write, _Trees(features, values, modes, tracks, _paths(children, roots, leaves), weights))
    if kind == "AVERAGE":
        total = write("Div", total, np.array(len(roots), total.dtype))
    elif kind != "SUM":
        raise Refused(f"its aggregate function is {kind}")
    last = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[write.attribute("post_transform")]
    return write.cast(_transformed(write, total, last), write.call.tensor(0).dtype)


def _with_sets(splits: npt.NDArray[Any], modes: Sequence[str], members: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The thresholds of the nodes, one row each, or the members of their sets, which NaN terminates."""
    rows = [[split] for split in splits.tolist()]
    given = iter([] if members is None else members.tolist())
    for row, mode in zip(rows, modes, strict=True):
        if mode == "BRANCH_MEMBER":
            row[:] = itertools.takewhile(lambda item: not np.isnan(item), given)
    return np.array(list(itertools.zip_longest(*rows, fillvalue=np.nan)), np.float64).T


_WRITTEN: dict[str, Callable[[_Writer], Any]] = {
    "ArrayFeatureExtractor": _features,
    "Binarizer": _binarizer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "TreeEnsemble": _trees,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}

#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {f"ai.onnx.ml:{name}": _written(write) for name, write in _WRITTEN.items()}
