import math

import pytest

pytest.importorskip("tvm")

from tvm_gnn_cost.tuning.scheduler import EagerGradient


def gain(*best: float) -> float:
    return EagerGradient(alpha=0.5, window=2)._inst._gain(best)


def test_what_a_task_may_gain():
    # (8 - 2) / 2 a batch lately, and 2 s spread over its four batches.
    assert gain(9.0, 8.0, 4.0, 2.0) == pytest.approx(0.5 * 3.0 + 0.5 * 0.5)
    # Too few batches to tell: as much as there is left.
    assert gain(4.0, 2.0) == pytest.approx(0.5 * 2.0 + 0.5 * 1.0)
    assert gain(math.inf, math.inf, 2.0) == pytest.approx(0.5 * 2.0 + 0.5 * 2.0 / 3)
    # A long stand-still is worth less than a fresh task of the same latency, and what never ran is worth nothing.
    assert gain(2.0, 2.0, 2.0, 2.0) < gain(2.0)
    assert gain(math.inf) == gain() == 0.0
