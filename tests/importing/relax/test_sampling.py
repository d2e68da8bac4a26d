from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of, run
from tvm_gnn_cost.errors import InputError

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grids(mode: str, padding: str, aligned: int) -> None:
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned)
    inputs = {"x": drawn(2, 2, 4, 5), "g": drawn(2, 3, 6, 2) * 1.5}
    check(node, inputs, opset=20, rtol=1e-4, atol=1e-5)
    if mode != "cubic":
        check(node, {"x": drawn(1, 2, 3, 4, 2), "g": drawn(1, 2, 3, 2, 3) * 2}, opset=20, rtol=1e-4, atol=1e-5)


def test_grids_of_older_operators_and_other_types() -> None:
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="bicubic", padding_mode="border")
    check(node, {"x": drawn(1, 2, 4, 5), "g": drawn(1, 3, 6, 2)}, opset=16, rtol=1e-4, atol=1e-5)
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    check(node, {name: drawn(1, 2, 4, 2).astype(np.float16) for name in "xg"}, opset=20, rtol=3e-3, atol=1e-3)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_no_grid_reads_outside_of_the_picture(mode: str, padding: str) -> None:
    """Infinite and huge coordinates: what is read is a number of the picture."""
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding)
    places = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 3e9, -3e9, 1e6], np.float32)
    inputs = {"x": np.ones((1, 1, 3, 4), np.float32), "g": np.stack(np.meshgrid(places, places), -1)[None]}
    [result] = run(model_of(node, inputs, opset=20), inputs)
    wanted = (0, 1) if padding == "zeros" else (1,)
    assert np.isin(np.round(result, 4), wanted).all()


@pytest.mark.parametrize("shift", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize(("mode", "samples"), [("avg", 2), ("avg", 0), ("max", 3)])
def test_regions(mode: str, samples: int, shift: str) -> None:
    boxes = [[0, 0, 9, 7], [-3, 2, 4, 30], [6.3, 6.1, 6.4, 8.8], [5, 5, 3, 3], [2, 1, 60, 50], [40, 40, 50, 50]]
    more = {"mode": mode, "sampling_ratio": samples, "coordinate_transformation_mode": shift, "spatial_scale": 0.5}
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], output_height=3, output_width=2, **more)
    pictures = np.array([0, 1, 1, 0, 1, 0])
    check(
        node, {"x": drawn(2, 3, 8, 10), "r": np.array(boxes, np.float32), "b": pictures}, opset=16, rtol=1e-4, atol=1e-5
    )


def test_regions_of_pictures_that_there_are_not() -> None:
    inputs = {"x": drawn(2, 1, 4, 4), "r": np.full((3, 4), 2, np.float32), "b": np.array([-7, 1, 10**12])}
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=1)
    [result] = run(model_of(node, inputs, opset=16), inputs)
    kept = {**inputs, "b": np.array([0, 1, 1])}
    [wanted] = run(model_of(node, kept, opset=16), kept)
    np.testing.assert_array_equal(result, wanted)


def test_the_largest_of_an_unknown_number_is_refused() -> None:
    inputs = {"x": drawn(1, 1, 4, 4), "r": drawn(1, 4), "b": np.zeros(1, np.int64)}
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], mode="max")
    with pytest.raises(InputError, match=r"RoiAlign.*sampling_ratio must be given"):
        run(model_of(node, inputs, opset=16), inputs)


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_deformed_convolutions(groups: int, offset_groups: int) -> None:
    more = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1], "kernel_shape": [3, 2]}
    inputs = {
        "x": drawn(2, 4, 7, 8),
        "w": drawn(6, 4 // groups, 3, 2),
        "o": drawn(2, offset_groups * 12, 4, 7) * 2,
        "b": drawn(6),
        "m": drawn(2, offset_groups * 6, 4, 7),
    }
    node = helper.make_node("DeformConv", list(inputs), ["y"], group=groups, offset_group=offset_groups, **more)
    check(node, inputs, opset=19, rtol=1e-4, atol=1e-4)
    short = {name: inputs[name] for name in "xwo"}
    node = helper.make_node("DeformConv", list(short), ["y"], group=groups, offset_group=offset_groups, **more)
    check(node, short, opset=19, rtol=1e-4, atol=1e-4)
