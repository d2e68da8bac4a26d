"""Ctrl-C during a search that runs inside TVM's C++ code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ends a search at its next measured batch when Ctrl-C is pressed, and at once when it is pressed again.

    A KeyboardInterrupt that is raised wherever Python happens to be inside TVM's C++ code comes out as a RuntimeError,
    gets lost, or crashes the interpreter; a search's own callback raises one in a place that TVM expects.

    Yields a function that tells whether Ctrl-C was pressed.
    """
    pressed = threading.Event()

    def handler(_signal: int, _frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    # Python lets only the main thread set handlers, and only there does a Ctrl-C arrive.
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, handler) if in_main_thread else None
    try:
        yield pressed.is_set
    except Exception:
        if pressed.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)
