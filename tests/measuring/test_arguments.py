from __future__ import annotations

import numpy as np

from tvm_gnn_cost.measuring.arguments import Argument, draw, is_float, nudged


def test_floats_have_both_signs_or_are_above_zero() -> None:
    (signed,), (positive,) = (draw([Argument("float32", (64, 32))], kind) for kind in ("signed", "positive"))
    assert signed.shape == positive.shape == (64, 32)
    assert signed.dtype == positive.dtype == np.float32
    assert (signed < 0).any()
    assert (signed > 0).any()
    assert np.abs(signed).max() < 4
    assert (positive > 0).all()


def test_indices_are_in_range_and_reach_its_end() -> None:
    (drawn,) = draw([Argument("int64", (1000,), bound=7)])
    assert set(drawn.tolist()) == set(range(7))


def test_other_integers_are_what_their_type_holds() -> None:
    for dtype in ("int8", "uint8", "int32", "uint64", "bool"):
        (drawn,) = draw([Argument(dtype, (500,))])
        assert drawn.dtype == np.dtype(dtype)
        assert len(np.unique(drawn)) == (2 if dtype == "bool" else len(np.unique(drawn)))
        assert len(np.unique(drawn)) > 1
        assert (drawn < 0).any() == dtype.startswith("int")
    (divisors,) = draw([Argument("int32", (500,))], "positive")
    assert (divisors > 0).all()


def test_arguments_differ_from_each_other_and_are_the_same_in_every_call() -> None:
    arguments = [Argument("float32", (100,)), Argument("float32", (100,)), Argument("bfloat16", (100,))]
    first, second, short = draw(arguments)
    assert not np.array_equal(first, second)
    assert is_float(short.dtype)
    assert all(np.array_equal(one, other) for one, other in zip([first, second, short], draw(arguments), strict=True))


def test_large_arguments_and_scalars_and_empty_ones_are_drawn() -> None:
    large, scalar, empty = draw([Argument("float32", (1000, 1000)), Argument("float32", ()), Argument("int32", (0, 3))])
    assert len(np.unique(large[500])) > 900
    assert scalar.shape == ()
    assert empty.shape == (0, 3)


def test_a_nudge_is_as_large_as_asked() -> None:
    (values, integers) = draw([Argument("float64", (50,)), Argument("int32", (50,))])
    changed = np.abs(nudged(values, 1e-6) / values - 1)
    assert changed.min() > 0.9e-6
    assert changed.max() < 1.1e-6
    assert nudged(integers, 1e-6) is integers
