from __future__ import annotations

import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_gnn_cost.measuring import exclusive
from tvm_gnn_cost.measuring.exclusive import machine_to_itself

# Prints when it has the lock, and keeps it until its input ends.
MEASURES = """
import sys
from pathlib import Path
from tvm_gnn_cost.measuring import exclusive
exclusive.LOCK_PATH = Path(sys.argv[1])
print("ready", flush=True)
with exclusive.machine_to_itself():
    print("measures", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of the test's own: another one's measurement does not hold it up."""
    monkeypatch.setattr(exclusive, "LOCK_PATH", tmp_path / "lock")
    return tmp_path / "lock"


def other_process(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURES, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def has_lock(lock: Path) -> bool:
    """Whether some process holds the lock, as ``flock`` of a shell sees it."""
    if shutil.which("flock") is None:
        pytest.skip("no flock")
    return subprocess.run(["flock", "--nonblock", str(lock), "true"], timeout=30, check=False).returncode == 1


def test_two_processes_never_measure_at_once(lock: Path) -> None:
    with machine_to_itself():
        other = other_process(lock)
        assert other.stdout is not None
        assert select.select([other.stdout], [], [], 0.5)[0] == []
    assert other.stdout.readline() == "measures\n"
    other.communicate("", timeout=30)
    assert other.returncode == 0


def test_the_lock_is_released_after_an_error(lock: Path) -> None:
    def fail() -> None:
        with machine_to_itself():
            assert has_lock(lock)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not has_lock(lock)


def test_a_killed_process_releases_the_lock(lock: Path) -> None:
    other = other_process(lock)
    assert other.stdout is not None
    assert other.stdout.readline() == "measures\n"
    assert has_lock(lock)
    other.send_signal(signal.SIGKILL)
    other.wait(30)
    assert not has_lock(lock)
    other.communicate(timeout=30)


def test_every_process_of_the_machine_uses_the_same_lock() -> None:
    script = "from tvm_gnn_cost.measuring.exclusive import LOCK_PATH; print(LOCK_PATH)"
    found = {
        subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout
        for folder in ("/", Path(__file__).parent)
    }
    assert len(found) == 1
    assert Path(found.pop().strip()).is_absolute()
