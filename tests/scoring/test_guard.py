from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.scoring.checkpoint import DEFAULT
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.guard import GuardedModel


@pytest.fixture
def model(checkpoint: str) -> GuardedModel:
    return GuardedModel(CostModel.load(checkpoint), "meta-schedule")


def broken() -> ProgramGraphs:
    raise RuntimeError("no block named C")


def with_an_unreadable_one(count: int) -> ProgramGraphs:
    """Graphs of which the second could not be read."""
    graphs = synthetic.graphs(count)
    empty = ProgramGraphs(
        graphs.type_names, graphs.node_type[:0], graphs.x[:0], graphs.edge_index[:, :0], graphs.edge_type[:0],
        np.zeros(2, np.int64), np.zeros(2, np.int64), {0: "nested too deeply"}, graphs.detail,
    )  # fmt: skip
    return ProgramGraphs.concatenate([graphs.select([0]), empty, graphs.select(np.arange(1, count - 1))])


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "tvm_gnn_cost.scoring.guard"]


def test_candidates_are_scored(model: GuardedModel, caplog: pytest.LogCaptureFixture) -> None:
    scores = model.predict(lambda: synthetic.graphs(8), 8)
    assert scores.dtype == np.float64
    assert len(np.unique(scores)) == 8
    assert ((scores > 0) & (scores < 1)).all()
    np.testing.assert_array_equal(scores, model.model.predict(synthetic.graphs(8)))
    assert not records(caplog)
    assert (model.failed, model.batches, model.reason) == (0, 1, "")


def test_measured_candidates_change_the_scores(model: GuardedModel) -> None:
    before = model.predict(lambda: synthetic.graphs(8), 8)
    model.update("dense", lambda: synthetic.graphs(8), np.linspace(1e-3, 1e-2, 8))
    assert not np.array_equal(model.predict(lambda: synthetic.graphs(8), 8), before)
    assert model.model.buffered == 8


CALLS: list[Callable[[GuardedModel, Callable[[], ProgramGraphs]], object]] = [
    lambda model, extract: model.predict(extract, 5),
    lambda model, extract: model.store_shares(extract, 5),
    lambda model, extract: model.update("dense", extract, np.ones(5)),
]


@pytest.mark.parametrize("call", CALLS, ids=["predict", "store_shares", "update"])
def test_an_error_never_stops_a_search_and_keeps_its_traceback(
    model: GuardedModel, caplog: pytest.LogCaptureFixture, call: Callable[..., object]
) -> None:
    for _ in range(3):
        call(model, broken)
    (record,) = records(caplog)
    assert record.levelno == logging.WARNING
    assert "no block named C" in record.getMessage()
    assert record.exc_info is not None
    kind, error, traceback = record.exc_info
    assert kind is RuntimeError
    assert str(error) == "no block named C"
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames[-1] == "broken"
    assert record.getMessage() in model.reported
    assert (model.failed, model.batches) == (3, 3)
    assert model.reason == record.getMessage()


@pytest.mark.parametrize("call", CALLS, ids=["predict", "store_shares", "update"])
def test_a_strict_model_raises_its_errors(checkpoint: str, call: Callable[..., object]) -> None:
    model = GuardedModel(checkpoint, "meta-schedule", strict=True)
    with pytest.raises(RuntimeError, match="no block named C"):
        call(model, broken)


@pytest.mark.parametrize("call", CALLS, ids=["predict", "store_shares", "update"])
def test_a_bug_of_a_library_does_not_stop_a_search_either(
    model: GuardedModel, caplog: pytest.LogCaptureFixture, call: Callable[..., object]
) -> None:
    # Graphs that the model cannot read: not enough columns.
    graphs = synthetic.graphs(5)
    call(model, lambda: replace(graphs, x=graphs.x[:, :2]))
    (record,) = records(caplog)
    assert record.exc_info is not None
    assert record.exc_info[0] is IndexError


def test_what_cannot_be_scored_comes_last(model: GuardedModel) -> None:
    assert model.predict(broken, 5).tolist() == [0.0] * 5
    assert [len(shares) for shares in model.store_shares(broken, 5)] == [0] * 5
    model.model.predict = lambda _graphs, **_: np.array([0.5, np.nan])  # type: ignore[method-assign]
    assert model.predict(lambda: synthetic.graphs(2), 2).tolist() == [0.5, 0.0]


def test_an_unreadable_candidate_comes_last_and_is_reported_once(
    model: GuardedModel, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        scores = model.predict(lambda: with_an_unreadable_one(5), 5)
    assert scores[1] == 0
    assert (scores[[0, 2, 3, 4]] > 0).all()
    (record,) = records(caplog)
    assert record.getMessage() == "a candidate comes last because it can't be read: nested too deeply"
    model.update("dense", lambda: with_an_unreadable_one(5), np.ones(5))
    assert model.model.buffered == 4
    assert len(records(caplog)) == 1


def test_a_failed_update_leaves_a_model_that_scores(model: GuardedModel) -> None:
    before = model.predict(lambda: synthetic.graphs(4), 4)
    model.update("dense", broken, np.ones(4))
    np.testing.assert_array_equal(model.predict(lambda: synthetic.graphs(4), 4), before)


def test_timings_are_told_apart(model: GuardedModel) -> None:
    assert set(model.timings.values()) == {0.0}
    model.predict(lambda: synthetic.graphs(4), 4)
    assert model.timings["extraction"] > 0
    assert model.timings["prediction"] > 0
    assert model.timings["update"] == 0
    model.update("dense", lambda: synthetic.graphs(4), np.linspace(1e-3, 2e-3, 4))
    assert model.timings["update"] > 0
    before = model.timings["extraction"]
    model.predict(broken, 4)
    assert model.timings["extraction"] > before


def test_save_and_load_restore_the_model(model: GuardedModel, checkpoint: str, tmp_path: Path) -> None:
    model.update("dense", lambda: synthetic.graphs(8), np.linspace(1e-3, 1e-2, 8))
    model.model.save(tmp_path / "search.safetensors")
    restored = GuardedModel(CostModel.load(checkpoint), "meta-schedule")
    restored.load(tmp_path / "search.safetensors")
    for one in (model, restored):
        one.update("conv", lambda: synthetic.graphs(6, seed=1), np.linspace(1e-3, 1e-2, 6))
    np.testing.assert_array_equal(
        model.predict(lambda: synthetic.graphs(4), 4), restored.predict(lambda: synthetic.graphs(4), 4)
    )


def test_a_checkpoint_of_the_other_scheduler_is_refused() -> None:
    assert GuardedModel(DEFAULT, "meta-schedule").scheduler == "meta-schedule"
    with pytest.raises(InputError, match="was trained on programs of meta-schedule, and these are of auto-scheduler"):
        GuardedModel(DEFAULT, "auto-scheduler")


def test_a_wrong_checkpoint_is_refused_before_the_search(model: GuardedModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.safetensors: there is no such checkpoint"):
        GuardedModel(tmp_path / "none.safetensors", "meta-schedule")
    before = model.model
    (tmp_path / "broken.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"broken\.safetensors: not a checkpoint"):
        model.load(tmp_path / "broken.safetensors")
    assert model.model is before
