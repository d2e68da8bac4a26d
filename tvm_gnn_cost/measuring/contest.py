"""Times contestants in turn, each in a process of its own that lives until the last one is timed.

Runtimes disturb each other: their threads spin for a while after a run and would slow the next one in the same process.
A contestant's process and this one exchange lines of JSON: it says when it is prepared, and then, whenever it is asked,
how long a run took.
"""

from __future__ import annotations

import json
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

from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.progress import Progress, Stage, Step

#: After a run the threads of OpenMP, ONNX Runtime and TVM spin, whoever runs next, on some machines for longer than a
#: turn. A process that has used none of this time, but for a tick of the kernel's clock, has stopped.
_PAUSE_S = 0.05
_TICK_S = 0.011
#: A process that never stops is not waited for any longer.
_LONGEST_SPIN_S = 5.0


@dataclass(frozen=True)
class Contestant:
    """What is timed.

    Attributes:
        name: Its name.
        module: The Python module that its process runs; it calls :func:`serve`.
        arguments: The module's command line.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()


@dataclass
class Timed:
    """Seconds of a run, one for each repeat; ``failure`` says in one sentence why there are none."""

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
    progress: Progress,
    interrupted: Callable[[], bool],
) -> list[Timed]:
    """Times every contestant ``repeats`` times, in turn, while no other process measures on this machine.

    Args:
        contestants: What to time; one that fails is left out, and the others go on.
        logs: The folder for ``NAME.log``, what the process of a contestant that failed printed.
        repeats: How often each has its turn.
        seconds: How long a turn counts; it gives the median of the runs that fit into it, at least one. Many turns meet
            a shared machine's good and bad seconds alike.
        limit: A contestant that has run for so many seconds gets no more turns.
        progress: Receives what is waited for.
        interrupted: Whether the user pressed Ctrl-C.

    Raises:
        KeyboardInterrupt: he did.
    """
    with ExitStack() as running:
        processes = [running.enter_context(_Process(one, logs, interrupted)) for one in contestants]
        for process in processes:
            progress(Step(f"waiting for {process.timed.name}"))
            process.answer()
        progress(Stage(f"timing {', '.join(one.timed.name for one in processes if not one.timed.failure)} in turn"))
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
        # Without -P a file of the present folder could stand for a module.
        command = [sys.executable, "-P", "-m", contestant.module, *contestant.arguments]
        pipe = subprocess.PIPE
        # In a session of its own, no terminal sends it Ctrl-C. It ends when its stdin does, so also if we are killed.
        environment = {"TVM_NUM_THREADS": str(usable_cores()), **os.environ}
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.log, text=True, start_new_session=True, env=environment
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
        """Gives the contestant a turn."""
        assert self.process.stdin is not None
        start = time.monotonic()
        with suppress(BrokenPipeError):  # it has ended, as the answer will say
            print(json.dumps(seconds), file=self.process.stdin, flush=True)
        answer = self.answer()
        self.busy += time.monotonic() - start
        if not self.timed.failure:
            self.timed.seconds.append(answer["seconds"])

    def wait_until_idle(self) -> None:
        """Waits until the threads of the process have stopped spinning."""
        end = time.monotonic() + _LONGEST_SPIN_S
        with suppress(psutil.Error):  # it has ended
            used = self._cpu_seconds()
            while time.monotonic() < end:
                time.sleep(_PAUSE_S)
                before, used = used, self._cpu_seconds()
                if used - before < _TICK_S:
                    return

    def _cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def answer(self) -> dict[str, Any]:
        """Waits for a line of the process; a failure that it tells of, or its end, is noted."""
        assert self.process.stdout is not None
        while not select.select([self.process.stdout], [], [], 0.2)[0]:
            if self.interrupted():
                raise KeyboardInterrupt
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            line = json.dumps({"failure": f"its process ended with exit code {code}"})
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            self.timed.failure = answer["failure"]
            if self.path.stat().st_size:
                self.timed.failure += f"; what it printed is in {self.path}"
        return answer


class CannotRun(Exception):
    """A contestant cannot run here; the message is the sentence that says why."""


def serve(prepare: Callable[[], Callable[[], Any]]) -> None:
    """Runs a contestant in its process: prepares it, then times it whenever a line on stdin gives the seconds.

    Args:
        prepare: Makes everything ready, and returns the function to time.
    """
    # What libraries print must not get between the lines of JSON.
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
    """Median of the seconds of as many runs as fit into ``wanted``, and at least of one.

    Half as long it runs uncounted before: its threads were asleep, and others have used the caches. A run that takes
    longer than ``wanted`` counts.
    """
    *_, last = _runs(run, wanted / 2)
    return last if last > wanted else median(_runs(run, wanted))


def _runs(run: Callable[[], Any], wanted: float) -> list[float]:
    """The seconds of as many runs as fit into ``wanted``, and at least of one."""
    found: list[float] = []
    end = time.perf_counter() + wanted
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found
