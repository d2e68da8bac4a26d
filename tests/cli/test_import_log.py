from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json

pytestmark = pytest.mark.needs("auto_scheduler")


def test_a_log_becomes_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.schedulers.auto_scheduler.small_tasks import files_of

    log = tmp_path / "tuned.json"
    log.write_text(files_of("mobilenet", 3)[0].read_text())
    count = len(log.read_text().splitlines())
    found = call_json(capfd, "import-log", log, tmp_path / "data", "--network", "mobilenet", "--hardware", "theirs")
    network_tasks = found.pop("network_tasks")
    assert network_tasks > 1
    assert found == {"folder": str(tmp_path / "data"), "records": count, "tasks": 1, "left_out": 0}
    assert len(list((tmp_path / "data" / "measure_records" / "theirs").iterdir())) == 1


def test_mistakes_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.json").write_text("no record\n")
    assert_mistake(
        call(capfd, "import-log", tmp_path / "log.json", tmp_path / "data", "--network", "mobilenet"),
        "has no measure record of auto_scheduler",
    )
    code, _, err = call(capfd, "import-log", tmp_path / "none.json", tmp_path / "data", "--network", "mobilenet")
    assert code == 2
    assert "none.json" in err
    assert "Traceback" not in err
