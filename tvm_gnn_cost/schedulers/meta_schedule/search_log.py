"""Reads what a search is doing from MetaSchedule's log, and keeps the log off the console."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tvm_gnn_cost.measuring.machine import PROCESS_WIDE
from tvm_gnn_cost.progress import Progress, Step

_LOGGER = "tvm.s_tir.meta_schedule"


def quiet_console() -> None:
    """Silences the console handler that MetaSchedule adds when a search starts; its log files still get everything.

    It also removes the handlers of an earlier search: MetaSchedule would copy them, and fails on one without a name.
    """
    logger = logging.getLogger(_LOGGER)
    # MetaSchedule gives its console handler this level.
    logger.setLevel(logging.CRITICAL)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def steps_from_log(progress: Progress, work_dir: Path) -> Iterator[None]:
    """Reports a search's steps, and writes the output of TVM's C++ code to ``logs/stderr.log``.

    Args:
        progress: Receives a ``Step`` when the search chooses a task, builds and runs.
        work_dir: The search's work directory, in which MetaSchedule has made its logs.
    """
    logger, handler = logging.getLogger(_LOGGER), _StepsFromLog(progress)
    logger.addHandler(handler)
    try:
        with stderr_to(work_dir / "logs" / "stderr.log"):
            yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Appends to a file what is printed to stderr inside the block, by C++ code too; other threads wait for its end."""
    with PROCESS_WIDE:
        sys.stderr.flush()
        stderr = os.dup(2)
        with path.open("a") as file:
            os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


def without_stderr() -> AbstractContextManager[None]:
    """Drops what TVM's C++ code prints to stderr inside the block."""
    return stderr_to(Path(os.devnull))


class _StepsFromLog(logging.Handler):
    """Turns the log's messages into steps: MetaSchedule reports them nowhere else."""

    _STEPS = (
        (re.compile(r'TaskScheduler picks Task #\d+: "(?P<task>.*)"'), "searching"),
        (re.compile(r"Sending \d+ sample\(s\) to builder"), "building"),
        (re.compile(r"Sending \d+ valid sample\(s\) to runner"), "running"),
    )

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self.progress = progress
        self.task = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Reports the message if it marks a step."""
        message = record.getMessage()
        for pattern, step in self._STEPS:
            if match := pattern.search(message):
                self.task = match.groupdict().get("task", self.task)
                self.progress(Step(f"{step}: {self.task}"))
