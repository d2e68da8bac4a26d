from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import model_of, reference
from tvm_gnn_cost.importing.interpolation import EXPANSIONS, resizing
from tvm_gnn_cost.importing.simplify import Refused, simplify

MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
EMPTY = np.zeros(0, np.float32)
X = np.random.default_rng(0).normal(size=(2, 3, 5, 7)).astype(np.float32)


def compare(x: Any, scales: Any, sizes: Any, roi: Any = EMPTY, opset: int = 19, **attributes: Any) -> None:
    """A constant, resized while a model is simplified, beside ONNX Runtime's result."""
    given = {"x": x, "roi": roi, "scales": np.asarray(EMPTY if scales is None else scales, np.float32)}
    if sizes is not None:
        given["sizes"] = np.array(sizes)
    names = ["x", "roi", "scales" if scales is not None else "", *(["sizes"] if sizes is not None else [])]
    model = model_of(helper.make_node("Resize", names, ["y"], **attributes), {}, given, opset)
    [(_, result)] = simplify(model, "net", ("Resize",), EXPANSIONS).outputs
    [wanted] = reference(model, {})
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_weighted_sums(mode: str, kind: str) -> None:
    pytest.importorskip("onnxruntime")
    compare(X, None, [2, 3, 13, 4], mode=kind, coordinate_transformation_mode=mode)
    compare(X, [1, 1, 2, 3], None, mode=kind, coordinate_transformation_mode=mode)
    compare(X, None, [2, 3, 1, 20], mode=kind, coordinate_transformation_mode=mode, antialias=1)
    if kind == "cubic":
        more: dict[str, Any] = {"exclude_outside": 1, "cubic_coeff_a": -0.5, "coordinate_transformation_mode": mode}
        compare(X, None, [9, 4], mode=kind, axes=[2, 3], antialias=1, **more)
        compare(X, None, [4, 9], mode=kind, axes=[2, 3], **more)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nearest_elements(rounding: str) -> None:
    pytest.importorskip("onnxruntime")
    for mode in MODES[: 5 if rounding.startswith("round") else 4]:
        options: dict[str, Any] = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": mode}
        compare(X, None, [2, 3, 13, 4], **options)
        compare((X * 9).astype(np.int32), None, [3, 14], axes=[-2, -1], **options)
    compare(X, [1, 1, 0.6, 1.3], None, opset=13, mode="nearest", nearest_mode=rounding)
    # In the middle but for the last bit.
    middle: dict[str, Any] = {
        "mode": "nearest",
        "nearest_mode": rounding,
        "coordinate_transformation_mode": "asymmetric",
    }
    compare(X, None, [2, 3, 5, 18], **middle)
    compare(X, [1, 1, 3, 2 / 7], None, **middle)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_ratio_of_sides_is_kept(policy: str) -> None:
    pytest.importorskip("onnxruntime")
    compare(X, None, [10, 30], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)
    compare(X, None, [3, 9], mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops_have_a_value_for_what_is_outside(mode: str) -> None:
    pytest.importorskip("onnxruntime")
    roi = np.array([0, 0, -0.3, 0.2, 1, 1, 0.7, 1.4], np.float32)
    options: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.5,
    }
    compare(X, None, [2, 3, 8, 9], roi, **options)
    compare(X, None, [2, 3, 1, 9], roi, **options)


@pytest.mark.parametrize(
    ("reason", "scales", "attributes"),
    [
        ("a fraction of an element", [1.5, 2.5], {"coordinate_transformation_mode": "align_corners"}),
        ("keeps its size at another scale", [1.1, 2], {"mode": "linear"}),
        ("no elements", [0.1, 2], {}),
        ("uncertain", [3, 3], {"nearest_mode": "floor", "coordinate_transformation_mode": MODES[4]}),
        ("do not fit", [1, 1, 2], {}),
        ("mode 'quintic' is unknown", [1, 2], {"mode": "quintic"}),
        ("nearest_mode 'odd' is unknown", [1, 2], {"nearest_mode": "odd"}),
        ("'sideways' is unknown", [1, 2], {"coordinate_transformation_mode": "sideways"}),
        ("roi does not fit", [1, 2], {"coordinate_transformation_mode": "tf_crop_and_resize"}),
    ],
)
def test_what_has_no_meaning_or_two_is_refused(reason: str, scales: list[float], attributes: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=reason):
        resizing("Resize", 19, attributes, (5, 7), [None, None, np.array(scales, np.float32)])


def test_a_crop_at_its_own_scale_is_refused() -> None:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    roi = np.array([0.5, 0, 1, 1], np.float32)
    with pytest.raises(Refused, match="at its own scale"):
        resizing("Resize", 19, crop, (5, 7), [None, roi, np.array([1, 2], np.float32)])
