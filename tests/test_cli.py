"""The command line as a user runs it: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.command import call

COMMANDS = ("tune", "report", "collect")


def run(*arguments, timeout=300):
    return subprocess.run(
        [sys.executable, "-c", "from tvm_gnn_cost.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )


def assert_mistake(done, *parts):
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def test_help_is_quick_and_needs_neither_torch_nor_tvm():
    code = (
        "import sys, tvm_gnn_cost.cli.app as cli\n"
        "try: cli.app(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'tvm', 'matplotlib', 'numpy'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert command in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"tvm-gnn-cost {command}" in done.stdout.split("Example:")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report", "nowhere"), "no network was tuned in nowhere"),
        (("tune", "--network", "perceptron", "--trials", "0"), "--trials"),
        (("tune", "--network", "perceptron", "--cost-model", "nosuch"), "neither gnn, xgb or random"),
        (("nosuch",), "No such command"),
    ],
)
def test_mistakes_get_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_mistake(run(*arguments), sentence)
    assert list(tmp_path.iterdir()) == []


def test_tune_prints_json_alone_and_report_repeats_it(tmp_path):
    pytest.importorskip("tvm")
    work_dir = tmp_path / "work"
    arguments = (
        "--network",
        "perceptron",
        "--cost-model",
        "random",
        "--batch",
        2,
        "--population",
        8,
        "--work-dir",
        work_dir,
    )
    done = run("tune", *arguments, "--trials", 4, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(task["trials"] for task in found["tasks"]) == 4
    assert found["end_to_end"]["tuned_difference"] < 1e-5
    for text in ("fused_matmul_add_relu", "weighted sum", "difference from PyTorch", "mutation", "report: "):
        assert text in done.stderr
    assert "<svg" in (work_dir / "report.html").read_text()

    (work_dir / "report.html").unlink()
    again = run("report", work_dir, "--json", "-")
    assert again.returncode == 0
    assert json.loads(again.stdout) == found
    assert (work_dir / "report.html").exists()
    assert_mistake(run("tune", "--network", "dcgan", *arguments[2:]), "was tuned with network perceptron, not dcgan")


def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tmp_path):
    pytest.importorskip("tvm")
    work_dir = tmp_path / "work"
    records = work_dir / "database_tuning_record.json"
    arguments = ["tune", "--network", "perceptron", "--cost-model", "random", "--batch", "2", "--population", "8"]
    command = [sys.executable, "-c", "from tvm_gnn_cost.cli import main; main()", *arguments, "--work-dir", work_dir]
    process = subprocess.Popen(
        [*map(str, command), "--trials", "1000"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 300
        while not (records.exists() and records.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.1)
        # To the whole group, as a terminal sends it: the builder's and the runner's workers get it too.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "run the same command to go on" in errors
    assert "Traceback" not in errors
    lines = records.read_text().splitlines()
    assert 0 < len(lines) < 1000
    # What the interruption cut short is not recorded as a failed program.
    assert not any("10000000000" in line for line in lines)
    assert json.loads((work_dir / "tuning.json").read_text())["end_to_end"] is None


def test_collect_counts_and_resumes(tmp_path, capfd):
    pytest.importorskip("tvm")
    arguments = ("collect", "dense/0", tmp_path / "data", "--random", 2, "--guided", 0, "--json", "-")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tasks"] >= 1
    assert found["measured"] + found["failed"] == 2 * found["tasks"]
    # Two more processes would import TVM twice more.
    code, out, err = call(capfd, *arguments)
    assert code == 0, err
    again = json.loads(out)
    assert (again["tasks"], again["measured"], again["failed"]) == (found["tasks"], 0, 0)
    code, out, err = call(capfd, "collect", "nosuch", tmp_path / "other")
    assert (code, out) == (2, "")
    assert "unknown workload 'nosuch'" in err


@pytest.mark.parametrize(
    "arguments", [("tune", "--network", "resnet-18"), ("collect", "softmax/0", "data")], ids=["tune", "collect"]
)
def test_what_needs_auto_scheduler_says_so_in_todays_tvm(arguments, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capfd, *arguments, "--scheduler", "auto-scheduler")
    assert code == 1
    assert "failed: this needs a TVM with auto_scheduler" in err
    assert "cannot import" not in err
    assert list(tmp_path.iterdir()) == []
