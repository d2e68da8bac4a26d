from __future__ import annotations

from tvm_gnn_cost.tpugraphs.format import OPCODE_COUNT
from tvm_gnn_cost.tpugraphs.format.opcodes import OPCODES


def test_opcodes_have_their_fixed_numbers():
    assert len(OPCODES) == 120
    for name, number in (("abs", 1), ("convolution", 26), ("reshape", 75), ("rsqrt", 81), ("tuple", 100), ("tan", 120)):
        assert OPCODES[name] == number
    assert list(OPCODES.values()) == list(range(1, OPCODE_COUNT))
