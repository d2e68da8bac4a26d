from __future__ import annotations

import doctest
import math

import numpy as np
import pytest

from tvm_gnn_cost.tuning import comparison
from tvm_gnn_cost.tuning.comparison import fault, limit, relative_difference, tell_nothing


def test_its_examples_hold() -> None:
    assert doctest.testmod(comparison).attempted > 0
    assert doctest.testmod(comparison).failed == 0


def test_the_difference_is_relative_to_the_largest_value_of_each_output() -> None:
    reference = [np.array([1.0, -4.0], np.float32), np.array([0.5], np.float32)]
    assert relative_difference(reference, reference) == 0
    assert relative_difference([reference[0] * 1.5, reference[1]], reference) == 0.5
    assert relative_difference([reference[0], reference[1] * 3], reference) == 2
    assert relative_difference([np.array([True]), np.zeros(0)], [np.array([False]), np.zeros(0)]) == 1
    assert relative_difference(reference[:1], reference) == math.inf
    assert relative_difference([reference[0][:, None], reference[1]], reference) == math.inf


def test_no_number_is_equal_to_itself_alone() -> None:
    odd = np.array([1.0, np.nan, np.inf, -np.inf])
    assert relative_difference([odd], [odd]) == 0
    for place, value in ((0, np.nan), (1, 0.0), (1, np.inf), (2, np.nan), (2, -np.inf), (3, 5.0)):
        other = odd.copy()
        other[place] = value
        assert relative_difference([other], [odd]) == math.inf
        assert relative_difference([odd], [other]) == math.inf
        assert fault([other], [odd], 1.0, "ONNX").startswith("has NaN or infinity in output 0")


def test_a_fault_says_what_it_is() -> None:
    right = [np.array([1.0, 2.0], np.float32)]
    assert not fault(right, right, 0.0, "ONNX")
    assert not fault([right[0] * np.float32(1.0001)], right, 3e-4, "ONNX")
    assert fault([right[0] * np.float32(1.01)], right, 3e-4, "ONNX") == (
        "differs from ONNX by 1% of an output's largest value"
    )
    assert fault([right[0].astype(bool)], right, 1.0, "ONNX") == (
        "returns bool[2] as output 0, but ONNX returns float32[2]"
    )
    assert fault([right[0][None]], right, 1.0, "ONNX").startswith("returns float32[1, 2] as output 0")
    assert fault([], right, 1.0, "PyTorch") == "has 0 outputs, but PyTorch has 1"


@pytest.mark.parametrize(
    ("dtypes", "most"),
    [(["int64", "bool"], 0.0), (["float64"], 1e-6), (["float32"], 5e-4), (["float16"], 0.06), (["bfloat16"], 0.2)],
)
def test_the_limit_depends_on_the_coarsest_type(dtypes: list[str], most: float) -> None:
    assert 0 <= limit(dtypes) <= most
    assert limit([*dtypes, "int64"]) == limit(dtypes)
    assert limit(["float64", *dtypes]) >= limit(dtypes)


def test_outputs_that_tell_nothing() -> None:
    assert tell_nothing([np.zeros((2, 3)), np.full(4, np.nan)])
    assert tell_nothing([np.ones(5, bool), np.zeros(0)])
    assert not tell_nothing([np.zeros((2, 3)), np.arange(4)])
    assert not tell_nothing([np.array(3.0)])
