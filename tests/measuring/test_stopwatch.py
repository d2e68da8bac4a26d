"""Seconds of the phases of a run."""

from __future__ import annotations

import time

import pytest

from tvm_gnn_cost.measuring.stopwatch import timed


def fail_slowly() -> None:
    time.sleep(0.02)
    raise ValueError("refused")


def test_seconds_add_up_even_where_a_block_fails() -> None:
    seconds = {"running": 1.0}
    with timed(seconds, "building"):
        time.sleep(0.02)
    with pytest.raises(ValueError, match="refused"), timed(seconds, "building"):
        fail_slowly()
    assert 0.04 <= seconds.pop("building") < 5
    assert seconds == {"running": 1.0}
