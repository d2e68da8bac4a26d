"""Inputs that a network is tuned and verified with: their shapes, and values where the user gives none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.graph import Graph, Node, Tensor

#: A shape with names for dynamic dimensions; the same name stands for the same size.
OpenShape = tuple[int | str, ...]

#: Maximum number of elements of an input: TVM counts in 32 bits, and float32 takes 8 GiB.
_MOST_ELEMENTS = 2**31 - 1


def fixed_shapes(
    name: str, declared: Mapping[str, OpenShape], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The static shapes of a network's inputs.

    Args:
        name: The network's name.
        declared: The declared shape of each input.
        shapes: The shapes that the user gives; a dynamic dimension that another input shares is fixed there too.

    Raises:
        InputError: there is no such input, a shape contradicts the network, or a dimension stays dynamic.

    >>> fixed_shapes("net", {"ids": ("n", 128), "mask": ("n", 128)}, {"ids": (2, 128)})
    {'ids': (2, 128), 'mask': (2, 128)}
    """
    sizes: dict[str, int] = {}
    for given in shapes:
        if not isinstance(shapes[given], tuple | list) or not all(_is_size(size) for size in shapes[given]):
            raise InputError(f"the shape of input '{given}' must be whole numbers, not {shapes[given]!r}")
        shape = declared.get(given)
        if shape is None:
            raise InputError(f"{name} has no input '{given}'; it has: {', '.join(declared)}")
        fits = len(shape) == len(shapes[given]) and all(size > 0 for size in shapes[given])
        # setdefault: the first input fixes a dimension, and later ones must agree.
        if not fits or any(
            size != (sizes.setdefault(declared_size, size) if isinstance(declared_size, str) else declared_size)
            for declared_size, size in zip(shape, shapes[given], strict=True)
        ):
            wanted = _text(tuple(sizes.get(size, size) if isinstance(size, str) else size for size in shape))
            raise InputError(
                f"the shape {_text(shapes[given])} does not fit input '{given}' of {name}, which is "
                f"{wanted or 'a scalar'}"
            )
    fixed = {}
    for given, shape in declared.items():
        for axis, size in enumerate(shape):
            if isinstance(size, str) and size not in sizes:
                example = _text(tuple(1 if isinstance(size, str) else size for size in shape))
                raise InputError(
                    f"dimension {axis} ({size}) of input '{given}' of {name} is dynamic, and TVM tunes static shapes: "
                    f"pass the size that you need as shapes (--shape {given}={example} in a shell)"
                )
        fixed[given] = tuple(sizes[size] if isinstance(size, str) else size for size in shape)
        if math.prod(fixed[given]) > _MOST_ELEMENTS:
            raise InputError(
                f"input '{given}' of {name} would have {_text(fixed[given])} elements, more than the {_MOST_ELEMENTS} "
                "that a tensor may have here; choose smaller sizes"
            )
    return fixed


def example_inputs(
    name: str,
    shapes: Mapping[str, tuple[int, ...]],
    types: Mapping[str, np.dtype[Any]],
    given: Mapping[str, npt.NDArray[Any]],
    limits: Mapping[str, int] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """An example of each input, in order; random with a fixed seed where the user gives none.

    Floats are normally distributed. Indices are drawn from their valid range; other integers are 0 or 1, which are
    valid masks.

    Args:
        name: The network's name.
        shapes: Shape of each input.
        types: Type of each input.
        given: The user's examples.
        limits: Inputs that are used as indices -> exclusive upper bound.

    Raises:
        InputError: an example has another shape or type, or a type is not supported.
    """
    rng = np.random.default_rng(0)
    result = {}
    for key, shape in shapes.items():
        dtype = types[key]
        array = given[key] if key in given else _draw(key, shape, dtype, rng, (limits or {}).get(key, 2))
        if (array.shape, array.dtype) != (shape, dtype):
            raise InputError(
                f"the example of input '{key}' is {array.dtype}[{_text(array.shape)}]; "
                f"{name} wants {dtype}[{_text(shape)}]"
            )
        result[key] = np.asarray(array, order="C")
    return result


def read_inputs(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Reads example inputs by name from an npz file, without unpickling.

    Raises:
        InputError: it is not an npz file of numeric arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    # NumPy and zipfile raise many types of errors for a damaged archive, and NumPy takes a truncated zip for a pickle.
    # A .npy is not a context manager.
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InputError(f"{path} is not an npz file (numpy.savez) with an array for each input name") from error
    no_array = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if no_array:  # NumPy returns the bytes of other members
        raise InputError(f"{path} has a member that is not an array: '{no_array[0]}'")
    return arrays


def _draw(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator, below: int
) -> npt.NDArray[Any]:
    if np.issubdtype(dtype, np.floating) or dtype.name == "bfloat16":
        return rng.standard_normal(shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, min(below, int(np.iinfo(dtype).max)), shape).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    raise InputError(f"input '{name}' is {dtype}; only floats, integers and bool are supported")


def _is_size(size: object) -> bool:
    return isinstance(size, int | np.integer) and not isinstance(size, bool)


def _text(shape: OpenShape) -> str:
    return ",".join(map(str, shape))


#: Operators that preserve the values of their first operand.
_PASSED_ON = frozenset(
    ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice", "Tile", "Split", "Identity")
)


def index_limits(graph: Graph) -> dict[str, int]:
    """For each input that is used as an index, the size of the smallest dimension that it indexes.

    Args:
        graph: The network.

    Returns:
        Name of the input -> exclusive upper bound; inputs that are not indices are missing.
    """
    limits: dict[Tensor, int] = {}
    for node in reversed(graph.nodes):
        for tensor, limit in _read(node, limits).items():
            limits[tensor] = min(limit, limits.get(tensor, limit))
    return {tensor.name: limits[tensor] for tensor in graph.inputs if tensor in limits and tensor.dtype.kind in "iu"}


def _read(node: Node, limits: Mapping[Tensor, int]) -> dict[Tensor, int]:
    """The limits of a node's operands, from those of its outputs."""
    tensors = [operand for operand in node.inputs if isinstance(operand, Tensor)]
    if node.operator in ("Gather", "GatherElements", "ScatterElements"):
        data, index = node.inputs[0], node.inputs[1]
        bounds = {}
        if isinstance(index, Tensor) and data is not None and data.shape:
            bounds[index] = max(1, data.shape[int(node.attributes.get("axis", 0))])
        if node.outputs[0] in limits and isinstance(data, Tensor):
            bounds[data] = limits[node.outputs[0]]
        return bounds
    if node.operator in ("GatherND", "ScatterND"):
        data, index = node.inputs[0], node.inputs[1]
        if isinstance(index, Tensor) and data is not None and index.shape:
            first = int(node.attributes.get("batch_dims", 0))
            return {index: max(1, min(data.shape[first : first + index.shape[-1]]))}
        return {}
    known = [limits[output] for output in node.outputs if output in limits]
    if not known:
        return {}
    limit = min(known)
    if node.operator in _PASSED_ON:
        return dict.fromkeys(tensors[:1], limit)
    if node.operator in ("Concat", "Where", "Max", "Min", "Clip"):
        values = tensors[1:] if node.operator == "Where" and isinstance(node.inputs[0], Tensor) else tensors
        return dict.fromkeys(values, limit)
    if node.operator == "Add":
        # An offset, as of position ids.
        added = sum(int(np.max(operand)) for operand in node.inputs if isinstance(operand, np.ndarray) and operand.size)
        share = (limit - 1 - added) // max(1, len(tensors)) + 1
        return dict.fromkeys(tensors, max(1, share))
    return {}
