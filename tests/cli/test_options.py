from __future__ import annotations

import pytest

from tests.command import call
from tvm_gnn_cost import schedulers
from tvm_gnn_cost.cli.options import SchedulerOption


def test_the_schedulers_of_the_option_are_those_of_the_package() -> None:
    assert [option.value for option in SchedulerOption] == list(schedulers.NAMES)


@pytest.mark.parametrize("command", ["tune", "collect"])
def test_another_scheduler_is_refused_with_the_choices(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capfd, command, "x", "y", "--scheduler", "autotvm")
    assert code == 2
    assert "meta-schedule" in err
    assert "auto-scheduler" in err
