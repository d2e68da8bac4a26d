from __future__ import annotations

import pytest

from tests.command import console_of_test
from tests.tuning.test_result import result
from tvm_gnn_cost.cli import outcome
from tvm_gnn_cost.cli.display import Display, print_tuning
from tvm_gnn_cost.progress import (
    Advanced,
    EpochFinished,
    Note,
    ProgramsMeasured,
    Stage,
    Step,
    TaskFinished,
    TasksFound,
    TrialsMeasured,
)
from tvm_gnn_cost.tuning.result import TaskResult


def test_without_a_terminal_each_stage_is_a_line_and_a_step_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    with console_of_test(), Display("tasks") as display:
        for event in (
            Stage("loading: a colon changes nothing"),
            Step("building: conv2d"),
            Note("something to know"),
            TasksFound("resnet-18", 2),
            ProgramsMeasured("conv2d", 3, 1),
            TaskFinished("conv2d"),
            TrialsMeasured("dense", 16, 64, 0.002),
            TrialsMeasured("dense", 24, None, 0.001),
            EpochFinished(3, {"validation_error": 0.25}),
        ):
            display(event)
    lines = [line.split(maxsplit=1)[1] for line in capfd.readouterr().err.splitlines()]
    assert lines == [
        "loading: a colon changes nothing",
        "something to know",
        "resnet-18 has 2 new tasks",
        "conv2d is done (1 of 2 tasks)",
        "16/64 trials  best 2 ms  dense",
        "24 trials  best 1 ms  dense",
        "epoch 3, validation error 0.250",
    ]
    assert (display.tasks, display.finished_tasks, display.valid, display.failed) == (2, 1, 3, 1)


def test_items_get_a_line_now_and_then_and_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with console_of_test(), Display("programs") as display:
        for done in range(101):
            display(Advanced(done, 100))
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "0 of 100 programs" in lines[0]
    assert "100 of 100 programs, " in lines[1]
    assert lines[1].endswith(" per second")


def test_the_bar_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display("trials", 8)
    monkeypatch.setattr(outcome.console, "quiet", True)
    display(TrialsMeasured("dense", 4, 8, 0.5))
    (task,) = display.bars.tasks
    assert (task.completed, task.total, task.description) == (4, 8, "best 500 ms")
    display(Step("running: dense"))
    assert task.fields["doing"] == "running: dense"
    display.total(16)
    assert task.total == 16


def test_a_name_that_looks_like_markup_is_printed_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    output = result()
    output.tasks.append(TaskResult("a[b]c[/b]", 1, 0.5))
    with console_of_test():
        print_tuning(output)
    err = capfd.readouterr().err
    assert "a[b]c[/b]" in err
    assert "weighted sum" in err
