from __future__ import annotations

import numpy as np
import pytest

from tests.tpugraphs.modules import small_module
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import FIRST_DIMENSION_COLUMN, NODE_NUMBERS
from tvm_gnn_cost.tpugraphs.format.featurize import featurize, with_aggregates
from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto


def test_features_stand_where_the_data_set_has_them():
    graph = featurize(small_module())
    assert graph["node_feat"].shape == (5, 140)
    assert graph["node_opcode"].tolist() == [63, 0, 63, 26, 41]
    assert graph["edge_index"].tolist() == [[1, 0], [3, 2], [4, 1], [4, 3]]
    assert graph["node_splits"].tolist() == [0, 5]
    feat = graph["node_feat"]
    assert feat[:, 0].tolist() == [0, 1, 0, 0, 1]
    assert feat[0, 30] == 3
    conv, fusion = feat[3], feat[4]
    assert np.flatnonzero(conv[2:21]).tolist() == [11]  # f32
    assert np.flatnonzero(fusion[2:21]).tolist() == [16]  # tuple
    assert conv[21:29].tolist() == [2, 3, 4, 0, 0, 0, 9, 24]
    assert fusion[29] == 2
    assert fusion[31:37].tolist() == [1, 0, 0, 0, 0, 0]
    assert conv[37:45].tolist() == [3, 5, 0, 0, 0, 0, 8, 15]
    assert conv[45:53].tolist() == [2, 0, 0, 0, 0, 0, 2, 0]
    assert conv[53:61].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
    assert conv[85:93].tolist() == [1, 0, 0, 0, 0, 0, 1, 1]
    assert conv[93:107].tolist() == [1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0, 9, 10]
    assert conv[107:109].tolist() == [11, 12]
    assert fusion[109:121].tolist() == [1, 4, 5, 4, 2, 5, 7, 10, 30, 60, 90, 1800]
    assert fusion[121:125].tolist() == [7, 8, 24, 504]
    assert fusion[125:133].tolist() == [-1, 0, -1, -1, 2, 0, 2, 2]
    assert feat[:, 133].tolist() == [0, 0, 0, 1, 0]
    assert conv[134:].tolist() == [2, 0, 1, 0, 0, 0]
    assert conv[FIRST_DIMENSION_COLUMN] == 2
    assert conv[NODE_NUMBERS] == 2


def test_sums_and_products_are_of_the_whole_list():
    assert with_aggregates([], 2) == [0, 0, 0, 1]
    assert with_aggregates([], 2, product_if_empty=0) == [0, 0, 0, 0]
    assert with_aggregates([2, 3, 4], 2) == [2, 3, 9, 24]
    assert with_aggregates([2**32, 2**31], 2)[3] == -(2.0**63)  # as 64-bit integers overflow


def test_each_computation_that_is_no_body_ends_a_segment():
    module = small_module()
    module.computations[0].name = "cluster.1"
    assert featurize(module)["node_splits"].tolist() == [0, 2, 5]
    module.computations[1].name = "main"
    assert featurize(module)["node_splits"].tolist() == [0, 2, 5]


def test_what_a_module_lacks_is_named():
    with pytest.raises(InputError, match="the module 'empty' has no instruction"):
        featurize(HloModuleProto(name="empty"))
    module = small_module()
    module.computations[1].instructions[2].called_computation_ids.append(7)
    with pytest.raises(InputError, match=r"the instruction 'fusion' of 'small' refers to .*, 7, that is not"):
        featurize(module)
