"""The cost model inside real searches of TVM."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.conftest import QUICK
from tests.schedulers.meta_schedule.real_schedules import candidates, context
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder, Program
from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule.runner import ExclusiveRunner
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.scheduler import Network, Task
from tvm_gnn_cost.scoring.cost_model import CostModel, UpdateSettings


@pytest.fixture(scope="module")
def population(tasks: list[Task], target: Any) -> tuple[Any, list[Any]]:
    workload = max(map(workload_of, tasks), key=lambda mod: len(str(mod)))
    return context(workload, target), candidates(workload, target, 24)


@pytest.fixture(autouse=True)
def _fresh_logs() -> None:
    # A search makes this logger keep its messages to itself; pytest then adds a handler without a name to it, and the
    # next search's set-up of logs fails on that.
    quiet_console()
    logging.getLogger("tvm.s_tir.meta_schedule").propagate = True


def results(count: int) -> list[Any]:
    return [ms.runner.RunnerResult([1e-3 * (1 + i)], None) for i in range(count)]


def small_search() -> Any:
    return ms.search_strategy.EvolutionarySearch(population_size=16, init_min_unmeasured=4, genetic_num_iters=1)


def test_it_ranks_before_any_measurement(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    where, found = population
    scores = GNNCostModel(checkpoint).predict(where, found)
    assert scores.dtype == np.float64
    assert scores.shape == (len(found),)
    assert ((scores > 0) & (scores < 1)).all()
    assert len(np.unique(scores)) > len(found) // 2


def test_a_model_scores_and_learns_from_modules_as_in_a_search(
    checkpoint: str, population: tuple[Any, list[Any]]
) -> None:
    where, found = population
    mods = [candidate.sch.mod for candidate in found]
    model, drop_in = CostModel.load(checkpoint), GNNCostModel(CostModel.load(checkpoint))
    name = ms.utils.shash2hex(where.mod)
    np.testing.assert_array_equal(model.predict(mods, where.target, task=name), drop_in.predict(where, found))
    seconds = 1e-3 * np.arange(1, 1 + len(found))
    model.update(mods, seconds, where.target, task=name)
    drop_in.update(where, found, results(len(found)))
    np.testing.assert_array_equal(model.predict(mods, where.target, task=name), drop_in.predict(where, found))
    with pytest.raises(InputError, match="latencies must be 24 positive numbers of seconds, one per program"):
        model.update(mods, seconds[:-1], where.target, task="short")


def test_a_model_that_is_given_learns_in_the_search(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    where, found = population
    model = CostModel.load(checkpoint)
    GNNCostModel(model).update(where, found, results(len(found)))
    assert model.buffered == len(found)


def test_it_learns_what_it_is_told(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    where, found = population
    model = GNNCostModel(CostModel.load(checkpoint, UpdateSettings(trees=100, learning_rate=0.3)))
    model.update(where, found, results(len(found)))
    scores = model.predict(where, found)
    # The earlier a candidate is in the list, the faster it was said to be.
    assert np.corrcoef(scores, np.arange(len(found)))[0, 1] < -0.5
    assert model.search.timings["update"] > 0


def test_save_and_load_restore_all_of_it(checkpoint: str, population: tuple[Any, list[Any]], tmp_path: Path) -> None:
    where, found = population
    model = GNNCostModel(CostModel.load(checkpoint))
    model.update(where, found, results(len(found)))
    model.save(str(tmp_path / "search.safetensors"))
    other = GNNCostModel(CostModel.load(checkpoint))
    other.load(str(tmp_path / "search.safetensors"))
    np.testing.assert_array_equal(model.predict(where, found), other.predict(where, found))
    for one in (model, other):
        one.update(where, found[:8], results(8))
    np.testing.assert_array_equal(model.predict(where, found), other.predict(where, found))
    with pytest.raises(InputError, match="there is no such checkpoint"):
        other.load(str(tmp_path / "nothing.safetensors"))


def test_what_cannot_be_scored_comes_last_and_is_said_once(
    checkpoint: str, population: tuple[Any, list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    where, found = population
    # More than a thousand levels deep: what the extractor refuses to follow.
    x = te.placeholder((16,), name="x")

    def deep(i: Any) -> Any:
        value = x[i]
        for _ in range(1100):
            value = tvm.tirx.exp(value)
        return value

    mod = tvm.IRModule({"main": te.create_prim_func([x, te.compute((16,), deep, name="deep")])})
    odd = ms.MeasureCandidate(tvm.s_tir.Schedule(mod), found[0].args_info)
    mixed = [found[0], odd, *found[1:4], odd]
    model = GNNCostModel(CostModel.load(checkpoint))
    with caplog.at_level(logging.WARNING):
        scores = model.predict(where, mixed)
        model.predict(where, mixed)
        model.update(where, mixed, results(len(mixed)))
    assert scores[[1, 5]].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(scores[[0, 2, 3, 4]], GNNCostModel(checkpoint).predict(where, found[:4]), rtol=1e-5)
    messages = [record.message for record in caplog.records if "can't be read" in record.message]
    assert len(messages) == 1


def test_failed_measurements_teach_that_a_program_is_slow(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    where, found = population
    model = GNNCostModel(CostModel.load(checkpoint, UpdateSettings(trees=100, learning_rate=0.3)))
    outcome = [
        ms.runner.RunnerResult([1e-3], None) if i % 2 else ms.runner.RunnerResult(None, "LocalRunner: Timeout")
        for i in range(len(found))
    ]
    model.update(where, found, outcome)
    scores = model.predict(where, found)
    assert scores[1::2].mean() > scores[0::2].mean()


def test_tune_tir_with_real_measurements(
    checkpoint: str, tasks: list[Task], target: Any, build_pool: BuildPool[Program], tmp_path: Path
) -> None:
    database = ms.tir_integration.tune_tir(
        mod=workload_of(tasks[0]),
        target=target,
        work_dir=str(tmp_path),
        max_trials_global=6,
        num_trials_per_iter=3,
        builder=PooledBuilder(build_pool),
        runner=ExclusiveRunner(QUICK),
        strategy=small_search(),
        cost_model=GNNCostModel(CostModel.load(checkpoint)),
        seed=1,
    )
    latencies = [float(s) for record in database.get_all_tuning_records() for s in record.run_secs]
    assert len(latencies) >= 3
    assert 0 < min(latencies) < 1


def test_tune_relax_with_several_tasks(
    checkpoint: str, network: Network, target: Any, build_pool: BuildPool[Program], tmp_path: Path
) -> None:
    model = GNNCostModel(CostModel.load(checkpoint))
    database = ms.relax_integration.tune_relax(
        network.mod,
        {},
        target,
        str(tmp_path),
        max_trials_global=8,
        num_trials_per_iter=2,
        builder=PooledBuilder(build_pool),
        runner=ExclusiveRunner(QUICK),
        strategy=small_search(),
        cost_model=model,
        seed=1,
    )
    measured = {ms.utils.shash2hex(record.workload.mod) for record in database.get_all_tuning_records()}
    assert len(measured) >= 2
    assert set(model.search.model.buffers) == measured
    with target, database:
        tuned = tvm.relax.transform.MetaScheduleApplyDatabase()(network.mod)
    machine = tvm.relax.VirtualMachine(tvm.compile(tuned, target), tvm.cpu())
    (example,), (expected,) = network.inputs.values(), network.expected or ()
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(example)).numpy(), expected, atol=1e-4)


@derived_object
class CountingBuilder(ms.builder.PyBuilder):
    """Builds nothing: what is compared is which programs a search asks for."""

    def build(self, build_inputs: list[Any]) -> list[Any]:
        return [ms.builder.BuilderResult(ms.utils.shash2hex(b.mod), None) for b in build_inputs]


@derived_object
class RepeatableRunner(ms.runner.PyRunner):
    """A latency that depends on the program alone; a real clock never says the same thing twice."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        self.asked += [str(r.artifact_path) for r in runner_inputs]
        seconds = [1e-4 * (1 + int(str(r.artifact_path), 16) % 97) for r in runner_inputs]
        return [ms.runner.local_runner.LocalRunnerFuture([s], None) for s in seconds]


def search_that_builds_nothing(
    task: Task, target: Any, folder: Path, runner: Any, model: Any, trials: int, **options: Any
) -> None:
    ms.tir_integration.tune_tir(
        mod=workload_of(task),
        target=target,
        work_dir=str(folder),
        max_trials_global=trials,
        num_trials_per_iter=4,
        builder=CountingBuilder(),
        runner=runner,
        measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
        strategy=small_search(),
        cost_model=model,
        **options,
    )


def test_the_same_seed_gives_the_same_search(checkpoint: str, tasks: list[Task], target: Any, tmp_path: Path) -> None:
    asked = []
    for name in ("a", "b"):
        runner, model = RepeatableRunner(), GNNCostModel(CostModel.load(checkpoint))
        search_that_builds_nothing(tasks[0], target, tmp_path / name, runner, model, 12, num_tuning_cores=1, seed=3)
        asked.append(runner.asked)
    assert len(asked[0]) >= 8
    assert asked[0] == asked[1]


@pytest.mark.parametrize("strict", [False, True])
def test_a_broken_model_ends_a_search_of_tvm_only_if_it_is_strict(
    checkpoint: str, tasks: list[Task], target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of the model")

    runner, model = RepeatableRunner(), GNNCostModel(checkpoint, strict=strict)
    monkeypatch.setattr("tvm_gnn_cost.scoring.cost_model.CostModel.predict", broken)
    if strict:
        with pytest.raises(Exception, match="a bug of the model"):
            search_that_builds_nothing(tasks[0], target, tmp_path, runner, model, 4)
        assert not runner.asked
    else:
        search_that_builds_nothing(tasks[0], target, tmp_path, runner, model, 4)
        assert len(runner.asked) == 4
