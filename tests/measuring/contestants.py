"""Contestants for the tests: ``python -m tests.measuring.contestants HOW``."""

from __future__ import annotations

import os
import sys
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
    return lambda: time.sleep(float(how))


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1]))
