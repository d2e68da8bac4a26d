"""A small HLO module, and measurements of it, as protobuf messages."""

from __future__ import annotations

from typing import Any

from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto

F32, TUPLE = 11, 13


def small_module() -> Any:
    """Two computations: a fusion's body of two instructions; a parameter, a convolution of it, and the fusion."""
    body = {
        "name": "fused_computation",
        "id": 1,
        "root_id": 11,
        "instructions": [
            {"name": "p", "opcode": "parameter", "id": 10, "parameter_number": 3},
            {"name": "e", "opcode": "brand-new", "id": 11, "operand_ids": [10, 10]},
        ],
    }
    window = [{"size": 3, "stride": 2, "padding_low": 1, "window_dilation": 1, "window_reversal": True}, {"size": 5}]
    convolution = {
        "name": "conv",
        "opcode": "convolution",
        "id": 21,
        "operand_ids": [20, 20],
        "shape": {"element_type": F32, "dimensions": [2, 3, 4], "layout": {"minor_to_major": [2, 0, 1]}},
        "window": {"dimensions": window},
        "convolution_dimension_numbers": {
            "input_batch_dimension": 1,
            "input_feature_dimension": 2,
            "input_spatial_dimensions": [3, 4],
            "kernel_input_feature_dimension": 5,
            "kernel_output_feature_dimension": 6,
            "kernel_spatial_dimensions": [7, 8],
            "output_batch_dimension": 9,
            "output_feature_dimension": 10,
        },
        "feature_group_count": 11,
        "batch_group_count": 12,
        "is_stable": True,
    }
    fusion = {
        "name": "fusion",
        "opcode": "fusion",
        "id": 22,
        "operand_ids": [21],
        "called_computation_ids": [1],
        "shape": {"element_type": TUPLE, "tuple_shapes": [{}, {}]},
        "dimensions": [1, 0],
        "slice_dimensions": [{"start": 1, "stride": 2, "limit": 30}, {"start": 4, "stride": 5, "limit": 60}],
        "dynamic_slice_sizes": [7, 8, 9],
        "padding_config": {"dimensions": [{"edge_padding_low": -1, "edge_padding_high": 2}]},
    }
    main = {
        "name": "while_main",
        "id": 2,
        "root_id": 22,
        "instructions": [{"name": "x", "opcode": "parameter", "id": 20}, convolution, fusion],
    }
    return HloModuleProto(name="small", computations=[body, main])


def layout_run(time: int, *layouts: list[list[int]], error: bool = False) -> dict[str, Any]:
    """A run of a ``ModuleTuningData``."""
    nodes = [{"tensors": [{"dims": dims} for dims in tensors]} for tensors in layouts]
    return {
        "module_config": {"layout_config": {"nodes": nodes}},
        "error": error,
        "profile": {"compute_time_ns": time},
    }


def tile_run(time: int, is_default: bool = False) -> dict[str, Any]:
    """A run of a ``TuningData``."""
    tile = {"kernel_bounds": [3, 3], "output_bounds": [time]}
    return {
        "op_config": {"tile_size_config": tile},
        "profile": {"compute_time_ns": time},
        "is_default": is_default,
    }
