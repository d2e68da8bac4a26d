"""Samples states of a task's sketches: at random, or by evolutionary search with a cost model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput, MeasureResult
from tvm.auto_scheduler.measure_record import dump_record_to_string

from tvm_gnn_cost.schedulers.scheduler import Task

_NO_RESULT = MeasureResult([0.0], 0, "", 0.0, 0)


def untuned(task: Task) -> Any:
    """The task's program before any schedule."""
    return task.workload.compute_dag.get_init_state()


def policy_seed(seed: int) -> int:
    """A seed for ``SketchPolicy``, which takes 0 as a random seed."""
    return seed or 2**30


def steps_of(task: auto_scheduler.SearchTask, state: Any) -> str:
    """The state's steps as JSON, which identify its program."""
    entry = json.loads(dump_record_to_string(MeasureInput(task, state), _NO_RESULT))
    return json.dumps(entry["i"][1])


def sample_states(
    task: auto_scheduler.SearchTask, count: int, seed: int, guide: Any | None = None, known: Sequence[str] = ()
) -> list[Any]:
    """Up to ``count`` distinct states of a task.

    Args:
        task: The task.
        count: Number of states.
        seed: Seed of the samples.
        guide: A cost model of ``auto_scheduler``, for the best states of its evolutionary search; random states if
            None.
        known: The steps (:func:`steps_of`) of states to exclude.
    """
    # A small search: with TVM's 2048 states of 4 generations, sampling a task takes longer than measuring it.
    size = max(64, 2 * count)
    parameters = {
        "sample_init_min_population": size,
        "evolutionary_search_population": size,
        "evolutionary_search_num_iters": 3,
    }
    policy = auto_scheduler.SketchPolicy(
        task, guide or auto_scheduler.RandomModel(), params=parameters, seed=policy_seed(seed), verbose=0
    )
    population = policy.sample_initial_population()
    if guide is None:
        order = np.random.default_rng(seed).permutation(len(population)).tolist()
        states = [population[i] for i in order]
    else:
        states = list(policy.evolutionary_search(population, 2 * count))
    seen, chosen = set(known), []
    for state in states:
        steps = steps_of(task, state)
        if steps not in seen:
            seen.add(steps)
            chosen.append(state)
    return chosen[:count]
