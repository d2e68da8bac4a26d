from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests import synthetic
from tvm_gnn_cost.datasets import shards
from tvm_gnn_cost.datasets.shards import Shard, write_shard
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs


def written(folder: Path, tasks: int = 10) -> tuple[Path, ProgramGraphs]:
    """A shard of ten programs a task, and their graphs."""
    programs = synthetic.programs(tasks, 10)
    write_shard(folder / "shard-00000.parquet", programs, None, None)
    return folder / "shard-00000.parquet", programs.graphs


def test_single_programs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_GROUPS_AT_ONCE", 2)
    path, graphs = written(tmp_path)
    for chosen in ([0], [15, 16], [3, 4, 40, 77, 99], list(range(100)), list(range(48, 80))):
        parts = list(Shard(path).graphs(np.array(chosen)))
        result, expected = ProgramGraphs.concatenate(parts), graphs.select(chosen)
        assert len(result) == len(chosen)
        for name in ("node_type", "x", "edge_index", "edge_type", "node_offsets", "edge_offsets"):
            np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))


def test_only_the_row_groups_of_these_programs_are_read(tmp_path: Path) -> None:
    path, graphs = written(tmp_path)
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(metadata.num_row_groups - 1)
    (values,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "values")
    data = bytearray(path.read_bytes())
    data[values.data_page_offset + values.total_compressed_size - 20] ^= 1
    path.write_bytes(data)
    shard = Shard(path)
    (first,) = shard.graphs(np.arange(20))
    np.testing.assert_array_equal(first.x, graphs.select(range(20)).x)
    with pytest.raises(InputError, match=r"shard-00000\.parquet cannot be read"):
        list(shard.graphs(np.array([99])))


def test_the_unpacked_size_is_that_of_the_arrays(tmp_path: Path) -> None:
    path, graphs = written(tmp_path, tasks=40)
    arrays = sum(array.nbytes for array in (graphs.node_type, graphs.x, graphs.edge_index, graphs.edge_type))
    assert arrays < Shard(path).unpacked < 1.2 * arrays


def test_tasks_and_latencies_are_read_alone(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    shard, programs = Shard(path), synthetic.programs(10, 10)
    task, latency = shard.tasks_and_latencies()
    np.testing.assert_array_equal(task, programs.task)
    np.testing.assert_array_equal(latency, programs.latency)
    assert (len(shard), shard.tasks, shard.detail) == (100, programs.tasks, "statements")
