from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

RNG = np.random.default_rng(0)


def _parts(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], axis=-1).astype(np.float32)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("is_inverse", [False, True])
def test_transforms(parts: int, axis: int, length: int | None, is_inverse: bool) -> None:
    x = RNG.standard_normal((2, 8, 9, parts)).astype(np.float32)
    values = x[..., 0] + 1j * x[..., 1] if parts == 2 else x[..., 0]
    wanted = (np.fft.ifft if is_inverse else np.fft.fft)(values, length, axis)
    constants = {"axis": np.array(axis)} | ({} if length is None else {"n": np.array(length)})
    node = helper.make_node("DFT", ["x", "n" if length else "", "axis"], ["y"], inverse=int(is_inverse))
    check(node, {"x": x}, constants=constants, wanted=[_parts(wanted)], rtol=1e-4, atol=1e-4)


def test_one_sided_transforms_and_back() -> None:
    x = RNG.standard_normal((2, 10, 1)).astype(np.float32)
    forward = helper.make_node("DFT", ["x"], ["y"], onesided=1)
    check(forward, {"x": x}, wanted=[_parts(np.fft.rfft(x[..., 0]))], rtol=1e-4, atol=1e-4)
    back = helper.make_node("DFT", ["y"], ["x"], onesided=1, inverse=1)
    check(back, {"y": _parts(np.fft.rfft(x[..., 0]))}, wanted=[x], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("is_one_sided", [0, 1])
def test_windows_of_a_signal(is_constant: bool, is_one_sided: int) -> None:
    x, window = RNG.standard_normal((2, 40, 1)).astype(np.float32), {"w": np.hanning(16).astype(np.float32)}
    node = helper.make_node("STFT", ["x", "s", "w"], ["y"], onesided=is_one_sided)
    frames = np.stack([x[:, start : start + 16, 0] * window["w"] for start in range(0, 25, 8)], axis=1)
    wanted = (np.fft.rfft if is_one_sided else np.fft.fft)(frames)
    constants = {"s": np.array(8)} | (window if is_constant else {})
    inputs = {"x": x} | ({} if is_constant else window)
    check(node, inputs, constants=constants, wanted=[_parts(wanted)], rtol=1e-4, atol=1e-4)
