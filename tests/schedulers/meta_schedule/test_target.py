from __future__ import annotations

import psutil
import pytest
import tvm

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target, target_of


def test_the_processor_and_its_physical_cores() -> None:
    target = local_target()
    assert str(target.kind) == "llvm"
    assert target.attrs["mcpu"] == tvm.get_global_func("target.llvm_get_system_cpu")()
    assert int(target.attrs["num-cores"]) == (psutil.cpu_count(logical=False) or psutil.cpu_count())


def test_a_program_can_be_built_for_it() -> None:
    assert tvm.target.Target(str(local_target())).attrs["mcpu"] == local_target().attrs["mcpu"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nosuch", "target nosuch: unknown target"),
        ('{"kind": 3}', ": unknown target"),
        ('{"kind": "llvm"', ": unknown target"),
        ('{"kind": "cuda"}', 'only targets of kind "llvm" are supported'),
        ('{"kind": "llvm"}', 'the number of cores, "num-cores", is missing'),
    ],
)
def test_what_is_no_target_is_refused_in_one_sentence(
    text: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=sentence):
        target_of(text)
    assert capfd.readouterr().err == ""
