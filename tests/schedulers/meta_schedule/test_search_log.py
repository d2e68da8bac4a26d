from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvm_gnn_cost.progress import Event, Step
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console, steps_from_log


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """MetaSchedule's, as it was before the test afterwards."""
    found = logging.getLogger("tvm.s_tir.meta_schedule")
    level, handlers, propagate = found.level, list(found.handlers), found.propagate
    found.handlers = []
    yield found
    found.handlers, found.propagate = handlers, propagate
    found.setLevel(level)


def test_handlers_of_an_earlier_search_are_closed(logger: logging.Logger, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    quiet_console()
    assert logger.handlers == []
    assert logger.level == logging.CRITICAL
    assert handler.stream is None


def test_messages_that_mark_a_step_are_steps(logger: logging.Logger, tmp_path: Path) -> None:
    logger.setLevel(logging.DEBUG)
    (tmp_path / "logs").mkdir()
    events: list[Event] = []
    before = list(logger.handlers)
    with steps_from_log(events.append, tmp_path):
        for message in (
            "[task_scheduler.cc:1] Sending 3 sample(s) to builder",
            '[task_scheduler.cc:2] TaskScheduler picks Task #4: "dense"',
            "[task_scheduler.cc:3] Sending 16 sample(s) to builder",
            "[task_scheduler.cc:4] Sending 12 valid sample(s) to runner",
            "[task_scheduler.cc:5] Total trials: 16",
        ):
            logger.info(message)
        logger.debug('TaskScheduler picks Task #5: "softmax"')
    logger.info("Sending 1 sample(s) to builder")
    assert events == [
        Step("building: "),
        Step("searching: dense"),
        Step("building: dense"),
        Step("running: dense"),
    ]
    assert logger.handlers == before


def test_stderr_goes_to_a_file_meanwhile(
    logger: logging.Logger, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    before = list(logger.handlers)

    def write() -> None:
        with steps_from_log(lambda _: None, tmp_path):
            os.write(2, b"from C++\n")
            raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            write()
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
    assert (tmp_path / "logs" / "stderr.log").read_text() == "from C++\n" * 2
    assert logger.handlers == before
