"""The cost model inside real searches of Ansor."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput, MeasureResult

from tests.schedulers.auto_scheduler.small_tasks import broken_state, conv_task, matmul_task, sample_states
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel, make_policies
from tvm_gnn_cost.scoring.cost_model import CostModel, UpdateSettings

EAGER = UpdateSettings(trees=100, learning_rate=0.3)
POLICY = {"sample_init_min_population": 16, "evolutionary_search_population": 32, "evolutionary_search_num_iters": 1}


@pytest.fixture(scope="module")
def population() -> tuple[Any, list[Any]]:
    task = conv_task()
    return task, sample_states(task, 24)


def measured(task: Any, states: list[Any]) -> tuple[list[Any], list[Any]]:
    """As if the earlier a state is in the list, the faster it had run."""
    inputs = [MeasureInput(task, state) for state in states]
    return inputs, [MeasureResult([1e-3 * (1 + i)], 0, "", 0.1, 0) for i in range(len(states))]


def small_measurement(log: Path, trials: int) -> auto_scheduler.TuningOptions:
    return auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=3,
        builder=auto_scheduler.LocalBuilder(timeout=30),
        runner=auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        verbose=0,
    )


def test_it_ranks_before_any_measurement(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    task, states = population
    scores = GNNCostModel(checkpoint).predict(task, states)
    assert scores.shape == (len(states),)
    assert ((scores > 0) & (scores < 1)).all()
    assert len(np.unique(scores)) > len(states) // 2


def test_a_model_scores_and_learns_from_states_as_in_a_search(
    checkpoint: str, population: tuple[Any, list[Any]]
) -> None:
    task, states = population
    model, drop_in = CostModel.load(checkpoint), GNNCostModel(CostModel.load(checkpoint))
    name = f"{task.workload_key} {task.target}"
    np.testing.assert_array_equal(model.predict(states, task, task=name), drop_in.predict(task, states))
    model.update(states, 1e-3 * np.arange(1, 1 + len(states)), task, task=name)
    drop_in.update(*measured(task, states))
    np.testing.assert_array_equal(model.predict(states, task, task=name), drop_in.predict(task, states))
    with pytest.raises(InputError, match="target must be the SearchTask of the states"):
        model.predict(states)


def test_it_learns_what_it_is_told(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    task, states = population
    model = GNNCostModel(CostModel.load(checkpoint, EAGER))
    model.update(*measured(task, states))
    assert np.corrcoef(model.predict(task, states), np.arange(len(states)))[0, 1] < -0.5


def test_measurements_of_several_tasks_are_kept_apart(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    task, states = population
    other = matmul_task()
    first, second = measured(task, states[:4]), measured(other, sample_states(other, 4))
    model = GNNCostModel(CostModel.load(checkpoint))
    model.update(first[0] + second[0], first[1] + second[1])
    assert set(model.search.model.buffers) == {f"{one.workload_key} {one.target}" for one in (task, other)}


def test_failed_measurements_teach_that_a_state_is_slow(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    task, states = population
    inputs, _ = measured(task, states)
    results = [
        MeasureResult([1e-3], 0, "", 0.1, 0) if i % 2 else MeasureResult([1e10], 7, "timeout", 0.1, 0)
        for i in range(len(states))
    ]
    model = GNNCostModel(CostModel.load(checkpoint, EAGER))
    model.update(inputs, results)
    scores = model.predict(task, states)
    assert scores[1::2].mean() > scores[0::2].mean()


def test_what_cannot_be_scored_comes_last_and_is_said_once(
    checkpoint: str, population: tuple[Any, list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    task, states = population
    odd = broken_state(task)
    mixed = [states[0], odd, *states[1:4]]
    model = GNNCostModel(CostModel.load(checkpoint))
    with caplog.at_level(logging.WARNING):
        scores = model.predict(task, mixed)
        model.predict(task, mixed)
        model.update(*measured(task, mixed))
    assert scores[1] == 0.0
    np.testing.assert_allclose(scores[[0, 2, 3, 4]], GNNCostModel(checkpoint).predict(task, states[:4]), rtol=1e-5)
    assert len([r for r in caplog.records if "can't be read" in r.message]) == 1
    assert model.predict(task, ["no state"]).tolist() == [0.0]


def test_stages_are_packed_as_auto_scheduler_reads_them(checkpoint: str, population: tuple[Any, list[Any]]) -> None:
    task, states = population
    model = GNNCostModel(checkpoint)
    packed = model.predict_stages(task, states).tolist()
    assert packed[: len(states)] == model.predict(task, states).tolist()
    rest = packed[len(states) :]
    for _ in states:
        stores, rest = int(rest[0]), rest[1:]
        assert stores >= 2
        assert all(-1 <= share <= 0 for share in rest[:stores])
        assert -1 <= sum(rest[:stores]) < 0
        rest = rest[stores:]
    assert rest == []


def test_save_and_load_restore_all_of_it(checkpoint: str, population: tuple[Any, list[Any]], tmp_path: Path) -> None:
    task, states = population
    model = GNNCostModel(CostModel.load(checkpoint))
    model.update(*measured(task, states))
    model.save(str(tmp_path / "search.safetensors"))
    other = GNNCostModel(CostModel.load(checkpoint))
    other.load(str(tmp_path / "search.safetensors"))
    np.testing.assert_array_equal(model.predict(task, states), other.predict(task, states))
    for one in (model, other):
        one.update(*measured(task, states[:8]))
    np.testing.assert_array_equal(model.predict(task, states), other.predict(task, states))
    with pytest.raises(InputError, match="there is no such checkpoint"):
        other.load(str(tmp_path / "nothing.safetensors"))


def test_a_search_with_real_measurements(checkpoint: str, tmp_path: Path) -> None:
    task, log = matmul_task(), tmp_path / "log.json"
    model = GNNCostModel(CostModel.load(checkpoint))
    policy = auto_scheduler.SketchPolicy(task, program_cost_model=model, params=POLICY, seed=1, verbose=0)
    task.tune(small_measurement(log, 6), search_policy=policy)
    inputs, results = auto_scheduler.RecordReader(str(log)).read_lines()
    assert len(inputs) == 6
    assert min(float(cost) for result in results for cost in result.costs) < 1
    assert model.search.model.buffered == 3  # nothing follows that the last round could be learned for
    schedule, args = task.apply_best(str(log))
    assert len(args) == 3
    assert schedule.stages

    from_file = GNNCostModel(CostModel.load(checkpoint))
    from_file.update_from_file(str(log), 4)
    assert from_file.search.model.buffered == 4
    with pytest.raises(InputError, match="there is no such file"):
        from_file.update_from_file(str(tmp_path / "nothing.json"))


def test_a_log_of_another_tvm_teaches_all_that_it_can(
    checkpoint: str, population: tuple[Any, list[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task, states = population
    log = tmp_path / "log.json"
    auto_scheduler.save_records(str(log), *measured(task, states[:4]))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in lines:
        entry["i"][0][1] = "llvm -link-params=0"  # as TenSet's records have it; this TVM's parser refuses it
    lines[1]["i"][0][0] = json.dumps(["0123456789abcdef0123456789abcdef", [4, 4]])
    log.write_text("\n".join(["no JSON", *map(json.dumps, lines)]) + "\n")
    model = GNNCostModel(CostModel.load(checkpoint))
    with caplog.at_level(logging.WARNING):
        model.update_from_file(str(log))
    found = {name: len(buffer.latency) for name, buffer in model.search.model.buffers.items()}
    assert found == {f"{task.workload_key} llvm -link-params=0": 3}
    assert [number for number in range(1, 6) if f"{log}:{number}: " in caplog.text] == [1, 3]


def test_a_log_of_two_machines_is_two_tasks(checkpoint: str, population: tuple[Any, list[Any]], tmp_path: Path) -> None:
    task, states = population
    log, model = tmp_path / "log.json", GNNCostModel(CostModel.load(checkpoint))
    auto_scheduler.save_records(str(log), *measured(task, states[:4]))
    text = log.read_text()
    log.write_text(text + text.replace("-num-cores=2", "-num-cores=64"))
    model.update_from_file(str(log))
    model.update(*measured(task, states[4:6]))
    lengths = [len(buffer.latency) for buffer in model.search.model.buffers.values()]
    assert lengths == [4 + 2, 4]  # what is measured now belongs to the records of this target


@pytest.mark.slow
def test_a_task_scheduler_with_several_tasks(checkpoint: str, tmp_path: Path) -> None:
    tasks, log = [matmul_task(), conv_task()], tmp_path / "log.json"
    model = GNNCostModel(CostModel.load(checkpoint))
    scheduler = auto_scheduler.TaskScheduler(tasks, task_weights=[1, 2], callbacks=[])
    policies = make_policies(tasks, model, params=POLICY, verbose=0)
    scheduler.tune(small_measurement(log, 9), search_policy=policies)
    assert set(model.search.model.buffers) == {f"{task.workload_key} {task.target}" for task in tasks}
    assert all(cost < 1 for cost in scheduler.best_costs)


def test_the_same_seed_gives_the_same_search(checkpoint: str) -> None:
    # What a policy proposes follows from its seed and the scores; a clock would not say the same thing twice.
    proposed = []
    for _ in range(2):
        task = conv_task()
        policy = auto_scheduler.SketchPolicy(task, GNNCostModel(checkpoint), params=POLICY, seed=3, verbose=0)
        states = policy.evolutionary_search(policy.sample_initial_population(), 8)
        proposed.append([str(state) for state in states])
    assert len(proposed[0]) == 8
    assert proposed[0] == proposed[1]
