from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.tpugraphs.models.configured import check_order_of_configs, fit, graph
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput
from tvm_gnn_cost.tpugraphs.models.copies import Copies, requests

OTHER, KEEPS_MINOR, FIRST, AS_FIRST, FIRST_KEEPS, COUNT, COUNT_OTHER, PRODUCER, AS_PRODUCER = range(11, 20)
ROWS, COLUMNS = (1, 0), (0, 1)


def products(*configs: dict[tuple[int, int], tuple[int, ...]], size: tuple[int, ...] = (8, 4)) -> ConfiguredInput:
    """Node 0 is a parameter that nodes 1 and 2 multiply with themselves; both are configurable, and 2 multiplies 1 too.

    A configuration gives layouts by the place among the configurable nodes and the place of the tensor.
    """
    layouts = torch.full((len(configs), 2, 3, 6), -1, dtype=torch.int8)
    for number, config in enumerate(configs):
        for (node, place), layout in config.items():
            layouts[number, node, place, : len(layout)] = torch.tensor(layout)
    rank = len(size)
    row_major = torch.tensor([*range(rank - 1, -1, -1), *[-1] * (6 - rank)], dtype=torch.int8)
    return ConfiguredInput(
        torch.zeros(3, 134),
        torch.tensor([75, 34, 34]),
        row_major.repeat(3, 1),
        torch.tensor([[1, 2, 2], [0, 0, 1]]),
        torch.tensor([1, 2]),
        layouts.flatten(2),
        torch.tensor([[1, 0, 0], [2, 1, 0]]),
        torch.tensor([[*size, *[0] * (6 - rank)]] * 3),
    )


def test_the_first_request_for_a_tensor_is_the_one_earliest_in_the_module():
    # The first configuration asks both for the parameter's columns, the second asks the second for its rows.
    found = requests(products({(0, 2): COLUMNS, (1, 2): COLUMNS}, {(0, 2): COLUMNS, (1, 2): ROWS}))
    assert found.config.tolist() == [0, 0, 1, 1]
    features = found.features
    assert features[:, FIRST].tolist() == [1, 0, 1, 0]
    assert features[:, AS_FIRST].tolist() == [1, 1, 1, 0]
    assert features[:, OTHER].tolist() == [1, 1, 1, 0]
    assert features[:, KEEPS_MINOR].tolist() == [0, 0, 0, 1]
    assert features[:, FIRST_KEEPS].tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(features[:, COUNT], 2 / 5)
    np.testing.assert_allclose(features[:, COUNT_OTHER], [2 / 5, 2 / 5, 1 / 5, 1 / 5])


def test_a_producer_asks_for_its_output_before_its_consumers():
    found = requests(products({(0, 0): ROWS, (1, 1): COLUMNS}))
    by_place = {int(row[2:5].argmax()): row for row in found.features}
    assert by_place[0][FIRST] == 1
    assert by_place[1][[FIRST, AS_FIRST, FIRST_KEEPS, PRODUCER, AS_PRODUCER]].tolist() == [0, 0, 1, 1, 0]


def test_sizes_stand_in_the_order_of_the_layout_and_as_shares():
    found = requests(products({(0, 2): COLUMNS}, {(0, 2): ROWS}))
    np.testing.assert_allclose(found.features[:, 0], 5 / 10, rtol=1e-6)  # 8 x 4 = 2^5
    np.testing.assert_allclose(np.exp(found.log_share), 1 / 6, rtol=1e-6)  # six tensors of one size
    np.testing.assert_allclose(found.features[:, 5:7] * 5, [[3, 2], [2, 3]], rtol=1e-6)


def test_where_a_dimension_of_size_one_stands_makes_no_other_layout():
    found = requests(products({(0, 2): (0, 2, 1)}, {(0, 2): (2, 0, 1)}, {(0, 2): (1, 2, 0)}, size=(1, 8, 4)))
    assert found.features[:, OTHER].tolist() == [0, 0, 1]
    assert (found.features[0] == found.features[1]).all()


def test_nothing_that_is_asked_for_costs_nothing_more():
    net = Copies().eval()
    scores = net(products({}, {(0, 2): COLUMNS}, {}))
    assert scores[0] == scores[2] > scores[1]
    assert torch.isfinite(net(replace(products({}), operands=torch.full((2, 3), -1)))).all()
    nodes = torch.zeros(0, dtype=torch.long)
    none = replace(products({}, {}), config_nodes=nodes, configs=torch.zeros(2, 0, 18).char())
    assert net(replace(none, operands=torch.zeros(0, 3, dtype=torch.long))).shape == (2,)


def test_the_order_of_configurations_does_not_matter():
    torch.manual_seed(0)
    check_order_of_configs(Copies().eval(), "layout")


def test_it_learns_what_a_layout_costs():
    torch.manual_seed(0)
    net = Copies()
    margin = lambda given, cost: torch.relu(1 + net(given)[:, None] - net(given))[cost[:, None] > cost].mean()  # noqa: E731
    assert fit(net, "layout", margin, steps=400) > 0.9


def test_it_reads_operands_and_no_edges():
    torch.manual_seed(0)
    net, given = Copies().eval(), graph()
    assert torch.equal(net(given), net(replace(given, edge_index=given.edge_index[:, :0])))
    assert not torch.equal(net(given), net(replace(given, operands=given.operands.flip(1))))
