from __future__ import annotations

import numpy as np

from tvm_gnn_cost.tpugraphs.preparation.pack import pack, unpack


def test_packing_loses_nothing():
    layouts = np.random.default_rng(0).integers(-1, 6, (50, 7, 18)).astype(np.int8)
    layouts[0] = -1
    layouts[1] = 5
    packed = pack(layouts)
    assert packed.shape == (50, 7, 3)
    assert packed.dtype == np.int32
    assert (packed.min(), packed.max()) == (0, 7**6 - 1)
    np.testing.assert_array_equal(unpack(packed), layouts)
    assert unpack(packed).dtype == np.int8


def test_each_place_has_its_power_of_seven():
    assert pack(np.array([0, -1, 1, -1, -1, 5], np.int8)).tolist() == [1 + 2 * 7**2 + 6 * 7**5]
    assert pack(np.zeros((0, 4, 18), np.int8)).shape == (0, 4, 3)
    assert unpack(np.zeros((0, 4, 3), np.int32)).shape == (0, 4, 18)
