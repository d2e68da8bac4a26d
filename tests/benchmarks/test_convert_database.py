"""Databases of TVM 0.16 as databases of today's TVM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.old_database import SIZES, THREADS, write_old_database
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.values import VALUES

pytestmark = pytest.mark.needs("s_tir")

TOOL = Path(__file__).parents[2] / "tools" / "convert_database.py"

Convert = Callable[[Path, Path, int, int], dict[str, int]]


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Convert:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    from convert_database import convert

    return convert


def test_modules_are_the_same_and_traces_apply(tmp_path: Path, convert: Convert) -> None:
    import tvm
    from tvm.script import tirx as T

    from tvm_gnn_cost.graphs.extraction import extract_graphs
    from tvm_gnn_cost.schedulers.database.records import read_database

    @T.prim_func(s_tir=True)
    def expected(a: T.Buffer((T.int64(4096),), "float32"), b: T.Buffer((T.int64(4096),), "float32")):
        for i in range(T.int64(4096)):
            with T.sblock("b"):
                v = T.axis.spatial(T.int64(4096), i)
                b[v] = a[v] + T.float32(1)

    write_old_database(tmp_path)
    count = len(SIZES) * len(THREADS)
    assert convert(tmp_path, tmp_path / "new", 100, 2) == {"tasks": len(SIZES), "programs": count, "valid": count}
    database = read_database(tmp_path / "new")
    assert not database.problems
    first = database.workloads[0]
    assert first is not None
    assert (first.name, first.weights) == ("b 4096", {"fold-0": 1})
    tvm.ir.assert_structural_equal(first.mod["main"].body, expected.body, map_free_vars=True)
    graphs = extract_graphs([database.replay(one).sch.mod for one in database.records], detail="statements")
    threads = graphs.x[:, [name for name, _ in VALUES].index("block_threads")]
    most = [threads[begin:end].max() for begin, end in zip(graphs.node_offsets, graphs.node_offsets[1:], strict=False)]
    np.testing.assert_allclose(np.exp2(most) - 1, THREADS * len(SIZES), rtol=1e-4)


def test_few_programs_are_taken_from_all_of_a_search(tmp_path: Path, convert: Convert) -> None:
    from tvm_gnn_cost.schedulers.database.records import read_database

    write_old_database(tmp_path, SIZES[:1])
    convert(tmp_path, tmp_path / "new", 2, 2)
    assert [one.run_secs for one in read_database(tmp_path / "new").records] == [(32e-6,), (128e-6,)]


def test_the_tool_prints_counts_or_one_sentence(tmp_path: Path) -> None:
    write_old_database(tmp_path, SIZES[:1])
    command = [sys.executable, TOOL, tmp_path, tmp_path / "new"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    count = len(THREADS)
    assert json.loads(done.stdout) == {"tasks": 1, "programs": count, "valid": count}
    again = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (again.returncode, again.stderr) == (1, f"error: {tmp_path / 'new'} exists; name a new folder\n")


def test_a_folder_without_a_database_is_named(tmp_path: Path, convert: Convert) -> None:
    with pytest.raises(InputError, match="is no MetaSchedule database: it has no database_tuning_record"):
        convert(tmp_path, tmp_path / "new", 2, 2)
