"""Tuning as a user runs it, in a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import COMMAND, assert_mistake, call, call_json, run
from tests.onnx_files import perceptron, write_perceptron
from tests.tuning.test_result import result
from tvm_gnn_cost.schedulers import scheduler

NETWORKS = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}


def arguments(work_dir: Path, *network: object) -> list[object]:
    name = scheduler().name
    options = (
        "--scheduler",
        name,
        "--cost-model",
        "random",
        "--batch-size",
        2,
        "--population-size",
        16,
        "--no-compare",
    )
    return ["tune", *(network or (NETWORKS[name],)), *options, "--work-dir", work_dir]


@pytest.mark.needs("tvm")
def test_tune_prints_json_alone_and_report_repeats_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    work_dir = tmp_path / "work"
    network = (write_perceptron(tmp_path / "mine.onnx", perceptron()), "--shape", "x=16,784")
    done = run(*arguments(work_dir, *network), "--trials", 4, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(task["trials"] for task in found["tasks"]) == 4
    tuned = found["end_to_end"]["networks"][0]
    assert (tuned["name"], len(tuned["seconds"])) == ("tuned", 10)
    assert tuned["difference"] < 1e-5
    assert tuned["gflops"] > 0
    for text in ("weighted sum", "Difference from ", "mutation", "report: ", "library: ", "4/4 trials"):
        assert text in done.stderr
    assert "Warning" not in done.stderr
    assert "<svg" in (work_dir / "report.html").read_text()

    (work_dir / "report.html").unlink()
    assert call_json(capfd, "report", work_dir) == found
    assert (work_dir / "report.html").exists()
    assert_mistake(call(capfd, *arguments(work_dir, *network), "--seed", 1), "was tuned with seed 0, not 1")


@pytest.mark.slow
@pytest.mark.needs("tvm")
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
    assert "run the same command to resume" in errors
    assert "Traceback" not in errors
    lines = records.read_text().splitlines()
    assert 0 < len(lines) < 1000
    if scheduler().name == "meta-schedule":
        # What the interruption cut short is not recorded as a failed program.
        assert all(max(json.loads(line)[1][1]) < 1e9 for line in lines)
    assert json.loads((work_dir / "tuning.json").read_text())["end_to_end"] is None


@pytest.mark.needs("tvm")
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    name = scheduler().name
    other = next(one for one in NETWORKS if one != name)
    for network, options, sentence, code in (
        (NETWORKS[name], ("--trials", "-1"), "--trials", 2),
        (NETWORKS[name], ("--cost-model", "nosuch"), "neither gnn, xgb, random or mlp", 2),
        (NETWORKS[name], ("--scheduler", other), "failed: this needs ", 1),
        (NETWORKS[name], ("--shape", "x=1,2"), f"{NETWORKS[name]} has no input 'x'", 2),
        (NETWORKS[name], ("--shape", "x"), "--shape x: expected NAME=1,3,224,224", 2),
        (NETWORKS[name], ("--inputs", "nosuch.npz"), "nosuch.npz", 2),
        ("nosuch", (), "unknown ", 2),
        ("nosuch.onnx", (), "nosuch.onnx", 2),
        ("net.pth", (), "net.pth holds weights or a pickled object", 2),
        ("nosuch:f", (), "there is no module 'nosuch'", 2),
    ):
        answer = call(capfd, "tune", network, "--scheduler", name, *options)
        assert_mistake(answer, sentence, code)
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_an_unfinished_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result().save(tmp_path)
    found = call_json(capfd, "report", tmp_path)
    assert found["report"] == str(tmp_path / "report.html")
    assert found["settings"]["network"] == "net"
    assert "Not finished" in (tmp_path / "report.html").read_text()


def test_a_folder_without_a_run_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "report", tmp_path / "nowhere"), "no network was tuned in")
    assert list(tmp_path.iterdir()) == []
