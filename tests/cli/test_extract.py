from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.collect import collect

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "collection"
    collect(["softmax/0"], out, random=3, guided=0, turns=1, patience_s=0)
    return out


def test_extract_adds_each_program_once(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    first = call_json(capfd, "extract", folder, store)
    assert first == {"store": str(store), "added": 3, "known": 0, "left_out": 0}
    again = call_json(capfd, "extract", folder, store)
    assert (again["added"], again["known"]) == (0, 3)
    assert GraphStore(store).detail() == "statements"
    assert_mistake(call(capfd, "extract", folder, store, "--detail", "tree"), "holds graphs of detail 'statements'")


def test_a_folder_without_records_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capfd, "extract", tmp_path, tmp_path / "store")
    assert code == 2
    what = "MetaSchedule database" if scheduler().name == "meta-schedule" else "folder in TenSet's layout"
    assert f"{tmp_path} is no {what}" in err
    assert "Traceback" not in err


@pytest.mark.needs("auto_scheduler")
def test_a_machine_that_is_not_there_is_named(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "extract", folder, tmp_path / "store", "--hardware", "t4"), "has no folder t4")
