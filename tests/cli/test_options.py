from __future__ import annotations

import pytest

from tests.command import call
from tvm_gnn_cost import schedulers
from tvm_gnn_cost.cli.options import SchedulerName, shapes_by_name
from tvm_gnn_cost.errors import InputError


def test_the_schedulers_of_the_option_are_those_of_the_package() -> None:
    assert [option.value for option in SchedulerName] == list(schedulers.NAMES)


@pytest.mark.parametrize("command", ["tune", "collect"])
def test_another_scheduler_is_refused_with_the_choices(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capfd, command, "x", "y", "--scheduler", "autotvm")
    assert code == 2
    assert "meta-schedule" in err
    assert "auto-scheduler" in err


def test_shapes_by_name() -> None:
    # ONNX names may hold anything.
    assert shapes_by_name(["x=1,3,224,224", "a.b=c= 7, 8"]) == {"x": (1, 3, 224, 224), "a.b=c": (7, 8)}
    assert shapes_by_name([]) == {}
    for options in (["x"], ["x=1,a"], ["x=1,"], ["x=-1,2"], ["x="], ["x=1", "x=2"]):
        with pytest.raises(InputError, match=r"--shape x.*: expected NAME=1,3,224,224"):
            shapes_by_name(options)
