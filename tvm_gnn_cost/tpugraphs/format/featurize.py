"""Turns an HLO module into TpuGraphs' arrays: 140 features and an opcode per instruction, edges and segments.

The data set fixes the features and their order (``featurizers.h`` and ``hlo_encoder.cc`` in its repository), so that
models trained on its files can read these arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import LAYOUT_RANK, NODE_FEATURES, OPCODES
from tvm_gnn_cost.tpugraphs.format.npz import Fields

# How many values of each list of an instruction become features.
_DIMENSIONS, _SPATIAL, _SLICED = 6, 4, 2
# XLA's numbers of the element types in the order of their columns: invalid, pred, s8 to s64, u8 to u64, f16, f32, f64,
# bf16, c64, c128, tuple, opaque, token.
_ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
# A computation whose name contains one of these ends a segment; others are bodies of fusions, reductions and so on.
_SEGMENT_ENDS = ("cluster", "while", "cond")


def featurize(module: Any) -> Fields:
    """The arrays of an ``HloModuleProto``, a graph of n instructions, those of all computations in the module's order.

    Returns:
        ``node_feat``, float32[n, 140]; ``node_opcode``, uint8[n]; ``edge_index``, int64[m, 2], where a row (u, v) means
        that u consumes v's output, or calls the computation that ends in v; ``node_splits``, int64[k], the first node
        of each segment, then n.

    Raises:
        InputError: the module has no instruction, or refers to an instruction or computation that it does not contain.
    """
    instructions = [
        (computation, instruction) for computation in module.computations for instruction in computation.instructions
    ]
    if not instructions:
        raise InputError(f"the module '{module.name}' has no instruction")
    features = [_features(instruction, computation.root_id) for computation, instruction in instructions]
    return {
        "node_feat": np.array(features, np.float32),
        "node_opcode": np.array([OPCODES.get(instruction.opcode, 0) for _, instruction in instructions], np.uint8),
        "edge_index": _edges(module, [instruction for _, instruction in instructions]),
        "node_splits": _splits(module),
    }


def with_aggregates(values: Sequence[int], count: int, product_if_empty: int = 1) -> list[float]:
    """The first ``count`` values, padded with 0, then the sum and the product of all of them, as 64-bit integers.

    >>> with_aggregates([2, 3, 4], 2)
    [2.0, 3.0, 9.0, 24.0]
    """
    product = 1 if values else product_if_empty
    for value in values:
        product *= value
    return [*_first(values, count), float(_wrap(sum(values))), float(_wrap(product))]


def _wrap(value: int) -> int:
    """The number after a signed 64-bit overflow, as in the data set's C++ code."""
    return (value + 2**63) % 2**64 - 2**63


def _first(values: Sequence[int], count: int) -> list[float]:
    return [float(value) for value in values[:count]] + [0.0] * (count - len(values))


def _features(instruction: Any, root_id: int) -> list[float]:
    shape, window = instruction.shape, instruction.window.dimensions
    slices, padding = instruction.slice_dimensions, instruction.padding_config.dimensions
    reversals = [dimension.window_reversal for dimension in window]
    out = [float(instruction.id == root_id), 0.0]
    out += [float(shape.element_type == number) for number in _ELEMENT_TYPES]
    out += with_aggregates(shape.dimensions, _DIMENSIONS)
    out += [float(len(shape.tuple_shapes)), float(instruction.parameter_number)]
    out += _first(instruction.dimensions, _DIMENSIONS)
    for name in ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation"):
        out += with_aggregates([getattr(dimension, name) for dimension in window], _DIMENSIONS)
    out += [*_first(reversals, _DIMENSIONS), float(sum(reversals)), float(len(reversals) - sum(reversals))]
    out += _convolution(instruction.convolution_dimension_numbers)
    out += [float(instruction.feature_group_count), float(instruction.batch_group_count)]
    for name in ("start", "stride", "limit"):
        out += with_aggregates([getattr(dimension, name) for dimension in slices], _SLICED)
    out += with_aggregates(instruction.dynamic_slice_sizes, _SLICED)
    for name in ("edge_padding_low", "edge_padding_high"):
        out += with_aggregates([getattr(dimension, name) for dimension in padding], _SLICED)
    out += [float(instruction.is_stable), *_first(shape.layout.minor_to_major, LAYOUT_RANK)]
    assert len(out) == NODE_FEATURES
    return out


def _convolution(numbers: Any) -> list[float]:
    return [
        float(numbers.input_batch_dimension),
        float(numbers.input_feature_dimension),
        *_first(numbers.input_spatial_dimensions, _SPATIAL),
        float(numbers.kernel_input_feature_dimension),
        float(numbers.kernel_output_feature_dimension),
        *_first(numbers.kernel_spatial_dimensions, _SPATIAL),
        float(numbers.output_batch_dimension),
        float(numbers.output_feature_dimension),
    ]


def _edges(module: Any, instructions: Iterable[Any]) -> npt.NDArray[np.int64]:
    """int64[m, 2], sorted and without duplicates."""
    position = {instruction.id: number for number, instruction in enumerate(instructions)}
    roots = {computation.id: computation.root_id for computation in module.computations}
    edges: set[tuple[int, int]] = set()
    for instruction in instructions:
        try:
            producers = [*instruction.operand_ids, *(roots[called] for called in instruction.called_computation_ids)]
            edges.update((position[instruction.id], position[producer]) for producer in producers)
        except KeyError as error:
            missing = f"an instruction or computation, {error.args[0]}, that is not in the module"
            raise InputError(f"the instruction '{instruction.name}' of '{module.name}' refers to {missing}") from None
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _splits(module: Any) -> npt.NDArray[np.int64]:
    splits, count = [0], 0
    for computation in module.computations:
        count += len(computation.instructions)
        if any(word in computation.name for word in _SEGMENT_ENDS):
            splits.append(count)
    return np.array(splits if splits[-1] == count else [*splits, count], np.int64)
