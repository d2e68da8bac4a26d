"""A tracker and machines of TVM's RPC, all on this machine's loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Self

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.schedulers.machines import count_machines

KEY = "board"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Rack:
    """Starts a tracker and some machines; they end with the ``with`` block."""

    def __init__(self, machines: int) -> None:
        self.tracker = Tracker("127.0.0.1", free_port(), KEY)
        self.wanted = machines
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._start("rpc_tracker", self.tracker.port)
        self._wait(0)
        for _ in range(self.wanted):
            self._start("rpc_server", free_port(), "--tracker", str(self.tracker), "--key", KEY)
        self._wait(self.wanted)
        return self

    def __exit__(self, *_exception: object) -> None:
        for number in range(len(self.processes)):
            self.kill(number)

    def kill(self, number: int) -> None:
        """Ends a process with all that it started, without warning; the tracker is number 0, machines begin at 1."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].wait()

    def registered(self) -> int:
        """How many machines the tracker knows; -1 if it does not answer."""
        try:
            return count_machines(self.tracker)
        except WorkError as error:
            return -1 if "answers" in str(error) else 0

    def _start(self, module: str, port: int, *arguments: str) -> None:
        here = ("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1))
        command = [sys.executable, "-m", f"tvm.exec.{module}", *here, *arguments]
        quiet = subprocess.DEVNULL
        # In a group of its own, with the processes of its sessions.
        self.processes.append(subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True))

    def _wait(self, machines: int) -> None:
        end = time.monotonic() + 120
        while self.registered() != machines:
            assert time.monotonic() < end, f"{self.registered()} of {machines} machines came up"
            time.sleep(0.2)
