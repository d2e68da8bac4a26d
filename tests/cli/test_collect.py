from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json
from tvm_gnn_cost.schedulers import scheduler

pytestmark = pytest.mark.needs("tvm")


def test_collect_counts_and_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--random", 2, "--guided", 0, "--patience", 0, "--scheduler", scheduler().name)
    found = call_json(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert found["folder"] == str(tmp_path / "data")
    assert found["tasks"] == 1
    assert found["measured"] + found["failed"] == 2
    code, _, err = call(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert code == 0
    assert f"{tmp_path / 'data'}: 2 programs, {found['failed']} failed; 0 of them measured now" in err


def test_mistakes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = scheduler().name
    answer = call(capfd, "collect", "nosuch", tmp_path / "data", "--scheduler", name)
    assert_mistake(answer, "'nosuch'")
    other = "auto-scheduler" if name == "meta-schedule" else "meta-schedule"
    answer = call(capfd, "collect", "softmax/0", tmp_path / "data", "--scheduler", other)
    assert_mistake(answer, "failed: this needs ", code=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("auto_scheduler")
def test_the_name_of_the_hardware_is_a_folders(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--scheduler", "auto-scheduler", "--hardware", "../elsewhere")
    answer = call(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert_mistake(answer, "hardware '../elsewhere' cannot name a folder")
