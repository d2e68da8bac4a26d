from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import synthetic
from tvm_gnn_cost.datasets.programs import (
    PER_STORE_COLUMNS,
    MeasuredPrograms,
    Measurement,
    RaggedFeatures,
    TaskInfo,
    measured_programs,
)


def task(name: str, **changes: object) -> TaskInfo:
    return replace(TaskInfo(f"hash of {name}", name, "llvm", {"net": 1}), **changes)  # type: ignore[arg-type]


def test_throughput_is_relative_to_the_best_of_the_task() -> None:
    programs = replace(synthetic.programs(3, 2), latency=np.array([1.0, 4.0, 0.5, np.inf, np.inf, np.inf], np.float64))
    result = programs.throughput()
    assert result.tolist() == [1.0, 0.25, 1.0, 0.0, 0.0, 0.0]
    assert result.dtype == np.float32


def test_the_networks_are_those_of_all_tasks() -> None:
    programs = synthetic.programs(3, 2)
    assert programs.networks == {"net0", "net1"}
    assert programs.select(np.array([0, 1])).networks == {"net0"}


def test_a_selection_keeps_each_programs_data_and_drops_unused_tasks() -> None:
    programs = synthetic.with_features(synthetic.programs(3, 4, failed=2))
    chosen = np.array([9, 1, 8, 9])
    result = programs.select(chosen)
    assert len(result) == 4
    assert [result.tasks[number] for number in result.task] == [
        programs.tasks[number] for number in programs.task[chosen]
    ]
    assert len(result.tasks) == 2
    np.testing.assert_array_equal(result.latency, programs.latency[chosen])
    np.testing.assert_array_equal(result.noise, programs.noise[chosen])
    assert result.failure == ("", "run-timeout", "", "")
    assert result.phase == ("random",) * 4
    assert result.task.dtype == np.int32
    assert result.per_store_features is not None
    assert programs.per_store_features is not None
    for new, old in enumerate(chosen.tolist()):
        np.testing.assert_array_equal(result.graphs.select([new]).x, programs.graphs.select([old]).x)
        np.testing.assert_array_equal(result.per_store_features[new], programs.per_store_features[old])
    assert len(programs.select(np.zeros(0, np.int64))) == 0


def test_the_same_workload_on_another_machine_is_another_task() -> None:
    program = task("dense")
    assert program.identity == replace(program, weights={"other": 3}, name="fused").identity
    for changes in ({"hash": "x"}, {"target": "cuda"}, {"scheduler": "auto-scheduler"}, {"hardware": "epyc"}):
        assert program.identity != replace(program, **changes).identity


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=3))
def test_ragged_features_keep_their_matrices(parts: list[list[int]]) -> None:
    rng = np.random.default_rng(0)
    matrices = [[rng.random((n, PER_STORE_COLUMNS)).astype(np.float32) for n in part] for part in parts]
    whole = RaggedFeatures.concatenate([RaggedFeatures.from_matrices(part) for part in matrices])
    expected = [matrix for part in matrices for matrix in part]
    assert len(whole) == len(expected)
    chosen = np.arange(len(whole))[::-1]
    for ragged, order in ((whole, chosen[::-1]), (whole.select(chosen), chosen)):
        for i, number in enumerate(order.tolist()):
            np.testing.assert_array_equal(ragged[i], expected[number])
    assert whole.rows.shape[1] == PER_STORE_COLUMNS


def test_measurements_become_programs_with_each_task_once() -> None:
    dense = task("dense")
    again, other = replace(dense, weights={"second": 2}), task("conv", target="cuda")
    measurements = [
        Measurement(dense, (3.0, 1.0, 2.0), "", "random"),
        Measurement(other, (), "build-timeout", "guided"),
        Measurement(again, (5.0,), "", ""),
    ]
    features = [np.full((n, PER_STORE_COLUMNS), n, np.float32) for n in (1, 0, 2)]
    results = measured_programs(synthetic.graphs(3), measurements, features)
    assert results.tasks == (replace(dense, weights={"net": 1, "second": 2}), other)
    assert results.task.tolist() == [0, 1, 0]
    assert results.latency.tolist() == [1.0, np.inf, 5.0]
    assert results.noise[0] == 0.5
    assert np.isnan(results.noise[1:]).all()
    assert results.failure == ("", "build-timeout", "")
    assert results.phase == ("random", "guided", "")
    assert results.per_store_features is not None
    assert [len(results.per_store_features[i]) for i in range(3)] == [1, 0, 2]
    assert measured_programs(synthetic.graphs(3), measurements, None).per_store_features is None


def test_a_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(IndexError):
        synthetic.programs(1, 2).select(np.array([2]))


def of_tasks(*sizes: int) -> MeasuredPrograms:
    """Tasks with so many programs each, in any order."""
    every = synthetic.programs(len(sizes), max(sizes), failed=2)
    rows = np.concatenate([max(sizes) * i + np.arange(size) for i, size in enumerate(sizes)])
    return every.select(np.random.default_rng(0).permutation(rows))


def test_few_programs_are_their_own_sample() -> None:
    programs = of_tasks(30, 20)
    assert programs.sample(50, seed=0) is programs


def test_a_sample_takes_as_many_of_each_task_and_the_fastest_of_all() -> None:
    programs = of_tasks(60, 10, 80, 40)
    result = programs.sample(120, seed=1)
    # Three large tasks share what the small one leaves: 36 + 10 + 36 + 36.
    assert sorted(np.bincount(result.task).tolist()) == [10, 36, 36, 36]
    whole = dict(zip(programs.latency.tolist(), programs.throughput().tolist(), strict=True))
    assert result.throughput().tolist() == [whole[latency] for latency in result.latency.tolist()]
    np.testing.assert_array_equal(result.latency, programs.sample(120, seed=1).latency)
    assert result.latency.tolist() != programs.sample(120, seed=2).latency.tolist()


def test_a_sample_leaves_tasks_out_rather_than_take_fewer_than_sixteen() -> None:
    result = of_tasks(*[20] * 10).sample(100, seed=0)
    assert np.bincount(result.task).tolist() == [16] * 6


def test_a_sample_has_a_limit_for_each_task_too() -> None:
    assert sorted(np.bincount(of_tasks(60, 10).sample(1000, seed=0, of_task=25).task).tolist()) == [10, 25]
    assert sorted(np.bincount(of_tasks(60, 70).sample(40, seed=0, of_task=25).task).tolist()) == [20, 20]
