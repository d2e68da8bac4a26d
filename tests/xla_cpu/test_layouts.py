"""What JAX and XLA make of layouts; the HLO is theirs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import Array

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import OPCODES
from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction, Operations, random_configs


def network(ops: Operations) -> Array:
    """A strided, grouped convolution, a reshape and two dots, the second of which has a batch."""
    x = ops.convolution(ops.parameter(2, 8, 8, 4), ops.parameter(3, 3, 2, 6), stride=2, groups=2)
    x = ops.reshape(x, 2, -1, 6)
    x = jax.nn.relu(ops.dot(x, ops.parameter(6, 5)))
    return ops.dot(x, ops.parameter(2, 5, 3), batch=1)


def layout(*tensors: tuple[int, ...]) -> list[int]:
    padded = [[*one, *[-1] * (6 - len(one))] for one in (*tensors, *[()] * (3 - len(tensors)))]
    return [value for one in padded for value in one]


def test_the_graph_is_the_one_jax_lowers():
    function = ConfigurableFunction(network)
    fields = featurize(function.module)
    names = {number: name for name, number in OPCODES.items()}
    opcodes = [names[fields["node_opcode"][node]] for node in function.config_nodes]
    assert opcodes == ["convolution", "reshape", "dot", "dot"]
    assert function.ranks == [(4, 4, 4), (3, 4), (3, 3, 2), (3, 3, 3)]
    convolution, reshape, _, last = fields["node_feat"][function.config_nodes]
    assert convolution[21:25].tolist() == [2, 4, 4, 6]
    assert convolution[37:39].tolist() == [3, 3]  # the window's size
    assert convolution[45:47].tolist() == [2, 2]  # its stride
    assert convolution[107] == 2  # groups
    assert reshape[21:24].tolist() == [2, 16, 6]
    assert last[134:137].tolist() == [2, 1, 0]  # row-major
    consumers = {tuple(edge) for edge in fields["edge_index"].tolist()}
    assert (function.config_nodes[1], function.config_nodes[0]) in consumers
    # Of parameters, numbered in their order.
    parameters = fields["node_feat"][fields["node_opcode"] == OPCODES["parameter"]]
    assert {0, 1, 2, 3} <= set(parameters[:, 30].tolist())


def test_layouts_reach_xla_and_change_no_result():
    function = ConfigurableFunction(network)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in function.shapes]
    config = np.array(
        [
            layout((0, 3, 1, 2), (2, 1, 3, 0), (0, 1, 2, 3)),
            layout((0, 1, 2)),
            layout((), (1, 0, 2), (0, 1)),
            layout((2, 0, 1)),
        ],
        np.int8,
    )
    lowered = function.lower(config)
    asked = lowered.as_text(dialect="hlo")
    for shape in ("2,4,4,6]{0,3,1,2}", "2,8,8,4]{2,1,3,0}", "3,3,2,6]{0,1,2,3}", "2,16,6]{0,1,2}", "6,5]{0,1}"):
        assert f"f32[{shape} custom-call" in asked
    assert asked.count('custom_call_target="LayoutConstraint"') == 7
    compiled, free = lowered.compile(), function.lower(None).compile()
    np.testing.assert_allclose(compiled(*arrays), free(*arrays), rtol=1e-4, atol=1e-5)
    copies = [one.as_text().count(" copy(") + one.as_text().count(" transpose(") for one in (compiled, free)]
    assert copies[0] > copies[1]


def test_random_configs():
    ranks = [(4, 4, 4), (3, 4), (1, 2, 2)]
    configs = random_configs(ranks, 50, np.random.default_rng(3))
    assert (configs.dtype, configs.shape) == (np.int8, (50, 3, 18))
    assert (configs[0] == -1).all()
    assert len({one.tobytes() for one in configs}) == 50
    np.testing.assert_array_equal(configs, random_configs(ranks, 50, np.random.default_rng(3)))
    tensors = configs.reshape(50, 3, 3, 6)
    for number, of_node in enumerate(ranks):
        for place in range(3):
            rank = of_node[place] if place < len(of_node) else 0
            given = tensors[:, number, place][tensors[:, number, place, 0] >= 0]
            # A vector has one layout, and a reshape has no kernel.
            assert (len(given) > 0) == (rank > 1)
            assert (np.sort(given[:, :rank], axis=1) == np.arange(rank)).all()
            assert (given[:, rank:] == -1).all()


def test_more_configs_than_there_are():
    with pytest.raises(InputError, match="expected 20 different layouts, but only 3 were drawn"):
        random_configs([(2,)], 20, np.random.default_rng(0))
