"""Protobuf messages of measured XLA modules, with only the fields that this package reads; protobuf skips the others.

The messages are defined in XLA's ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` and in TpuGraphs'
``tuning.proto``. Their classes are created when this module is imported, which needs neither XLA nor ``protoc``.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Each field is "number type name"; a star before the type marks a repeated field. Enumerations are read as integers.
_MESSAGES = {
    "LayoutProto": "1 *int64 minor_to_major",
    "ShapeProto": "2 int32 element_type, 3 *int64 dimensions, 4 *ShapeProto tuple_shapes, 5 LayoutProto layout",
    "WindowDimension": "1 int64 size, 2 int64 stride, 3 int64 padding_low, 4 int64 padding_high, "
    "5 int64 window_dilation, 6 int64 base_dilation, 7 bool window_reversal",
    "Window": "1 *WindowDimension dimensions",
    "ConvolutionDimensionNumbers": "7 int64 input_batch_dimension, 8 int64 input_feature_dimension, "
    "11 *int64 input_spatial_dimensions, 3 int64 kernel_input_feature_dimension, "
    "4 int64 kernel_output_feature_dimension, 6 *int64 kernel_spatial_dimensions, 9 int64 output_batch_dimension, "
    "10 int64 output_feature_dimension",
    "SliceDimensions": "1 int64 start, 2 int64 limit, 3 int64 stride",
    "PaddingConfigDimension": "1 int64 edge_padding_low, 2 int64 edge_padding_high",
    "PaddingConfig": "1 *PaddingConfigDimension dimensions",
    "OpMetadata": "2 string op_name",
    "HloInstructionProto": "1 string name, 2 string opcode, 3 ShapeProto shape, 7 OpMetadata metadata, "
    "9 int64 parameter_number, 14 *int64 dimensions, 15 Window window, "
    "16 ConvolutionDimensionNumbers convolution_dimension_numbers, "
    "50 int64 feature_group_count, 58 int64 batch_group_count, 17 *SliceDimensions slice_dimensions, "
    "20 *int64 dynamic_slice_sizes, 21 PaddingConfig padding_config, 35 int64 id, 36 *int64 operand_ids, "
    "38 *int64 called_computation_ids, 60 bool is_stable",
    "HloComputationProto": "1 string name, 2 *HloInstructionProto instructions, 5 int64 id, 6 int64 root_id",
    "HloModuleProto": "1 string name, 3 *HloComputationProto computations",
    "ExecutionProfile": "4 int64 compute_time_ns",
    "TensorLayoutConfig": "1 *int32 dims",
    "NodeLayoutConfig": "1 *TensorLayoutConfig tensors",
    "LayoutConfig": "1 *NodeLayoutConfig nodes",
    "HloModuleConfig": "1 LayoutConfig layout_config",
    "TileSizeConfig": "1 *int64 kernel_bounds, 2 *int64 output_bounds, 3 *int64 input_bounds",
    "HloOpConfig": "1 TileSizeConfig tile_size_config",
    "ConfigProfile": "1 HloOpConfig op_config, 2 HloModuleConfig module_config, 3 bool error, "
    "4 ExecutionProfile profile, 5 bool is_default",
    "ModuleTuningData": "1 HloModuleProto module, 2 uint64 fingerprint, 3 *ConfigProfile runs, "
    "4 *uint64 config_index_to_node",
    "TuningData": "1 *ModuleTuningData modules",
}
_PACKAGE = "tvm_gnn_cost"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
}


def _make_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="tvm_gnn_cost/xla.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            number, kind, field = text.split()
            element = kind.removeprefix("*")
            message.field.add(
                name=field,
                number=int(number),
                label=_Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL,
                type=_SCALARS.get(element, _Field.TYPE_MESSAGE),
                type_name=None if element in _SCALARS else f".{_PACKAGE}.{element}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _make_classes()
HloModuleProto = _CLASSES["HloModuleProto"]
ModuleTuningData = _CLASSES["ModuleTuningData"]
TuningData = _CLASSES["TuningData"]
