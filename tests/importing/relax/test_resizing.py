from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of, run
from tvm_gnn_cost.errors import InputError

X = np.random.default_rng(0).normal(size=(1, 3, 5, 7)).astype(np.float32)
MODES = ("half_pixel", "asymmetric", "align_corners")


def compare(x: Any, sizes: list[int], roi: Any = None, **attributes: Any) -> None:
    constants = {"r": np.zeros(0, np.float32) if roi is None else np.array(roi, np.float32), "s": np.array(sizes)}
    node = helper.make_node("Resize", ["x", "r", "", "s"], ["y"], **attributes)
    check(node, {"x": x}, constants=constants, opset=19, rtol=1e-4 if x.dtype != np.float16 else 3e-3, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["nearest", "linear", "cubic"])
def test_pictures(kind: str, mode: str) -> None:
    for size in ([10, 14], [20, 7], [4, 5], [11, 1]):
        compare(X, [1, 3, *size], mode=kind, coordinate_transformation_mode=mode)


@pytest.mark.parametrize("kind", ["nearest", "linear"])
def test_one_and_three_axes(kind: str) -> None:
    compare(X[:, :, 0], [1, 3, 12], mode=kind)
    compare(X[None], [1, 1, 6, 5, 14], mode=kind)


def test_other_axes_types_and_steps() -> None:
    compare(np.ascontiguousarray(X.transpose(0, 2, 3, 1)), [5, 14], mode="nearest", axes=[1, 2])
    compare(X.astype(np.float16), [10, 11], mode="linear", axes=[2, 3])
    compare((X * 50).astype(np.uint8), [15, 3], mode="nearest", axes=[2, 3], nearest_mode="floor")
    # Every second element, and repeated ones that do not start at the edge.
    compare(X[..., :6], [5, 3], mode="nearest", axes=[2, 3], coordinate_transformation_mode="asymmetric")
    compare(X, [15, 21], mode="nearest", axes=[2, 3], coordinate_transformation_mode="asymmetric", nearest_mode="ceil")


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_fewer_elements_with_a_wide_reach(kind: str) -> None:
    compare(X, [2, 3], mode=kind, axes=[2, 3], antialias=1)


def test_crops() -> None:
    more: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -3.0}
    for kind in ("nearest", "linear"):
        compare(X, [4, 12], [-0.2, 0.1, 0.8, 1.3], mode=kind, axes=[2, 3], **more)


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_older_operators(opset: int) -> None:
    for kind in ("nearest", "linear"):
        scales = np.array([1, 1, 2, 3], np.float32)
        if opset == 7:
            node = helper.make_node("Upsample", ["x"], ["y"], mode=kind, scales=scales.tolist())
            check(node, {"x": X}, opset=opset)
        else:
            node = helper.make_node("Upsample" if opset == 9 else "Resize", ["x", "s"], ["y"], mode=kind)
            check(node, {"x": X}, constants={"s": scales}, opset=opset)


def test_integers_between_others_are_refused() -> None:
    x = (X * 9).astype(np.int32)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    with pytest.raises(InputError, match=r"Resize.*integers"):
        run(model_of(node, {"x": x}, {"s": np.array([1, 1, 2, 2], np.float32)}, 19), {"x": x})


def test_repeated_pixels_are_relax_own_operator() -> None:
    """So that layouts can be chosen for it."""
    from tvm_gnn_cost.importing.relax.importer import import_onnx

    for kind, size in (("nearest", [10, 21]), ("linear", [10, 21]), ("linear", [3, 4])):
        node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=kind)
        mod = import_onnx(model_of(node, {"x": X}, {"s": np.array([1, 3, *size])}, 19), "net")
        assert "resize2d" in mod["main"].script()
