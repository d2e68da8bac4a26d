from __future__ import annotations

import getpass
import json
import multiprocessing
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring import machine
from tvm_gnn_cost.measuring.machine import (
    OtherLoad,
    Tracker,
    describe_machine,
    describe_measuring,
    machine_to_itself,
    timed,
    tracker_at,
)


def test_the_machine_is_described() -> None:
    found = describe_machine()
    assert list(found) == ["processor", "signature", "cores", "threads", "memory_gib", "system", "python"]
    assert found["processor"]
    assert found["threads"] == os.cpu_count()
    assert abs(found["memory_gib"] - psutil.virtual_memory().total / 2**30) <= 0.5
    assert found["python"] == platform.python_version()
    assert json.loads(json.dumps(found)) == found


def test_nothing_names_the_machine_or_its_user() -> None:
    found = json.dumps(describe_machine())
    names = {platform.node(), getpass.getuser(), str(Path.home())}
    assert not [name for name in names if len(name) > 3 and name in found]


def test_the_first_processor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC: 7763 64-Core\nstepping\t: 1\n"
    text = f"{first}\nprocessor\t: 1\ncpu family\t: 7\nmodel\t\t: 7\nmodel name\t: other\n"
    monkeypatch.setattr(Path, "read_text", lambda _self: text)
    found = describe_machine()
    assert found["processor"] == "AMD EPYC: 7763 64-Core"
    assert found["signature"] == "family 26, model 2, stepping 1"


@pytest.mark.parametrize("cpuinfo", [None, "processor\t: 0\nCPU part\t: 0xd40\n"])
def test_a_processor_without_a_model_name_is_called_what_the_system_calls_it(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _self: cpuinfo is not None)
    monkeypatch.setattr(Path, "read_text", lambda _self: cpuinfo)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = describe_machine()
    assert (found["processor"], found["signature"]) == ("aarch64", "")


# Prints when it has the lock, and keeps it until its input ends.
MEASURES = """
import sys
from pathlib import Path
from tvm_gnn_cost.measuring import machine
machine.LOCK_PATH = Path(sys.argv[1])
print("ready", flush=True)
with machine.machine_to_itself():
    print("measures", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of the test's own: another one's measurement does not hold it up."""
    monkeypatch.setattr(machine, "LOCK_PATH", tmp_path / "lock")
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
    script = "from tvm_gnn_cost.measuring.machine import LOCK_PATH; print(LOCK_PATH)"
    found = {
        subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout
        for folder in ("/", Path(__file__).parent)
    }
    assert len(found) == 1
    assert Path(found.pop().strip()).is_absolute()


_SPIN = "while True: pass"


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A busy process outside this one's family: its parent ends at once."""
    # It must not hold the pipe that its number comes through.
    alone = f"subprocess.Popen([sys.executable, '-c', {_SPIN!r}], stdout=subprocess.DEVNULL)"
    start = f"import subprocess, sys; print({alone}.pid)"
    done = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    process = psutil.Process(int(done.stdout))
    yield process
    process.kill()


def used_beside(process: psutil.Process, seconds: float) -> tuple[float, float]:
    """Cores that others were found to use in some seconds, and cores that the process used."""
    before, start, load = process.cpu_times(), time.monotonic(), OtherLoad()
    time.sleep(seconds)
    found, after = load.cores(), process.cpu_times()
    return found, (after.user + after.system - before.user - before.system) / (time.monotonic() - start)


def test_another_process_is_counted(stranger: psutil.Process) -> None:
    found, own = used_beside(stranger, 1.0)
    assert own > 0.1
    assert found > own - 0.1


def test_this_process_and_its_children_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests may run beside this one: of the whole machine only this family is looked at.
    child = multiprocessing.get_context("spawn").Process(target=_call_a_process)
    whole = psutil.cpu_times()
    me = psutil.Process()

    def of_the_family() -> object:
        processes = [me, *me.children(recursive=True)]
        times = [process.cpu_times() for process in processes]
        ended = sum(one.children_user + one.children_system for one in times)
        return whole._replace(user=sum(one.user for one in times) + ended, system=sum(one.system for one in times))

    monkeypatch.setattr(machine.psutil, "cpu_times", of_the_family)
    load = OtherLoad()
    child.start()
    _spin_for(0.5)
    assert load.cores() < 0.1
    # The child lives on when the process that it called has ended, as a worker does after linking.
    time.sleep(2.5)
    called = psutil.Process(child.pid).cpu_times()
    assert called.children_user + called.children_system > 0.3
    assert load.cores() < 0.1
    child.join()
    assert load.cores() < 0.1


def _call_a_process() -> None:
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    time.sleep(3)


def _spin_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_an_address_has_a_host_and_a_port() -> None:
    assert Tracker.at("rack-1:9190", "board") == Tracker("rack-1", 9190, "board")
    assert str(Tracker.at("[::1]:9190", "board")) == "::1:9190"


@pytest.mark.parametrize("address", ["", "rack-1", "rack-1:", ":9190", "rack-1:http", "rack-1:0", "rack-1:70000"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="the tracker's address must be HOST:PORT"):
        Tracker.at(address, "board")


def test_without_an_address_and_a_key_this_machine_measures() -> None:
    assert tracker_at("", "") is None
    assert tracker_at("rack-1:9190", "board") == Tracker("rack-1", 9190, "board")
    with pytest.raises(InputError, match="the tracker's address must be HOST:PORT"):
        tracker_at("", "board")
    assert "cores" in describe_measuring(None)
    assert describe_measuring(Tracker("rack-1", 9190, "board")) == {"processor": "machines 'board' of an RPC tracker"}


def test_the_machines_have_a_key() -> None:
    with pytest.raises(InputError, match="the tracker rack-1:9190 needs the key"):
        Tracker.at("rack-1:9190", "")


def fail_slowly() -> None:
    time.sleep(0.02)
    raise ValueError("refused")


def test_seconds_add_up_even_where_a_block_fails() -> None:
    seconds = {"running": 1.0}
    with timed(seconds, "building"):
        time.sleep(0.02)
    with pytest.raises(ValueError, match="refused"), timed(seconds, "building"):
        fail_slowly()
    assert 0.04 <= seconds.pop("building") < 5
    assert seconds == {"running": 1.0}
