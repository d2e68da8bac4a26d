"""A real search of Ansor: the tasks of a perceptron, built, run and compared end to end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from tvm import auto_scheduler

from tvm_gnn_cost.tuning.auto_scheduler import GNNCostModel
from tvm_gnn_cost.tuning.result import TuneResult, load_result
from tvm_gnn_cost.tuning.tune_auto_scheduler import RECORDS, make_cost_model, tune

TASKS = 4


class Log:
    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.batches: list[tuple[int, str]] = []

    def status(self, text: str) -> None:
        self.statuses.append(text)

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def measured(self, result: TuneResult, task: str) -> None:
        self.batches.append((result.trials, task))


def search(work_dir: Path, trials: int, cost_model: str, **changes) -> tuple[TuneResult, Log]:
    log = Log()
    return tune("mlp", trials, cost_model, work_dir, batch=2, population=16, progress=log, **changes), log


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, checkpoint: str) -> tuple[Path, TuneResult, Log]:
    work_dir = tmp_path_factory.mktemp("tune") / "work"
    return work_dir, *search(work_dir, 2 * TASKS, checkpoint)


def test_every_task_is_measured_and_the_network_compared(tuned: tuple[Path, TuneResult, Log]):
    work_dir, result, log = tuned
    assert len(result.tasks) == TASKS
    assert all(task.untuned > 0 for task in result.tasks)
    assert [task.trials for task in result.tasks] == [2] * TASKS
    assert len((work_dir / RECORDS).read_text().splitlines()) == result.trials == 2 * TASKS
    latencies = [point.latency for point in result.curve]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[-1] == pytest.approx(result.latency)
    assert result.end_to_end is not None
    assert 0 <= result.end_to_end.tuned_difference < 1e-4
    assert min(result.end_to_end.untuned + result.end_to_end.tuned) > 0
    assert {phase for phase, seconds in result.seconds.items() if seconds > 0} >= {
        *("preparation", "mutation", "prediction", "model update", "building", "running", "verification")
    }
    assert result.settings.scheduler == "auto-scheduler"
    assert log.batches[-1][0] == 2 * TASKS
    assert load_result(work_dir) == result


def test_more_trials_go_on_from_the_records(tuned: tuple[Path, TuneResult, Log], tmp_path: Path, checkpoint: str):
    work_dir = Path(shutil.copytree(tuned[0], tmp_path / "work"))
    finished, log = search(work_dir, 2 * TASKS, checkpoint)
    assert finished == tuned[1]
    assert log.statuses == []
    # Killed while it wrote a record.
    with (work_dir / RECORDS).open("a") as records:
        records.write((work_dir / RECORDS).read_text()[:100])
    more, _ = search(work_dir, 2 * TASKS + 2, checkpoint)
    lines = (work_dir / RECORDS).read_text().splitlines()
    assert more.trials == len(lines) >= 2 * TASKS + 2  # TVM gives every task a round first
    assert lines[: 2 * TASKS] == (tuned[0] / RECORDS).read_text().splitlines()
    # TVM writes a record's seconds with six digits.
    assert more.latency <= tuned[1].latency * (1 + 1e-5)
    with pytest.raises(ValueError, match=r"was tuned with cost model .*, not random"):
        search(work_dir, 3 * TASKS, "random")


def test_mistakes(tmp_path: Path):
    with pytest.raises(ValueError, match="mlp has 4 tasks; --trials 3 is less than one each"):
        search(tmp_path / "few", 3, "random")
    with pytest.raises(ValueError, match="neither gnn, xgb or random"):
        search(tmp_path / "model", 8, "nosuch")
    with pytest.raises(ValueError, match="unknown network 'nosuch' for auto_scheduler; one of: resnet-18"):
        tune("nosuch", 8, "random", tmp_path / "network", progress=Log())
    assert not list(tmp_path.iterdir())


def test_cost_models_by_name(checkpoint: str):
    assert isinstance(make_cost_model("random", 8), auto_scheduler.RandomModel)
    assert isinstance(make_cost_model("xgb", 8), auto_scheduler.XGBModel)
    assert isinstance(make_cost_model(checkpoint, 8), GNNCostModel)
    assert isinstance(make_cost_model("gnn", 8), GNNCostModel)


def test_the_command_line(tuned: tuple[Path, TuneResult, Log], tmp_path: Path, checkpoint: str):
    work_dir = Path(shutil.copytree(tuned[0], tmp_path / "work"))
    main = [sys.executable, "-c", "from tvm_gnn_cost.cli import main; main()", "tune", "--network", "mlp"]
    main += ["--trials", "8", "--batch", "2", "--population", "16", "--cost-model", checkpoint]
    command = [*main, "--work-dir", str(work_dir), "--scheduler", "auto-scheduler", "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["settings"] == asdict(tuned[1].settings)
    assert "difference from" in ran.stderr
    assert "untuned" in (work_dir / "report.html").read_text()
    # What needs today's TVM says so in one sentence.
    wrong = subprocess.run(main, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "this needs today's TVM" in wrong.stderr
    assert "bitblas" in wrong.stderr
    assert "Traceback" not in wrong.stderr
