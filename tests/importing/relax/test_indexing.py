from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of, run
from tvm_gnn_cost.errors import InputError

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((6, 4, 3)).astype(np.float32)

GATHERS = {
    "rows": ([[0, -1], [3, 2]], 0),
    "one row": (2, 0),
    "the last column": (-1, 2),
    "in steps": ([1, 3, 5], 0),
    "backwards": ([3, 2, 1], 1),
    "all": ([0, 1, 2], -1),
}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("is_constant", [True, False])
def test_gather(name: str, is_constant: bool) -> None:
    places, axis = GATHERS[name]
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
    indices = {"i": np.array(places, np.int64)}
    check(node, {"x": TABLE} | ({} if is_constant else indices), constants=indices if is_constant else None)


def test_a_constant_index_is_a_slice() -> None:
    from tvm_gnn_cost.importing.relax.importer import import_onnx

    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    text = import_onnx(model_of(node, {"x": TABLE}, {"i": np.array(2)}), "model").script()
    assert "strided_slice" in text
    assert "take" not in text


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_indices_never_reach_outside(dtype: Any) -> None:
    indices = np.array([7, 6, 5, 0, -1, -6, -7, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    check(node, {"i": indices}, constants={"x": TABLE}, wanted=[TABLE[indices % 6]])
    wanted = np.array([5, 5, 5, 0, 5, 0, 0, 5, 0])
    node = helper.make_node("GatherElements", ["x", "i"], ["y"])
    check(node, {"i": indices}, constants={"x": TABLE[:, 0, 0]}, wanted=[TABLE[wanted, 0, 0]])
    node = helper.make_node("GatherND", ["x", "i"], ["y"])
    check(node, {"i": indices[:, None].astype(np.int64)}, constants={"x": TABLE}, wanted=[TABLE[wanted]])


def test_constant_indices_out_of_the_range_are_refused() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="lookup")
    with pytest.raises(InputError, match=r"Gather \('lookup'\): its indices are out of bounds for an axis of size 6"):
        run(model_of(node, {"x": TABLE}, {"i": np.array([6])}), {"x": TABLE})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_constant", [True, False])
def test_gather_elements(axis: int, is_constant: bool) -> None:
    indices = {"i": RNG.integers(-3, 3, (2, 4, 3))}
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    check(node, {"x": TABLE} | ({} if is_constant else indices), constants=indices if is_constant else None)


@pytest.mark.parametrize(("batch", "shape", "depth"), [(0, (5,), 2), (0, (2, 2), 3), (1, (6, 2), 1), (2, (6, 4), 1)])
@pytest.mark.parametrize("is_constant", [True, False])
def test_gather_nd(batch: int, shape: tuple[int, ...], depth: int, is_constant: bool) -> None:
    indices = {"i": RNG.integers(-3, 3, (*shape, depth))}
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    check(node, {"x": TABLE} | ({} if is_constant else indices), constants=indices if is_constant else None)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_one_hot(axis: int, dtype: Any) -> None:
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=axis)
    indices = np.array([[0, 3, -1], [-4, 4, 2]], dtype)
    check(node, {"i": indices}, constants={"d": np.array(4, dtype), "v": np.array([-1, 2], np.float32)})


@pytest.mark.parametrize("batch", [0, 1])
def test_reverse_sequence(batch: int) -> None:
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], batch_axis=batch, time_axis=1 - batch)
    lengths = np.array([2, 1, 4, 3, 4, 2] if batch == 0 else [6, 1, 3, 2])
    check(node, {"x": TABLE, "n": lengths})


@pytest.mark.parametrize(("source", "wanted"), [(np.float32, np.int32), (np.int64, np.float64), (np.int8, np.uint8)])
def test_bit_cast(source: Any, wanted: Any) -> None:
    x = (TABLE * 100).astype(source)
    node = helper.make_node("BitCast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(np.dtype(wanted)))
    check(node, {"x": x}, wanted=[x.view(wanted)], opset=26)
