from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.meta_schedule.programs import add_one
from tvm_gnn_cost.lowering.winograd import winograd
from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule.sampling import (
    Guide,
    TrainedGuide,
    sample_random,
    tune_context,
    untuned,
    workload_of,
)
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task


def hashes(candidates: list[Any]) -> list[str]:
    return [ms.utils.shash2hex(candidate.sch.mod) for candidate in candidates]


def test_an_untuned_program_is_its_tasks_workload(task: Task) -> None:
    candidate = untuned(task)
    assert hashes([candidate]) == [task.key] == [ms.utils.shash2hex(workload_of(task))]
    assert [str(info.dtype) for info in candidate.args_info] == ["float32"] * 4


def test_random_samples_are_distinct_and_follow_from_the_seed(task: Task, target: Any) -> None:
    found = hashes(sample_random(task, target, 5, seed=1))
    assert len(set(found)) == 5
    assert task.key not in found
    assert hashes(sample_random(task, target, 5, seed=1)) == found
    assert set(hashes(sample_random(task, target, 5, seed=2))) != set(found)


def test_a_small_design_space_gives_what_it_has(target: Any) -> None:
    mod = tvm.IRModule({"main": add_one.with_attr("global_symbol", "main")})
    (extracted,) = [ms.ExtractedTask("add_one", mod, target, [mod], 1)]
    task = Task(ms.utils.shash2hex(mod), "add_one", 1, extracted)
    found = hashes(sample_random(task, target, 100, seed=0))
    assert 0 < len(found) == len(set(found)) < 100


def test_a_design_space_without_choices_gives_each_program_once(target: Any) -> None:
    data, kernel = (
        te.placeholder((1, 28, 28, 16), "float32", "data"),
        te.placeholder((6, 6, 16, 32), "float32", "kernel"),
    )
    mod = tvm.IRModule({"main": te.create_prim_func([data, kernel, winograd(data, kernel, 4, (1, 1, 1, 1))])})
    task = Task(ms.utils.shash2hex(mod), "winograd", 1, ms.ExtractedTask("winograd", mod, target, [mod], 1))
    found = sample_random(task, target, 100, seed=0)
    assert len(set(hashes(found))) == len(found) == 5
    assert hashes(sample_random(task, target, 100, seed=1)) == hashes(found)
    assert len(found[0].args_info) == 3


def test_tasks_draw_different_numbers_from_one_seed(tasks: list[Task], target: Any) -> None:
    states = {int(tune_context(task, target, "replay-trace", 7).rand_state) for task in tasks}
    assert len(states) == len(tasks)


def test_guided_samples_come_from_the_measured_programs(
    task: Task, tasks: list[Task], target: Any, candidates: list[Any], outcomes: list[Outcome], tmp_path: Path
) -> None:
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(workload_of(task))
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        database.commit_tuning_record(
            ms.database.TuningRecord(candidate.sch.trace, workload, list(outcome.seconds), target, candidate.args_info)
        )
    other = next(one for one in tasks if one.key != task.key)
    records = {task.key: database.get_all_tuning_records(), other.key: []}
    guide = Guide(records, target, [(task, 4), (other, 2)])
    found = guide.sample(task, 4)
    assert 0 < len(found) <= 4
    assert len(set(hashes(found))) == len(found)
    # Without a measured program the evolutionary search starts from random ones.
    assert 0 < len(guide.sample(other, 2)) <= 2


def test_a_trained_guide_picks_what_it_ranks_best(task: Task, target: Any) -> None:
    model = GNNCostModel()
    found = TrainedGuide({task.key: []}, target, model).sample(task, 4)
    assert len(set(hashes(found))) == len(found) == 4
    context = tune_context(task, target, "replay-trace", 0)
    random = sample_random(task, target, 16, seed=1)
    assert model.predict(context, found).mean() > np.quantile(model.predict(context, random), 0.75)
