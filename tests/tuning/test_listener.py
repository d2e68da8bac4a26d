from __future__ import annotations

import math
from pathlib import Path

from tests.tuning.test_result import result
from tvm_gnn_cost.progress import Event, TrialsMeasured
from tvm_gnn_cost.tuning.listener import ResultListener
from tvm_gnn_cost.tuning.result import load_result


def test_a_batch_is_counted_drawn_and_saved(tmp_path: Path) -> None:
    found, events = result(), list[Event]()
    found.curve[-1] = type(found.curve[-1])(0, 100.0, 9.0)
    found.seconds = {"mutation": 5.0}
    listener = ResultListener(found, tmp_path, events.append, lambda: True)
    listener.measured(0, [3.0, math.inf])
    listener.spent({"mutation": 1.0, "building": 2.0})
    listener.spent({"mutation": 4.0, "building": 2.5})
    assert events == [TrialsMeasured("a", 2, 8, 7.0, 9.0)]
    assert found.curve[-1].trials == 2
    # The seconds go on from the earlier run's, and those of this run are not added twice.
    assert 100.0 <= found.curve[-1].seconds < 101.0
    assert found.seconds == {"mutation": 9.0, "building": 2.5}
    assert load_result(tmp_path).curve == found.curve
    assert listener.interrupted()
