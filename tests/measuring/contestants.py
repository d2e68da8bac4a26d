"""Contestants for the tests: ``python -m tests.measuring.contestants HOW``."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from tvm_gnn_cost.measuring.contest import CannotRun, serve


def prepare(how: str) -> Callable[[], None]:
    print("what a library prints")
    if how == "cannot":
        raise CannotRun("it is not installed")
    if how == "raises":
        raise ZeroDivisionError("a bug\nin two lines")
    if how == "dies":
        os._exit(3)
    if how == "dies later":
        return lambda: os._exit(4)
    if how == "never ready":
        time.sleep(600)
    if how.startswith("spins "):
        return lambda: spin(float(how.removeprefix("spins ")))
    return lambda: time.sleep(float(how))


def spin(seconds: float) -> None:
    """Returns at once and leaves a thread that keeps a core busy for so long."""
    end = time.monotonic() + seconds

    def busy() -> None:
        while time.monotonic() < end:
            pass

    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.02)


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1]))
