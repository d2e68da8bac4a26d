from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json
from tests.tuning.test_result import result


def test_a_report_of_an_unfinished_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result().save(tmp_path)
    found = call_json(capfd, "report", tmp_path)
    assert found["report"] == str(tmp_path / "report.html")
    assert found["settings"]["network"] == "net"
    assert "Not finished" in (tmp_path / "report.html").read_text()


def test_a_folder_without_a_run_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "report", tmp_path / "nowhere"), "no network was tuned in")
    assert list(tmp_path.iterdir()) == []
