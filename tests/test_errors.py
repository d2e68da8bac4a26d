from __future__ import annotations

import pytest

from tvm_gnn_cost.errors import InputError, WorkError, WrongTVM


@pytest.mark.parametrize(
    ("kind", "bases"),
    [(InputError, (ValueError,)), (WorkError, (RuntimeError,)), (WrongTVM, (WorkError, ImportError))],
)
def test_callers_can_catch_the_errors_of_python(kind: type[Exception], bases: tuple[type[Exception], ...]) -> None:
    for base in bases:
        with pytest.raises(base, match=r"^why$"):
            raise kind("why")


def test_the_errors_are_told_apart() -> None:
    # The command line gives them different exit codes, and shows no other error without its traceback.
    assert not issubclass(InputError, WorkError | OSError)
    assert not issubclass(WorkError, InputError | OSError)
    assert not isinstance(ValueError(), InputError)
    assert not isinstance(RuntimeError(), WorkError)
