"""An HLO module as the arrays of TpuGraphs: 140 features and an opcode a node, edges and splits.

What the features are and their order is fixed by the data set (``featurizers.h`` and ``hlo_encoder.cc`` in its
repository); models that were trained on its files read these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.npz import NODE_FEATURES
from tvm_gnn_cost.tpugraphs.opcodes import OPCODES

# XLA's numbers of the element types in the order of their columns: invalid, pred, s8 to s64, u8 to u64, f16, f32, f64,
# bf16, c64, c128, tuple, opaque, token.
_ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
# Computations that a segment of the graph ends with; others are the bodies of a fusion, a reduction, ...
_MAJOR = ("cluster", "while", "cond")


@dataclass(frozen=True)
class HloGraph:
    """n instructions of all computations, in the module's order.

    Attributes:
        node_feat: float32[n, 140].
        node_opcode: uint8[n].
        edge_index: int64[m, 2]; a row (u, v): u consumes v's output, or calls the computation that v is the root of.
        node_splits: int64[k], where segments begin and the last one ends.
    """

    node_feat: npt.NDArray[np.float32]
    node_opcode: npt.NDArray[np.uint8]
    edge_index: npt.NDArray[np.int64]
    node_splits: npt.NDArray[np.int64]


def featurize(module: Any) -> HloGraph:
    """The graph of an ``HloModuleProto``.

    Raises:
        ValueError: it is empty, or an instruction or computation that it refers to is not in it.
    """
    instructions = [(computation, one) for computation in module.computations for one in computation.instructions]
    if not instructions:
        raise ValueError(f"the module '{module.name}' has no instruction")
    features = np.array([_features(one, computation.root_id) for computation, one in instructions], np.float32)
    opcodes = np.array([OPCODES.get(one.opcode, 0) for _, one in instructions], np.uint8)
    return HloGraph(features, opcodes, _edges(module, [one for _, one in instructions]), _splits(module))


def with_aggregates(values: Sequence[int], count: int, product_if_empty: int = 1) -> list[float]:
    """The first ``count`` values, padded with 0, then the sum and the product of all of them, as 64-bit integers."""
    product = 1 if values else product_if_empty
    for value in values:
        product *= value
    return [*_first(values, count), float(_wrap(sum(values))), float(_wrap(product))]


def _wrap(value: int) -> int:
    """What is left of a number in 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _first(values: Sequence[int], count: int) -> list[float]:
    return [float(value) for value in values[:count]] + [0.0] * (count - len(values))


def _features(instruction: Any, root_id: int) -> list[float]:
    shape, window = instruction.shape, instruction.window.dimensions
    slices, padding = instruction.slice_dimensions, instruction.padding_config.dimensions
    reversed_ = [one.window_reversal for one in window]
    out = [float(instruction.id == root_id), 0.0]
    out += [float(shape.element_type == number) for number in _ELEMENT_TYPES]
    out += [*with_aggregates(shape.dimensions, 6), float(len(shape.tuple_shapes)), float(instruction.parameter_number)]
    out += _first(instruction.dimensions, 6)
    for name in ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation"):
        out += with_aggregates([getattr(one, name) for one in window], 6)
    out += [*_first(reversed_, 6), float(sum(reversed_)), float(len(reversed_) - sum(reversed_))]
    out += _convolution(instruction.convolution_dimension_numbers)
    out += [float(instruction.feature_group_count), float(instruction.batch_group_count)]
    for name in ("start", "stride", "limit"):
        out += with_aggregates([getattr(one, name) for one in slices], 2)
    out += with_aggregates(instruction.dynamic_slice_sizes, 2)
    for name in ("edge_padding_low", "edge_padding_high"):
        out += with_aggregates([getattr(one, name) for one in padding], 2)
    out += [float(instruction.is_stable), *_first(shape.layout.minor_to_major, 6)]
    assert len(out) == NODE_FEATURES
    return out


def _convolution(numbers: Any) -> list[float]:
    return [
        float(numbers.input_batch_dimension),
        float(numbers.input_feature_dimension),
        *_first(numbers.input_spatial_dimensions, 4),
        float(numbers.kernel_input_feature_dimension),
        float(numbers.kernel_output_feature_dimension),
        *_first(numbers.kernel_spatial_dimensions, 4),
        float(numbers.output_batch_dimension),
        float(numbers.output_feature_dimension),
    ]


def _edges(module: Any, instructions: Iterable[Any]) -> npt.NDArray[np.int64]:
    """Sorted, each once."""
    position = {one.id: number for number, one in enumerate(instructions)}
    roots = {computation.id: computation.root_id for computation in module.computations}
    edges: set[tuple[int, int]] = set()
    for one in instructions:
        try:
            below = [*one.operand_ids, *(roots[called] for called in one.called_computation_ids)]
            edges.update((position[one.id], position[other]) for other in below)
        except KeyError as error:
            missing = f"an instruction or computation, {error.args[0]}, that is not in the module"
            raise ValueError(f"the instruction '{one.name}' of '{module.name}' refers to {missing}") from None
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _splits(module: Any) -> npt.NDArray[np.int64]:
    splits, count = [0], 0
    for computation in module.computations:
        count += len(computation.instructions)
        if any(word in computation.name for word in _MAJOR):
            splits.append(count)
    return np.array(splits if splits[-1] == count else [*splits, count], np.int64)
