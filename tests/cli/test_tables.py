from __future__ import annotations

import pytest

from tests.command import console_of_test
from tests.tuning.test_result import result
from tvm_gnn_cost.cli.tables import print_tuning
from tvm_gnn_cost.tuning.result import TaskResult


def test_a_name_that_looks_like_markup_is_printed_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    found = result()
    found.tasks.append(TaskResult("a[b]c[/b]", 1, 0.5))
    with console_of_test():
        print_tuning(found)
    err = capfd.readouterr().err
    assert "a[b]c[/b]" in err
    assert "weighted sum" in err
