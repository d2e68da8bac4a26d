from __future__ import annotations

from tests.tpugraphs.published import layout_fields, tile_fields
from tvm_gnn_cost.tpugraphs import format
from tvm_gnn_cost.tpugraphs.format import OPCODE_COUNT, OPCODES


def test_the_sizes_are_those_of_the_data_set():
    assert (format.NODE_FEATURES, format.NODE_NUMBERS, format.LAYOUT_RANK) == (140, 134, 6)
    assert (format.LAYOUT_VALUES, format.TILE_VALUES) == (18, 24)
    assert (format.NO_DIMENSION, format.LAST_DIMENSION, format.LAYOUT_SYMBOLS) == (-1, 5, 7)
    assert (format.FIRST_DIMENSION_COLUMN, format.OPCODE_COUNT, format.OPCODE_LIMIT) == (21, 121, 256)


def test_files_have_these_sizes():
    assert layout_fields()["node_feat"].shape[1] == format.NODE_FEATURES
    assert layout_fields()["node_config_feat"].shape[2] == format.LAYOUT_VALUES
    assert tile_fields()["config_feat"].shape[1] == format.TILE_VALUES


def test_opcodes_have_their_fixed_numbers():
    assert len(OPCODES) == 120
    for name, number in (("abs", 1), ("convolution", 26), ("reshape", 75), ("rsqrt", 81), ("tuple", 100), ("tan", 120)):
        assert OPCODES[name] == number
    assert list(OPCODES.values()) == list(range(1, OPCODE_COUNT))
