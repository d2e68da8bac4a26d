from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def of_constants(node: Any, inputs: dict[str, Any], opset: int = 18, **constants: Any) -> None:
    check(model_of(node, inputs, {name: np.array(constant) for name, constant in constants.items()}, opset), inputs)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
def test_elements_keep_their_type(dtype: Any) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Concat", ["b", "b"], ["c"], axis=-1),
        helper.make_node("Unsqueeze", ["c", "first"], ["y"]),
    ]
    x = {"x": (floats(2, 6) > 0).astype(dtype)}
    constants = {"shape": np.array([4, -1]), "first": np.array([0])}
    check(model_of(nodes, x, constants), x)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [4], [0], [1]),
        ([-3], [1000], [1], [2]),
        ([-1], [-1000], [0], [-1]),
        ([4, 0], [0, 3], [0, 1], [-2, 1]),
        ([2], [-1], [-1], [1]),
    ],
)
def test_slices(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> None:
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
    of_constants(node, {"x": floats(5, 7)}, starts=starts, ends=ends, axes=axes, steps=steps)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [[0, 1, 2, 0], [1, 2, 2, 3]])
def test_padding(mode: str, pads: list[int]) -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    of_constants(node, {"x": floats(4, 5)}, 19, pads=pads)


def test_padding_that_cuts_off_and_pads_with_a_value() -> None:
    node = helper.make_node("Pad", ["x", "pads", "value", "axes"], ["y"])
    of_constants(node, {"x": floats(4, 5)}, 19, pads=[-1, 2], value=np.float32(-7), axes=[-1])
    # Only known when the network runs.
    x, value = floats(2, 3), np.array(1.5, np.float32)
    inputs = {"x": x, "value": value}
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"])
    check(model_of(node, inputs, {"pads": np.array([0, 1, 0, 0])}, 19), inputs)


def test_expand_to_smaller_sizes_broadcasts_both_ways() -> None:
    of_constants(helper.make_node("Expand", ["x", "shape"], ["y"]), {"x": floats(3, 1)}, shape=[1, 4])
    of_constants(helper.make_node("Tile", ["x", "repeats"], ["y"]), {"x": floats(2, 3)}, repeats=[2, 3])
    # TVM's own tile is compiled wrongly for AVX-512 at these sizes.
    node = helper.make_node("Tile", ["x", "repeats"], ["y"])
    of_constants(node, {"x": floats(2, 3, 4, 5)}, repeats=[7, 6, 4, 2])


def test_splits() -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1)
    of_constants(node, {"x": floats(2, 5)}, sizes=[2, 3])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-1, 0, 2])
def test_triangles(upper: int, k: int) -> None:
    of_constants(helper.make_node("Trilu", ["x", "k"], ["y"], upper=upper), {"x": floats(2, 3, 4)}, k=k)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    check(helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode), {"x": floats(1, 8, 2, 3)}, opset=13)
    check(helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2), {"x": floats(1, 2, 4, 6)}, opset=13)
