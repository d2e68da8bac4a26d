from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tvm_gnn_cost.measuring import other_load
from tvm_gnn_cost.measuring.other_load import OtherLoad

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

    monkeypatch.setattr(other_load.psutil, "cpu_times", of_the_family)
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
