from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from tests.tpugraphs.modules import small_module, tile_run
from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto, ModuleTuningData, TuningData


def test_fields_have_the_numbers_of_xla_s_and_the_data_set_s_definitions():
    assert HloModuleProto(name="m").SerializeToString() == b"\x0a\x01m"  # field 1, a string
    computation = HloModuleProto(computations=[{"id": 2}]).SerializeToString()
    assert computation == b"\x1a\x02\x28\x02"  # field 3, a message with field 5, a number
    run = ModuleTuningData(runs=[{"profile": {}, "is_default": True}]).SerializeToString()
    assert run == b"\x1a\x04\x22\x00\x28\x01"
    assert ModuleTuningData(config_index_to_node=[3]).SerializeToString() == b"\x22\x01\x03"


def test_what_was_written_is_read_and_unknown_fields_are_skipped():
    kernel = {"module": small_module(), "runs": [tile_run(20, True)]}
    found = TuningData.FromString(TuningData(modules=[kernel]).SerializeToString())
    assert found.modules[0].module == small_module()
    assert list(found.modules[0].runs[0].op_config.tile_size_config.kernel_bounds) == [3, 3]
    assert HloModuleProto.FromString(b"\x0a\x01m\xf8\x3f\x07").name == "m"
    with pytest.raises(DecodeError):
        HloModuleProto.FromString(b"\xff\xff")


def test_absent_messages_can_be_told_from_empty_ones():
    without, with_it = ModuleTuningData(runs=[{}]).runs[0], ModuleTuningData(runs=[{"module_config": {}}]).runs[0]
    assert (without.HasField("module_config"), with_it.HasField("module_config")) == (False, True)
