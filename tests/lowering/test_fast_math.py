"""Elementwise functions as vectorized arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from scipy import special
from tvm import te, tirx

from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.fast_math import libm_calls

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]] = {
    "exp": (tirx.exp, np.exp),
    "sigmoid": (tirx.sigmoid, special.expit),
    "tanh": (tirx.tanh, np.tanh),
    "erf": (tirx.erf, special.erf),
    "log": (tirx.log, np.log),
    "sin": (tirx.sin, np.sin),
    "cos": (tirx.cos, np.cos),
    "rsqrt": (tirx.rsqrt, lambda x: 1 / np.sqrt(x)),
    **{
        f"power {exponent}": (lambda x, e=exponent: tirx.pow(x, e), lambda x, e=exponent: x**e)
        for exponent in (-4.0, -3.0, -1.0, -0.5, 0.0, 1.0, 2.0, 3.0, 7.0, 8.0)
    },
}

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 3.4e38, -3.4e38, 88.7, -103.9, 1.0)


#: AVX2, which every machine of the tests has, and AVX-512.
PROCESSORS = ("x86-64-v3", "x86-64-v4")


def built(
    compute: Callable[[Any], Any], size: int, dtype: str = "float32", lanes: int = 16, processor: str = PROCESSORS[0]
) -> tvm.runtime.Module:
    """A library whose function ``main`` applies a function to each value."""
    given = te.placeholder((size,), dtype)
    result = te.compute((size,), lambda i: compute(given[i]))
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([given, result])}))
    (loop,) = schedule.get_loops(schedule.get_sblock("compute"))
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return build(schedule.mod, tvm.target.Target({"kind": "llvm", "mcpu": processor}))


def applied(library: tvm.runtime.Module, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    result = tvm.runtime.tensor(np.empty_like(values))
    library["main"](tvm.runtime.tensor(values), result)
    return result.numpy()


def arguments() -> npt.NDArray[np.float32]:
    """Values of all magnitudes, among them those that have no ordinary result."""
    rng = np.random.default_rng(0)
    near = rng.normal(0, 3, 6000)
    wide = np.exp(rng.uniform(-100, 88, 6000)) * rng.choice([-1, 1], 6000)
    values = np.concatenate([near, wide, np.linspace(-110, 95, 4000), SPECIAL])
    return np.resize(values, 16384).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("lanes", "processor"), [(16, PROCESSORS[0]), (1, PROCESSORS[0]), (16, PROCESSORS[1])])
def test_function_is_exact_for_all_arguments(name: str, lanes: int, processor: str) -> None:
    if processor == PROCESSORS[1] and "avx512vl" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("no AVX-512 here")
    compute, reference = FUNCTIONS[name]
    values = arguments()
    library = built(compute, len(values), lanes=lanes, processor=processor)
    outputs = applied(library, values).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = reference(values.astype(np.float64))
        rounded = exact.astype(np.float32).astype(np.float64)
    finite = np.isfinite(rounded)
    if name in ("sin", "cos"):
        finite &= np.abs(values) < 2.0**51
        assert np.isnan(outputs[~finite]).all()
        rounded[~finite] = np.nan
    np.testing.assert_array_equal(outputs[~finite], rounded[~finite])
    np.testing.assert_array_equal(np.signbit(outputs[finite]), np.signbit(rounded[finite]))
    # Denormal numbers are multiples of 1.4e-45.
    np.testing.assert_allclose(outputs[finite], exact[finite], rtol=5e-7, atol=3e-45)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_of_the_c_library_is_called(name: str, tmp_path: Any) -> None:
    library = built(FUNCTIONS[name][0], 4096)
    library.export_library(str(tmp_path / "library.so"))
    assert libm_calls(tmp_path / "library.so") == set()


def test_libm_calls_are_named(tmp_path: Any) -> None:
    library = built(tirx.atan, 64)
    library.export_library(str(tmp_path / "library.so"))
    assert libm_calls(tmp_path / "library.so") == {"atanf"}


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf", "log", "power 3.0"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float64", 1e-14)])
def test_other_types(name: str, dtype: str, tolerance: float) -> None:
    compute, reference = FUNCTIONS[name]
    if name == "power 3.0":
        compute = lambda x: tirx.pow(x, tirx.const(3.0, dtype))  # noqa: E731
    values = np.linspace(0.1, 4, 64).astype(dtype)
    outputs = applied(built(compute, 64, dtype), values)
    np.testing.assert_allclose(outputs.astype(np.float64), reference(values.astype(np.float64)), rtol=tolerance)


def test_functions_of_functions() -> None:
    values = np.linspace(-20, 20, 4096).astype(np.float32)
    outputs = applied(built(lambda x: x * tirx.tanh(tirx.log(tirx.exp(x) + 1)), 4096), values)
    np.testing.assert_allclose(
        outputs, values * np.tanh(np.log1p(np.exp(values.astype(np.float64)))), rtol=3e-7, atol=2e-6
    )


def test_power_with_another_exponent_is_left_to_the_c_library() -> None:
    values = np.linspace(0.1, 4, 64).astype(np.float32)
    outputs = applied(built(lambda x: tirx.pow(x, 1.7), 64), values)
    np.testing.assert_allclose(outputs, values**1.7, rtol=1e-6)
