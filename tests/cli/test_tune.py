"""Tuning as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import COMMAND, assert_mistake, call, run
from tvm_gnn_cost.schedulers import scheduler

pytestmark = pytest.mark.needs("tvm")

NETWORKS = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}


def arguments(work_dir: Path) -> list[object]:
    name = scheduler().name
    options = ("--scheduler", name, "--cost-model", "random", "--batch", 2, "--population", 16)
    return ["tune", "--network", NETWORKS[name], *options, "--work-dir", work_dir]


def test_tune_prints_json_alone_and_report_repeats_it(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    done = run(*arguments(work_dir), "--trials", 4, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(task["trials"] for task in found["tasks"]) == 4
    assert found["end_to_end"]["tuned_difference"] < 1e-5
    for text in ("weighted sum", "difference from ", "mutation", "report: ", "4/4 trials"):
        assert text in done.stderr
    assert "Warning" not in done.stderr
    assert "<svg" in (work_dir / "report.html").read_text()

    (work_dir / "report.html").unlink()
    again = run("report", work_dir, "--json", "-")
    assert again.returncode == 0
    assert json.loads(again.stdout) == found
    assert (work_dir / "report.html").exists()
    other = [*arguments(work_dir), "--seed", 1]
    refused = run(*other)
    assert_mistake((refused.returncode, refused.stdout, refused.stderr), "was tuned with seed 0, not 1")


def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    records = work_dir / scheduler().records_file
    command = [*COMMAND, *map(str, arguments(work_dir)), "--trials", "1000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not (records.exists() and records.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.1)
        # To the whole group, as a terminal sends it: the builder's and the runner's workers get it too.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "run the same command to go on" in errors
    assert "Traceback" not in errors
    lines = records.read_text().splitlines()
    assert 0 < len(lines) < 1000
    if scheduler().name == "meta-schedule":
        # What the interruption cut short is not recorded as a failed program.
        assert not any("10000000000" in line for line in lines)
    assert json.loads((work_dir / "tuning.json").read_text())["end_to_end"] is None


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    name = scheduler().name
    other = next(one for one in NETWORKS if one != name)
    for options, sentence, code in (
        (("--trials", "0"), "--trials", 2),
        (("--cost-model", "nosuch"), "neither gnn, xgb or random", 2),
        (("--network", "nosuch"), "'nosuch'", 2),
        (("--scheduler", other), "failed: this needs ", 1),
    ):
        answer = call(capfd, "tune", "--network", NETWORKS[name], "--scheduler", name, *options)
        assert_mistake(answer, sentence, code)
    assert list(tmp_path.iterdir()) == []
