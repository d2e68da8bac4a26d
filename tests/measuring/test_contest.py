from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.measuring import contestants
from tvm_gnn_cost.measuring import contest as contest_module
from tvm_gnn_cost.measuring import machine
from tvm_gnn_cost.measuring.contest import Contestant, Timed, contest
from tvm_gnn_cost.progress import Event, Stage, Step, ignore


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contestants find the tests, and another one's measurement does not hold them up."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(machine, "LOCK_PATH", tmp_path / "lock")


def run(logs: Path, *hows: str, **options: object) -> list[Timed]:
    settings = {"repeats": 2, "seconds": 0.05, "progress": ignore, "interrupted": lambda: False} | options
    return contest([Contestant(how, contestants.__name__, (how,)) for how in hows], logs, **settings)  # type: ignore[arg-type]


def test_each_is_timed_in_turn_and_leaves_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    before = psutil.Process().children()
    quick, slow = run(tmp_path, "0.001", "0.02", progress=events.append)
    assert (quick.name, quick.failure, len(quick.seconds)) == ("0.001", "", 2)
    assert (slow.name, slow.failure, len(slow.seconds)) == ("0.02", "", 2)
    assert 0.001 < min(quick.seconds) < 0.02 < min(slow.seconds)
    assert events == [
        Step("waiting for 0.001"),
        Step("waiting for 0.02"),
        Stage("timing 0.001, 0.02, interleaved"),
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "lock"]
    assert psutil.Process().children() == before


def test_those_that_measure_prepare_one_after_the_other(tmp_path: Path) -> None:
    running: list[int] = []
    found = run(
        *(tmp_path, "0.001", "0.002"),
        together=False,
        progress=lambda _: running.append(len(psutil.Process().children())),
    )
    assert [len(one.seconds) for one in found] == [2, 2]
    first, second, _ = running
    assert second == first + 1


def test_who_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    found = {one.name: one for one in run(tmp_path, "cannot", "raises", "0.001", "dies", "dies later")}
    logs = "; its output is in "
    assert {name: one.failure.partition(logs)[0] for name, one in found.items()} == {
        "cannot": "it is not installed",
        "raises": "ZeroDivisionError: a bug",
        "0.001": "",
        "dies": "its process ended with exit code 3",
        "dies later": "its process ended with exit code 4",
    }
    assert found["raises"].failure.endswith(f"{logs}{tmp_path / 'raises.log'}")
    assert [name for name, one in found.items() if one.seconds] == ["0.001"]
    assert len(found["0.001"].seconds) == 2
    log = (tmp_path / "raises.log").read_text()
    assert "what a library prints" in log
    assert "Traceback" in log
    assert not (tmp_path / "0.001.log").exists()


def test_a_turn_begins_when_the_threads_of_the_one_before_have_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    idle: list[float] = []
    measure = contest_module._Process.measure

    def noting_begin(self: contest_module._Process, seconds: float) -> None:
        begun.append(time.monotonic())
        measure(self, seconds)
        idle.append(time.monotonic())

    monkeypatch.setattr(contest_module._Process, "measure", noting_begin)
    run(tmp_path, "spins 0.6", "0.001")
    assert begun[1] - idle[0] > 0.5
    assert begun[2] - idle[1] < 0.5

    # One that never stops is not waited for, and its turns count.
    monkeypatch.setattr(contest_module, "_LONGEST_SPIN_S", 0.2)
    never, other = run(tmp_path, "spins 600", "0.001")
    assert (len(never.seconds), len(other.seconds)) == (2, 2)


def test_a_slow_one_gets_fewer_turns(tmp_path: Path) -> None:
    slow, quick = run(tmp_path, "0.3", "0.001", repeats=3, limit=0.2)
    assert (len(slow.seconds), len(quick.seconds)) == (1, 3)


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "0.001", "never ready", interrupted=lambda: True)
    assert psutil.Process().children() == before


def test_a_contestant_ends_with_its_parent() -> None:
    """Its stdin ends then, however the parent was ended."""
    process = subprocess.run(
        [sys.executable, "-m", contestants.__name__, "0.001"], input="", capture_output=True, text=True, timeout=60
    )
    assert (process.returncode, process.stdout) == (0, "{}\n")


def test_one_that_hangs_is_ended_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_module, "_LONGEST_START_S", 0.5)
    before = psutil.Process().children()
    hangs, other = run(tmp_path, "never ready", "0.001")
    assert (hangs.failure, hangs.seconds) == ("it was not ready after 0.5 s", [])
    assert (other.failure, len(other.seconds)) == ("", 2)
    assert psutil.Process().children() == before
