"""Times contestants (compiled networks, runtimes), interleaved, each in a separate process.

Runtimes disturb each other: their threads spin for a while after a run and would slow the next run in the same process.
A contestant's process sends a line of JSON when it is prepared, and then, for each line on its stdin, the seconds of a
run.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import psutil

from tvm_gnn_cost.measuring.machine import machine_to_itself
from tvm_gnn_cost.progress import Progress, Stage, Step

#: After a run the threads of OpenMP, ONNX Runtime and TVM spin, on some machines longer than a timing. A process that
#: used less than a tick of the kernel's clock during a pause has stopped.
_PAUSE_S = 0.05
_TICK_S = 0.011
#: Maximum wait for a process that does not stop.
_LONGEST_SPIN_S = 5.0
#: Maximum wait for a process that prepares: runtimes compile for minutes, or hang.
_LONGEST_START_S = 900.0


@dataclass(frozen=True)
class Contestant:
    """What is timed.

    Attributes:
        name: Its name.
        module: The Python module to run, which calls :func:`serve`.
        arguments: The module's command line arguments.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()


@dataclass
class Timed:
    """Seconds of each repeat; ``failure`` says why a contestant could not be timed."""

    name: str
    seconds: list[float] = field(default_factory=list)
    failure: str = ""


def contest(
    contestants: Sequence[Contestant],
    logs: Path,
    *,
    repeats: int = 10,
    seconds: float = 0.2,
    limit: float = 5.0,
    together: bool = True,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> list[Timed]:
    """Times every contestant ``repeats`` times, interleaved, while no other process measures on this machine.

    Args:
        contestants: What to time; a contestant that fails is excluded.
        logs: The folder for ``NAME.log``, the output of a contestant that failed.
        repeats: Number of timings of each contestant.
        seconds: Duration of a timing, which is the median of the runs in this time, at least one run. Many short
            timings average over the fluctuations of a shared machine.
        limit: Seconds after which a contestant is not timed again.
        together: Whether all prepare at the same time; for those that measure while they prepare, one after the other.
        progress: Receives events.
        interrupted: Whether the user pressed Ctrl-C.

    Raises:
        KeyboardInterrupt: if the user pressed Ctrl-C.
    """
    with ExitStack() as running:
        processes = []
        for group in [contestants] if together else [[contestant] for contestant in contestants]:
            started = [running.enter_context(_Process(contestant, logs, interrupted)) for contestant in group]
            for process in started:
                progress(Step(f"waiting for {process.timed.name}"))
                process.answer(_LONGEST_START_S)
            processes += started
        ready = [process.timed.name for process in processes if not process.timed.failure]
        progress(Stage(f"timing {', '.join(ready)}, interleaved"))
        with machine_to_itself():
            for process in processes:
                process.wait_until_idle()
            for _ in range(repeats):
                for process in processes:
                    if not process.timed.failure and process.busy < limit:
                        process.measure(seconds)
                        process.wait_until_idle()
        return [process.timed for process in processes]


class _Process:
    """A contestant's process."""

    def __init__(self, contestant: Contestant, logs: Path, interrupted: Callable[[], bool]) -> None:
        self.timed, self.busy = Timed(contestant.name), 0.0
        self.interrupted = interrupted
        logs.mkdir(parents=True, exist_ok=True)
        self.path = logs / f"{contestant.name}.log"
        self.log = self.path.open("w", encoding="utf-8")
        # Without -P a file in the current folder could shadow a module.
        command = [sys.executable, "-P", "-m", contestant.module, *contestant.arguments]
        pipe = subprocess.PIPE
        # In a new session, the terminal does not send it Ctrl-C. It ends with its stdin, so also when we are killed.
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.log, text=True, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()
        if not self.timed.failure or not self.path.stat().st_size:
            self.path.unlink()

    def measure(self, seconds: float) -> None:
        """Times the contestant once."""
        assert self.process.stdin is not None
        start = time.monotonic()
        with suppress(BrokenPipeError):  # the process has ended, which the answer reports
            print(json.dumps(seconds), file=self.process.stdin, flush=True)
        answer = self.answer()
        self.busy += time.monotonic() - start
        if not self.timed.failure:
            self.timed.seconds.append(answer["seconds"])

    def wait_until_idle(self) -> None:
        """Waits until the threads of the process have stopped spinning."""
        end = time.monotonic() + _LONGEST_SPIN_S
        with suppress(psutil.Error):  # the process has ended
            used = self._cpu_seconds()
            while time.monotonic() < end:
                time.sleep(_PAUSE_S)
                before, used = used, self._cpu_seconds()
                if used - before < _TICK_S:
                    return

    def _cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def answer(self, longest: float = math.inf) -> dict[str, Any]:
        """Waits for a line of the process, and notes its failure or end; ends it after ``longest`` seconds."""
        assert self.process.stdout is not None
        end = time.monotonic() + longest
        while not select.select([self.process.stdout], [], [], 0.2)[0]:
            if self.interrupted():
                raise KeyboardInterrupt
            if time.monotonic() > end:
                self.process.kill()
                self.timed.failure = f"it was not ready after {longest:g} s"
                return {}
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            line = json.dumps({"failure": f"its process ended with exit code {code}"})
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            self.timed.failure = answer["failure"]
            if self.path.stat().st_size:
                self.timed.failure += f"; its output is in {self.path}"
        return answer


class CannotRun(Exception):
    """A contestant cannot run on this machine; the message says why."""


def serve(prepare: Callable[[], Callable[[], Any]]) -> None:
    """Runs a contestant in its process: prepares it, then times it for each line with seconds on stdin.

    Args:
        prepare: Prepares everything and returns the function to time.
    """
    # Output of libraries must not mix with the lines of JSON.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=out, flush=True)

    # A contestant's libraries raise errors of any type.
    try:
        run = prepare()
        say()
        for line in sys.stdin:
            say(seconds=_seconds(run, json.loads(line)))
    except CannotRun as error:
        say(failure=str(error))
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines()
        say(failure=f"{type(error).__name__}: {lines[0] if lines else ''}"[:300])


def _seconds(run: Callable[[], Any], wanted: float) -> float:
    """Median seconds of the runs that fit into ``wanted`` seconds, at least one.

    It warms up for half this time, because its threads were asleep and the caches are cold. If a warm-up run takes
    longer than ``wanted``, it is the result.
    """
    *_, last = _runs(run, wanted / 2)
    return last if last > wanted else median(_runs(run, wanted))


def _runs(run: Callable[[], Any], wanted: float) -> list[float]:
    """The seconds of the runs that fit into ``wanted`` seconds, at least one."""
    seconds: list[float] = []
    end = time.perf_counter() + wanted
    while not seconds or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds
