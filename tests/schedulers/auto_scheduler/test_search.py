from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.schedulers.auto_scheduler import search
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.auto_scheduler.verification import TaskVerifier
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings

BUILD, RUN = "auto_scheduler.local_builder.build", "auto_scheduler.local_runner.run"


def test_all_of_the_time_is_accounted_for(searched: tuple[Path, Listener]) -> None:
    _, listener = searched
    assert set(listener.seconds) == {"building", "running", "mutation"}
    assert all(seconds > 0 for seconds in listener.seconds.values())


def test_every_reported_batch_is_in_the_records(searched: tuple[Path, Listener]) -> None:
    work_dir, listener = searched
    assert len((work_dir / search.RECORDS).read_text().splitlines()) == 4
    assert [number for number, _ in listener.batches] == [0, 1]


def test_a_gnns_seconds_are_told_apart(checkpoint: str) -> None:
    model = GNNCostModel(checkpoint)
    model.search.timings = {"extraction": 1.0, "prediction": 2.0, "update": 4.0}
    assert search._model_seconds(model) == {"prediction": 3.0, "model update": 4.0}
    assert search._model_seconds(SimpleNamespace()) == {}


def test_builder_and_runner_are_timed_and_given_back(
    monkeypatch: pytest.MonkeyPatch, build_pool: BuildPool[Program]
) -> None:
    pools, verifier = [], TaskVerifier(build_pool)

    def build(pool: object, inputs: list[int], checked_by: object) -> list[int]:
        time.sleep(0.01)
        assert checked_by is verifier
        pools.append(pool)
        return inputs

    def fail(*_: object) -> None:
        time.sleep(0.01)
        raise ValueError("a failed run")

    monkeypatch.setattr(search, "build_states", build)
    monkeypatch.setattr(search, "run_built", fail)
    originals = {name: tvm.get_global_func(name) for name in (BUILD, RUN)}
    try:
        tvm.register_func(BUILD, lambda *_: 1, override=True)
        tvm.register_func(RUN, lambda *_: 2, override=True)
        with search._measurement(MeasureSettings(), verifier) as seconds:
            assert seconds == {"building": 0.0, "running": 0.0}
            assert list(tvm.get_global_func(BUILD)([3], 2)) == [3]
            assert pools == [build_pool]
            with pytest.raises(ValueError, match="a failed run"):
                tvm.get_global_func(RUN)([1], [2], 3)
            assert all(0.01 <= one < 5 for one in seconds.values())
            timed = dict(seconds)
        assert tvm.get_global_func(BUILD)([3], 2) == 1
        assert tvm.get_global_func(RUN)([1], [2], 3) == 2
        assert seconds == timed
    finally:
        for name, original in originals.items():
            tvm.register_func(name, original, override=True)
