from __future__ import annotations

import dataclasses
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import synthetic
from tvm_gnn_cost.datasets import shards
from tvm_gnn_cost.datasets import store as store_module
from tvm_gnn_cost.datasets.programs import MeasuredPrograms, TaskInfo
from tvm_gnn_cost.datasets.store import GraphStore, StoredGraphs
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import Graphs, ProgramGraphs


@pytest.fixture
def programs() -> MeasuredPrograms:
    """Eight programs of two tasks with features; one of them failed."""
    return synthetic.with_features(synthetic.programs(2, 4, failed=1))


def _equal(ours: MeasuredPrograms, theirs: MeasuredPrograms) -> None:
    for name in ("task", "latency", "noise"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert (ours.failure, ours.phase, ours.tasks) == (theirs.failure, theirs.phase, theirs.tasks)
    for name in ("type_names", "errors"):
        assert getattr(ours.graphs, name) == getattr(theirs.graphs, name)
    for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
        np.testing.assert_array_equal(getattr(ours.graphs, name), getattr(theirs.graphs, name))
        assert getattr(ours.graphs, name).dtype == getattr(theirs.graphs, name).dtype
    if theirs.per_store_features is not None:
        assert ours.per_store_features is not None
        np.testing.assert_array_equal(ours.per_store_features.rows, theirs.per_store_features.rows)
        np.testing.assert_array_equal(ours.per_store_features.offsets, theirs.per_store_features.offsets)


def test_what_was_appended_is_loaded(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path / "new")
    store.append(programs.select(np.arange(3)))
    store.append(programs.select(np.arange(3, 8)))
    assert len(store) == 8
    _equal(store.load(with_features=True), programs)


def test_only_the_programs_of_some_networks_are_loaded(tmp_path: Path) -> None:
    programs = synthetic.with_features(synthetic.programs(4, 3))
    store = GraphStore(tmp_path)
    for start in range(0, 12, 2):
        store.append(programs.select(np.arange(start, start + 2)))
    for networks in (("net1",), ("net0", "net1"), ("net7",)):
        result = store.load(with_features=True, networks=networks)
        wanted = [i for i, number in enumerate(programs.task) if programs.tasks[number].weights.keys() & set(networks)]
        _equal(result.select(np.arange(len(result))), programs.select(np.array(wanted, np.int64)))
        assert result.tasks == store.tasks()


def test_a_part_of_what_was_appended_has_its_offsets(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.append(programs)
    parts = list(store.iterate(3, with_features=True))
    assert [len(part) for part in parts] == [3, 3, 2]
    for start, part in zip((0, 3, 6), parts, strict=True):
        expected = programs.select(np.arange(start, start + len(part)))
        np.testing.assert_array_equal(part.graphs.x, expected.graphs.x)
        np.testing.assert_array_equal(part.graphs.edge_index, expected.graphs.edge_index)
        np.testing.assert_array_equal(part.graphs.node_offsets, expected.graphs.node_offsets)
        assert part.per_store_features is not None
        np.testing.assert_array_equal(part.per_store_features[1], programs.per_store_features[start + 1])  # type: ignore[index]
        assert [part.tasks[t].hash for t in part.task] == [expected.tasks[t].hash for t in expected.task]
        assert part.tasks == store.tasks()


def test_graphs_that_could_not_be_extracted_keep_their_error(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    graphs = programs.graphs.select([0, 1])
    empty = dataclasses.replace(
        graphs, node_type=graphs.node_type[:0], x=graphs.x[:0], edge_index=graphs.edge_index[:, :0],
        edge_type=graphs.edge_type[:0], node_offsets=np.zeros(3, np.int64), edge_offsets=np.zeros(3, np.int64),
        errors={1: "nested too deeply"},
    )  # fmt: skip
    store.append(dataclasses.replace(programs.select(np.arange(2)), graphs=empty, per_store_features=None))
    loaded = store.load()
    assert loaded.graphs.errors == {1: "nested too deeply"}
    assert loaded.graphs.node_counts.tolist() == [0, 0]


def test_the_same_task_on_two_targets_is_two_tasks(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    program = programs.select(np.arange(1))
    other = TaskInfo(program.tasks[0].hash, program.tasks[0].name, '{"kind": "c"}', {"net": 1})
    store.append(program)
    store.append(dataclasses.replace(program, tasks=(other,)))
    loaded = store.load()
    assert loaded.task.tolist() == [0, 1]
    assert loaded.tasks == (program.tasks[0], other)


def test_the_same_task_on_two_machines_is_two_tasks(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path / "new")
    program = programs.select(np.arange(1))
    other = dataclasses.replace(program.tasks[0], hardware="other")
    store.append(program)
    store.append(dataclasses.replace(program, tasks=(other,)))
    assert store.load().tasks == (program.tasks[0], other)
    assert store.load().task.tolist() == [0, 1]


def test_a_shard_from_before_tasks_named_their_hardware_is_read(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path / "new")
    path = store.append(programs)
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"graph_store"])
    for task in meta["tasks"]:
        del task["hardware"]
    pq.write_table(table.replace_schema_metadata({b"graph_store": json.dumps(meta)}), path)
    assert store.tasks() == programs.tasks


def test_networks_found_later_are_added_to_tasks_with_programs_alone(
    programs: MeasuredPrograms, tmp_path: Path
) -> None:
    store = GraphStore(tmp_path / "new")
    store.append(programs.select(np.arange(8)))
    known = store.tasks()
    store.add_networks([*known, dataclasses.replace(known[0], hash="of no program", weights={"late": 1})])
    assert len(store.shards()) == 1
    store.add_networks([dataclasses.replace(known[0], weights={"late": 2}), known[1]])
    assert [dict(task.weights) for task in store.tasks()] == [{**known[0].weights, "late": 2}, dict(known[1].weights)]
    assert len(store.load(with_features=True)) == 8


def _with_repeats(programs: MeasuredPrograms, folder: Path) -> Path:
    repeats = [[1.0, 2.0], [4.0], [], [3.0, 6.0, 5.0, 2.0]]
    GraphStore(folder).append(programs.select(np.arange(4)), run_secs=repeats)
    return folder


def test_keys_and_repeats_are_kept(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    path = store.append(programs.select(np.arange(2)), run_secs=[[1.0, 2.0], []], keys=["a", "b"])
    store.append(programs.select(np.arange(1)))
    assert store.keys() == {"a", "b"}
    assert pq.read_table(path).column("run_secs").to_pylist() == [[1.0, 2.0], []]
    nan = np.nan
    np.testing.assert_equal(store.load().halves, [[1.0, 2.0], [nan, nan], [nan, nan]])
    (batch,) = GraphStore(_with_repeats(programs, tmp_path / "other")).iterate(8)
    np.testing.assert_equal(batch.halves, [[1.0, 2.0], [4.0, nan], [nan, nan], [3.0, 2.0]])
    np.testing.assert_equal(batch.select(np.array([3, 1])).halves, [[3.0, 2.0], [4.0, nan]])
    with pytest.raises(InputError, match="1 programs and 2 keys"):
        store.append(programs.select(np.arange(1)), keys=["a", "b"])


def test_an_empty_store_is_a_clear_error(tmp_path: Path) -> None:
    store = GraphStore(tmp_path / "none")
    assert (len(store), store.keys(), store.tasks(), list(store.iterate(4))) == (0, set(), (), [])
    for read in (store.load, store.programs):
        with pytest.raises(InputError, match="holds no program"):
            read()


def test_an_unfinished_shard_is_not_read_and_does_not_hinder(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    (tmp_path / "unfinished.tmp").write_bytes(b"PAR1 and then the power went")
    store.append(programs)
    assert len(store) == 8


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_a_broken_shard_is_named(programs: MeasuredPrograms, tmp_path: Path, keep: float) -> None:
    store = GraphStore(tmp_path)
    store.append(programs)
    path = store.append(programs)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else int(keep)])
    for read in (
        store.load,
        store.programs,
        store.keys,
        store.tasks,
        lambda: len(store),
        lambda: list(store.iterate(2)),
    ):
        with pytest.raises(InputError, match=r"shard-00001\.parquet cannot be read .*delete it and extract again"):
            read()


def test_a_single_damaged_bit_is_found(programs: MeasuredPrograms, tmp_path: Path) -> None:
    path = GraphStore(tmp_path).append(programs)
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "values")
    data = bytearray(path.read_bytes())
    # The page's header, which has no checksum, comes first.
    data[column.data_page_offset + column.total_compressed_size - 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read"):
        GraphStore(tmp_path).load()


def _rewrite(path: Path, columns: dict[str, list[Any] | None] | None = None, **fields: object) -> None:
    """Replaces columns (None: removes one) and fields of the metadata of a shard."""
    table = pq.read_table(path)
    meta = {**json.loads(table.schema.metadata[b"graph_store"]), **fields}
    for name, values in (columns or {}).items():
        at = table.schema.get_field_index(name)
        usual = table.schema.field(at).type
        table = table.remove_column(at)
        if values is not None:
            try:
                array = pa.array(values, usual)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                array = pa.array(values)
            table = table.add_column(at, name, array)
    meta = {name: value for name, value in meta.items() if value is not ...}
    pq.write_table(table.replace_schema_metadata({b"graph_store": json.dumps(meta)}), path)


@pytest.mark.parametrize("name", ["values", "type_names", "tasks", "feature_columns", "detail"])
@pytest.mark.parametrize("value", [..., None, {"a": 1}, -3, [3], "forest"])
def test_damaged_metadata_is_named(programs: MeasuredPrograms, tmp_path: Path, name: str, value: object) -> None:
    store = GraphStore(tmp_path)
    _rewrite(store.append(programs), **{name: value})
    for read in (store.load, store.tasks, lambda: len(store)):
        with pytest.raises(InputError, match=rf"shard-00000\.parquet .*(the field .*'{name}'|node features)"):
            read()


@pytest.mark.parametrize(
    "tasks",
    [
        [1],
        [{"hash": "a"}],
        *(
            [{"hash": "a", "name": "b", "target": "c", "weights": {"d": 1}, **changes}]
            for changes in (
                *({"weights": wrong} for wrong in (3, {"d": "1"}, {"d": 0}, {"d": -1}, {"d": 1 << 70})),
                *({"target": 3}, {"hash": None}, {"name": ["b"]}, {"new": 1}),
            )
        ),
    ],
)
def test_damaged_tasks_are_named(programs: MeasuredPrograms, tmp_path: Path, tasks: object) -> None:
    store = GraphStore(tmp_path)
    _rewrite(store.append(programs), tasks=tasks)
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read \(the field 'tasks' of its metadata is"):
        store.load()
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read \(the field 'tasks' of its metadata is"):
        store.programs()


@pytest.mark.parametrize(("text", "reason"), [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"[]", "not a JSON object")])
def test_metadata_that_is_no_json_is_named(
    programs: MeasuredPrograms, tmp_path: Path, text: bytes, reason: str
) -> None:
    store = GraphStore(tmp_path)
    path = store.append(programs)
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"graph_store": text}), path)
    with pytest.raises(InputError, match=rf"shard-00000\.parquet cannot be read \(its metadata is {reason}"):
        store.load()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": None}, "it has no column 'key'"),
        ({"relation": None}, "it has no column 'relation'"),
        ({"task": [0, 0, 0, 0, 1, 1, 1, 2]}, "the column 'task' has wrong values or does not fit"),
        ({"task": [0, 0, 0, 0, 1, 1, 1, -1]}, "the column 'task' has wrong values or does not fit"),
        ({"node_type": [b"\x09\0\0\0"] * 8}, "the column 'values' has wrong values or does not fit"),
        ({"values": [b""] * 8}, "the column 'values' has wrong values or does not fit"),
        (
            {"edges": [b"\x99\0\0\0" * 2] * 8, "relation": [b"\1"] * 8},
            "the column 'edges' has wrong values or does not fit",
        ),
        ({"relation": [b"\0"] * 8}, "the column 'relation' has wrong values or does not fit"),
        ({"values": [np.float32(np.nan).tobytes() * 80] * 8}, "the column 'values' has wrong values or does not fit"),
        (
            {"edges": [b"\0\0\0\0\1\0\0\0"] * 8, "relation": [b"\3"] * 8},
            "the column 'relation' has wrong values or does not fit",
        ),
        (
            {"edges": [b"\0\0\0\0" * 2] * 8, "relation": [b"\0"] * 8},
            "the column 'edges' has wrong values or does not fit",
        ),
        ({"latency": [0.0] + [1.0] * 7}, "the column 'latency' has wrong values or does not fit"),
        ({"latency": [5e-324] + [1.0] * 7}, "the column 'latency' has wrong values or does not fit"),
        ({"latency": [1e300] + [1.0] * 7}, "the column 'latency' has wrong values or does not fit"),
        ({"latency": [-1.0] + [1.0] * 7}, "the column 'latency' has wrong values or does not fit"),
        ({"latency": [math.nan] + [1.0] * 7}, "the column 'latency' has wrong values or does not fit"),
        ({"latency": [None] + [1.0] * 7}, "Needed to copy 1 chunks with 1 nulls"),
        ({"latency": ["1"] * 8}, "the column 'latency' is of type string, not double"),
        ({"task": ["a"] * 8}, "the column 'task' is of type string, not int32"),
        ({"failure": [1] * 8}, "the column 'failure' is of type int64, not string"),
        ({"values": [b"\0"] * 8}, "an array is not a whole number of rows of 320 bytes"),
        ({"values": [1.0] * 8}, "Unsupported cast from double"),
    ],
)
def test_damaged_columns_are_named(
    programs: MeasuredPrograms, tmp_path: Path, columns: dict[str, list[Any] | None], reason: str
) -> None:
    store = GraphStore(tmp_path)
    _rewrite(store.append(programs), columns)
    with pytest.raises(InputError, match=rf"shard-00000\.parquet cannot be read \({reason}"):
        store.load()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_no_numbers_are_named(programs: MeasuredPrograms, tmp_path: Path, value: float) -> None:
    store = GraphStore(tmp_path)
    assert programs.per_store_features is not None
    programs.per_store_features.rows[0, 0] = value
    store.append(programs)
    with pytest.raises(InputError, match="the column 'features' has wrong values"):
        store.load(with_features=True)


def test_a_file_that_is_no_shard_is_named(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.append(programs).rename(tmp_path / "shard-copy.parquet")
    with pytest.raises(InputError, match=r"shard-copy\.parquet: the name of a shard is shard-NUMBER\.parquet"):
        store.load()


def test_shards_are_ordered_by_number(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.append(programs).rename(tmp_path / "shard-99999.parquet")
    store = GraphStore(tmp_path)
    added = [store.append(programs.select(np.array([number]))) for number in range(2)]
    assert [path.name for path in added] == ["shard-100000.parquet", "shard-100001.parquet"]
    assert store.shards()[1:] == added
    np.testing.assert_array_equal(store.load().latency[-2:], programs.latency[:2])


def test_what_another_process_appended_meanwhile_is_not_overwritten(programs: MeasuredPrograms, tmp_path: Path) -> None:
    first, second = GraphStore(tmp_path), GraphStore(tmp_path)
    added = [store.append(programs) for store in (first, second, second, first)]
    assert added == first.shards()
    assert len(set(added)) == 4


def test_programs_for_a_training_are_those_of_the_store(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    # The second shard has its tasks and its node types in another order.
    second = programs.select(np.array([7, 1, 5]))
    names = second.graphs.type_names
    graphs = dataclasses.replace(
        second.graphs, type_names=names[::-1], node_type=len(names) - 1 - second.graphs.node_type
    )
    store.append(programs)
    store.append(dataclasses.replace(second, graphs=graphs, tasks=second.tasks[::-1], task=1 - second.task))
    expected = store.load()
    for memory, kind in ((0, StoredGraphs), (1 << 30, ProgramGraphs)):
        result = store.programs(memory)
        assert isinstance(result.graphs, kind)
        assert (len(result), result.tasks) == (11, expected.tasks)
        for name in ("task", "latency"):
            np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
            assert getattr(result, name).dtype == getattr(expected, name).dtype
        np.testing.assert_array_equal(result.throughput(), expected.throughput())
        read = result.graphs.read()
        assert read.type_names == expected.graphs.type_names
        for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
            np.testing.assert_array_equal(getattr(read, name), getattr(expected.graphs, name))


def test_processes_that_append_at_once_lose_nothing(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda number: store.append(programs.select(np.array([number]))), range(8)))
    assert len(set(paths)) == 8
    assert sorted(store.load().latency) == sorted(programs.latency)


def test_the_detail_is_kept(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    assert store.detail() is None
    store.append(programs)
    assert store.detail() == store.load().graphs.detail == "statements"


def test_a_shard_with_other_values_is_refused(
    programs: MeasuredPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = GraphStore(tmp_path)
    store.append(programs)
    monkeypatch.setattr(shards, "_VALUE_NAMES", [*shards._VALUE_NAMES[:-1], "a_new_value"])
    with pytest.raises(InputError, match=r"shard-00000\.parquet was written with other node features .*a_new_value"):
        store.load()


@pytest.mark.parametrize("meta", [{}, {b"graph_store": json.dumps({"version": 99}).encode()}])
def test_a_file_of_another_version_is_refused(tmp_path: Path, meta: dict[bytes, bytes]) -> None:
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(meta), tmp_path / "shard-00000.parquet")
    with pytest.raises(InputError, match=r"shard-00000\.parquet has version .* not 2; extract again"):
        GraphStore(tmp_path).load()


def test_features_that_were_not_extracted_are_a_clear_error(programs: MeasuredPrograms, tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.append(dataclasses.replace(programs, per_store_features=None))
    assert store.load().per_store_features is None
    with pytest.raises(InputError, match=r"holds no per-store features; .* into a new folder"):
        store.load(with_features=True)


def test_graphs_with_another_number_of_values_are_refused(programs: MeasuredPrograms, tmp_path: Path) -> None:
    narrow = dataclasses.replace(programs.graphs, x=programs.graphs.x[:, :3])
    with pytest.raises(InputError, match="3 features per node, expected"):
        GraphStore(tmp_path).append(dataclasses.replace(programs, graphs=narrow))


SIZES = (1, 40, 16, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards."""
    store = GraphStore(tmp_path_factory.mktemp("store"))
    for seed, size in enumerate(SIZES):
        store.append(synthetic.programs(1, size, seed=seed))
    return store.folder


def stored(folder: Path) -> Graphs:
    return GraphStore(folder).programs().graphs


def assert_equal(found: ProgramGraphs, expected: ProgramGraphs) -> None:
    assert (found.type_names, found.errors, found.detail) == (expected.type_names, expected.errors, expected.detail)
    for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, sum(SIZES) - 1), max_size=12))
def test_any_programs_are_read_in_the_given_order(folder: Path, chosen: list[int]) -> None:
    expected = GraphStore(folder).load().graphs
    rows = np.array(chosen, np.int64)
    results = stored(folder).select(rows)
    assert len(results) == len(rows)
    assert_equal(results.read(), expected.select(rows))


def test_a_selection_of_a_selection_counts_from_the_first(folder: Path) -> None:
    expected = GraphStore(folder).load().graphs
    result = stored(folder).select(np.array([50, 2, 59, 0])).select(np.array([3, 1, 0]))
    assert_equal(result.read(), expected.select([0, 2, 50]))


def test_more_shards_than_may_be_open_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_OPEN", 1)
    expected = GraphStore(folder).load().graphs
    graphs = stored(folder)
    for _ in range(2):
        assert_equal(graphs.read(), expected)


def test_a_shard_that_vanished_is_named(tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    path = store.append(synthetic.programs(1, 4))
    graphs = store.programs().graphs
    path.unlink()
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read"):
        graphs.read()
