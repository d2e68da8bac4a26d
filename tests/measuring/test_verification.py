from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.measuring.arguments import Argument
from tvm_gnn_cost.measuring.verification import Reference, make_reference, tolerance

FLOATS = (Argument("float32", (8, 64)), Argument("float32", (64, 16)), Argument("float32", (8, 16), written=True))


def product(values: list[Any]) -> list[Any]:
    return [values[0] @ values[1]]


def reference(run: Any = product, arguments: Any = FLOATS, dtypes: Any = ("float32",), terms: int = 64) -> Reference:
    return make_reference(run, arguments, dtypes, terms)


def test_another_order_of_additions_is_right_and_another_result_is_not() -> None:
    made = reference()
    (right,) = made.expected
    assert made.verifies
    assert not made.check([right.copy()])
    assert not made.check([right * np.float32(1 + 1e-6)])
    assert "computes a wrong output 0: 1 of 128 values" in made.check([right + _one(right)])
    assert "128 of 128" in made.check([-right])
    assert "instead of float32[8, 16]" in made.check([right.reshape(16, 8)])
    assert "instead of float32" in made.check([right.astype(np.float64)])
    assert "has 0 outputs, not 1" in made.check([])


def _one(like: Any) -> Any:
    found = np.zeros_like(like)
    found[3, 5] = 0.01 * np.abs(like).max()
    return found


def test_no_number_must_be_in_the_same_places() -> None:
    def run(values: list[Any]) -> list[Any]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return [np.where(values[0] > 0.7, np.inf, np.sqrt(np.maximum(values[0], -0.5)))]

    made = reference(run, (Argument("float32", (40, 40)), Argument("float32", (40, 40), written=True)), terms=1)
    (right,) = made.expected
    assert not made.check([right.copy()])
    for wrong in (np.nan_to_num(right, nan=0.0, posinf=np.inf), np.where(np.isinf(right), np.nan, right), -right):
        assert made.check([wrong.astype(np.float32)])


def test_a_nan_instead_of_a_number_is_wrong() -> None:
    made = reference()
    wrong = made.expected[0].copy()
    wrong[0, 0] = np.nan
    assert "NaN or infinity at other positions" in made.check([wrong])


def test_integers_are_equal_but_for_what_is_rounded() -> None:
    arguments = (Argument("int32", (100, 100)), Argument("int32", (100, 100), written=True))
    exact = reference(lambda values: [values[0] * 2], arguments, ("int32",), 1)
    wrong = exact.expected[0].copy()
    wrong[0, 0] += 1
    assert not exact.check([exact.expected[0]])
    assert "1 of 10000 values" in exact.check([wrong])
    quantized = reference(
        lambda values: [np.rint(values[0] * 100).astype(np.int8)],
        (Argument("float32", (100, 100)), Argument("int8", (100, 100), written=True)),
        ("float32", "int8"),
        1,
    )
    wrong = quantized.expected[0].copy()
    wrong[0, 0] += 1
    assert not quantized.check([wrong])
    wrong[0, 0] += 5
    assert quantized.check([wrong])
    assert quantized.check([quantized.expected[0] + np.int8(1)])


def test_few_values_that_are_computed_from_rounded_ones_may_differ_by_a_step() -> None:
    arguments = (Argument("float32", (100, 100)), Argument("float32", (100, 100), written=True))

    def run(values: list[Any]) -> list[Any]:
        return [np.rint(values[0] * 40) / np.float32(40)]

    for rounds in (False, True):
        made = make_reference(run, arguments, ("float32",), 1, rounds)
        changed = made.expected[0].copy()
        changed[0, 0] += np.float32(1 / 40)
        assert bool(made.check([changed])) != rounds
        changed[0, 1] += np.float32(1)
        assert made.check([changed])
        assert made.check([made.expected[0] + np.float32(1 / 40)])


def test_what_a_rounding_changes_much_may_differ_there_alone() -> None:
    def run(values: list[Any]) -> list[Any]:
        return [np.concatenate([np.sin(values[0][:1] * 1e4), values[0][1:]])]

    arguments = (Argument("float32", (30, 30)), Argument("float32", (30, 30), written=True))
    made = reference(run, arguments, terms=1)
    assert 0 < len(made.loose[0][0]) <= 30
    places = made.loose[0][0]
    assert (places < 30).all()
    changed = made.expected[0].copy()
    changed.flat[places[0]] += np.float32(0.9 * made.loose[0][1][0])
    assert not made.check([changed])
    changed[5, 5] += np.float32(0.9 * made.loose[0][1][0])
    assert "1 of 900" in made.check([changed])


def test_arguments_that_verify_nothing_are_drawn_anew() -> None:
    arguments = (Argument("float32", (10, 10)), Argument("float32", (10, 10), written=True))
    with np.errstate(invalid="ignore"):
        roots = reference(lambda values: [np.sqrt(values[0] - np.float32(0.2))], arguments, terms=1)
    assert (roots.kind, roots.verifies) == ("positive", True)
    zeros = reference(lambda values: [np.zeros_like(values[0])], arguments, terms=1)
    assert (zeros.kind, zeros.verifies) == ("signed", False)
    assert zeros.check([np.ones((10, 10), np.float32)])


def test_short_floats_have_a_wide_limit() -> None:
    arguments = tuple(one._replace(dtype="float16") for one in FLOATS)
    made = reference(product, arguments, ("float16",))
    right = made.expected[0].astype(np.float16)
    assert not made.check([right * np.float16(1.002)])
    assert made.check([right * np.float16(1.1)])


@pytest.mark.parametrize("dtypes", [("float32",), ("float16",), ("bfloat16",)])
def test_a_reference_is_read_as_it_was_written(dtypes: tuple[str], tmp_path: Path) -> None:
    made = reference(product, tuple(one._replace(dtype=dtypes[0]) for one in FLOATS), dtypes)
    made.save(tmp_path / "one.npz")
    read = Reference.load(tmp_path / "one.npz")
    assert (read.kind, read.tolerance, read.verifies, read.rounds) == (made.kind, made.tolerance, made.verifies, False)
    assert all(np.array_equal(one, other) for one, other in zip(read.expected, made.expected, strict=True))
    assert [len(places) for places, _ in read.loose] == [len(places) for places, _ in made.loose]


def test_the_limits_of_a_float32_output_are_a_few_ten_thousandths_at_most() -> None:
    assert tolerance(1e-6, 10**12) <= 3e-4
    assert tolerance(1e-6, 1) < tolerance(1e-6, 1000) < tolerance(1e-3, 1000)
