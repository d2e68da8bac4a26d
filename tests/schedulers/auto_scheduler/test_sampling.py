from __future__ import annotations

import json
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput

from tests.schedulers.auto_scheduler.small_tasks import matmul_task
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import policy_seed, sample_states, steps_of, untuned
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task


def test_steps_name_a_program(task: Task, candidates: list[Any]) -> None:
    found = [steps_of(task.workload, state) for state in candidates]
    assert len(set(found)) == len(candidates)
    assert found == [steps_of(task.workload, state) for state in candidates]
    assert all(json.loads(steps)[1] for steps in found)


def test_an_untuned_program_has_no_steps(task: Task) -> None:
    assert json.loads(steps_of(task.workload, untuned(task))) == [[], []]


def test_states_follow_from_the_seed_and_leave_known_ones_out(task: Task) -> None:
    def steps(count: int, seed: int, known: list[str] | None = None) -> list[str]:
        return [steps_of(task.workload, one) for one in sample_states(task.workload, count, seed, None, known or [])]

    found = steps(8, 0)
    assert len(set(found)) == 8
    assert steps(8, 0) == found
    assert steps(8, 5) != found
    others = steps(8, 0, found[:4])
    assert not set(others) & set(found[:4])
    assert others[:4] == found[4:]


def test_a_small_design_space_gives_what_it_has() -> None:
    states = sample_states(matmul_task(2, 2, 2), 300, 1)
    assert 0 < len(states) < 300


def test_a_guide_chooses_among_what_an_evolutionary_search_finds(
    task: Task, candidates: list[Any], outcomes: list[Outcome]
) -> None:
    guide = auto_scheduler.XGBModel(num_warmup_sample=1, verbose_eval=0, seed=1)
    guide.update([MeasureInput(task.workload, state) for state in candidates], [outcome.result for outcome in outcomes])
    known = [steps_of(task.workload, state) for state in candidates]
    found = [steps_of(task.workload, one) for one in sample_states(task.workload, 4, 1, guide, known)]
    assert 0 < len(found) == len(set(found)) <= 4
    assert not set(found) & set(known)


def test_tvm_would_draw_a_seed_for_0() -> None:
    assert policy_seed(7) == 7
    assert policy_seed(0) != 0
