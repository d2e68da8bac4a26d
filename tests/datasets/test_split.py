from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_gnn_cost.datasets.programs import MeasuredPrograms, TaskInfo
from tvm_gnn_cost.datasets.split import TEST_NETWORKS, networks_named, networks_to_test, split
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.networks.catalogue import TRAINING

NETWORKS = ["a", "b", "c", "d"]


def _programs(tasks: list[TaskInfo], task: list[int]) -> MeasuredPrograms:
    none = np.zeros(len(task) + 1, np.int64)
    graphs = ProgramGraphs(
        (), np.zeros(0, np.int32), np.zeros((0, len(VALUES)), np.float32), np.zeros((2, 0), np.int32),
        np.zeros(0, np.int8), none, none,
    )  # fmt: skip
    blank = ("",) * len(task)
    ones = np.ones(len(task))
    return MeasuredPrograms(graphs, tuple(tasks), np.array(task, np.int32), ones, ones.astype(np.float32), blank, blank)


def _task(key: str, *networks: str, target: str = "{}") -> TaskInfo:
    return TaskInfo(key, f"task {key}", target, dict.fromkeys(networks, 1))


@st.composite
def _data(draw: st.DrawFn) -> MeasuredPrograms:
    # Hashes from a small set: the same task turns up under several names, targets and networks.
    tasks = draw(
        st.lists(
            st.builds(
                lambda key, networks, target: _task(key, *networks, target=target),
                st.sampled_from([f"0x{i}" for i in range(8)]),
                st.sets(st.sampled_from(NETWORKS)),
                st.sampled_from(["cpu", "gpu"]),
            ),
            min_size=1,
            max_size=16,
        )
    )
    return _programs(tasks, draw(st.lists(st.integers(0, len(tasks) - 1), min_size=1, max_size=60)))


@given(_data(), st.sets(st.sampled_from(NETWORKS), min_size=1), st.floats(0.01, 0.99), st.integers(0, 9))
def test_no_task_is_in_two_parts(data: MeasuredPrograms, held_out: set[str], fraction: float, seed: int) -> None:
    try:
        parts = split(data, sorted(held_out), fraction, seed)
    except InputError:
        return
    programs = [parts.train, parts.validation, parts.test]
    hashes = [{data.tasks[data.task[i]].hash for i in part} for part in programs]
    assert all(hashes)
    assert sum(map(len, hashes)) == len(set().union(*hashes))
    assert sorted(np.concatenate(programs).tolist()) == list(range(len(data)))
    held = {task.hash for task in data.tasks if held_out & set(task.weights)}
    assert hashes[2] <= held
    assert not held & (hashes[0] | hashes[1])


def test_a_task_shared_with_a_held_out_network_only_tests() -> None:
    tasks = [_task("0x1", "a"), _task("0x2", "a", "b"), _task("0x3", "a"), _task("0x1", "b", target="gpu")]
    parts = split(_programs([*tasks, _task("0x4", "a")], [0, 1, 2, 3, 4, 4]), ["b"], 0.5, 0)
    assert parts.test.tolist() == [0, 1, 3]
    assert sorted([*parts.train, *parts.validation]) == [2, 4, 5]


def test_a_network_stands_for_all_its_shapes() -> None:
    known = ["resnet_18[(1,3,224,224)]", "resnet_18[(4,3,224,224)]", "resnet_184[(1,3,224,224)]", "bert"]
    assert networks_named("resnet_18", known) == known[:2]
    assert networks_named(known[1], known) == known[1:2]
    assert networks_to_test(known) == known[:2]
    assert networks_to_test(known, ["bert", "resnet_18", "bert"]) == ["bert", *known[:2]]
    tasks = [_task(f"0x{i}", network) for i, network in enumerate([*known, "mlp"])]
    assert split(_programs(tasks, [*range(5)]), ["resnet_18"], 0.5, 0).test.tolist() == [0, 1]


def test_the_seed_chooses_the_validation_tasks() -> None:
    data = _programs([_task(f"0x{i}", "b" if i == 0 else "a") for i in range(40)], [*range(40)] * 2)
    first, again, other = (split(data, ["b"], 0.25, seed).validation.tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 2 * round(0.25 * 39)


@pytest.mark.parametrize(
    ("held_out", "fraction", "message"),
    [
        (["z"], 0.5, "held-out network 'z' does not occur in the data; it has: a, b"),
        ([], 0.5, "no program to test on"),
        (["a"], 0.5, r"1 task\(s\) left to train and validate on"),
        (["a", "b"], 0.5, r"0 task\(s\) left"),
        (["b"], 0.0, "validation_fraction must be between 0 and 1, got 0.0"),
        (["b"], 1.0, "validation_fraction must be between 0 and 1"),
        (["b"], float("nan"), "validation_fraction must be between 0 and 1"),
    ],
)
def test_a_split_that_cannot_be_is_a_clear_error(held_out: list[str], fraction: float, message: str) -> None:
    data = _programs([_task("0x1", "a"), _task("0x2", "a"), _task("0x3", "b")], [0, 1, 2])
    with pytest.raises(InputError, match=message):
        split(data, held_out, fraction, 0)


def test_a_held_out_network_whose_tasks_have_no_program_is_a_clear_error() -> None:
    data = _programs([_task("0x1", "a"), _task("0x2", "a"), _task("0x3", "b")], [0, 1])
    with pytest.raises(InputError, match="no program to test on"):
        split(data, ["b"], 0.5, 0)


TENSET = ["resnet_18[(1,3,224,224)]", "resnet_18[(4,3,224,224)]", "resnet_184[(1,3,224,224)]", "bert"]


def test_a_name_stands_for_all_its_shapes_and_for_no_other_network() -> None:
    assert networks_named("resnet_18", TENSET) == TENSET[:2]
    assert networks_named(TENSET[1], TENSET) == [TENSET[1]]
    assert networks_named("resnet", TENSET) == []
    assert networks_named("bert", iter(TENSET)) == ["bert"]


def test_the_test_networks_are_those_that_occur() -> None:
    assert networks_to_test(TENSET) == TENSET[:2]
    assert networks_to_test({"inception-v3", "vit", "mobilenet-v2"}) == ["mobilenet-v2", "inception-v3"]
    assert networks_to_test(["mobilenet", "mobilenet-v2"]) == ["mobilenet-v2", "mobilenet"]


def test_asked_networks_come_in_their_order_and_once() -> None:
    assert networks_to_test(TENSET, ["bert", "resnet_18", "bert"]) == ["bert", *TENSET[:2]]


def test_an_unknown_network_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match="network 'vit' does not occur in the data; it has: a, b"):
        networks_to_test(["b", "a"], ["a", "vit"])
    with pytest.raises(InputError, match="'vit' does not occur in the data; it has: none"):
        networks_to_test([], ["vit"])


def test_data_without_a_test_network_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"none of the default test networks \(resnet-18, .*\) .* networks: bert, vit$"
    ):
        networks_to_test(["vit", "bert"])
    with pytest.raises(InputError, match="choose among its networks: none"):
        networks_to_test([])


def test_no_test_network_trains() -> None:
    assert set(TEST_NETWORKS) == {"meta-schedule", "auto-scheduler"}
    assert not set(TEST_NETWORKS["meta-schedule"]) & set(TRAINING)
