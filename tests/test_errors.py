from __future__ import annotations

import math

import pytest

from tvm_gnn_cost.errors import InputError, WorkError, WrongTVMError, check_range


@pytest.mark.parametrize(
    ("kind", "bases"),
    [(InputError, (ValueError,)), (WorkError, (RuntimeError,)), (WrongTVMError, (WorkError, ImportError))],
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


def test_a_number_out_of_its_range_is_refused() -> None:
    for value in (None, 1, 2, 1.5):
        check_range("it", value, 1, 2)
    for wrong in (0, 3, math.nan, math.inf, -math.inf, True, "1", 10**400, [1]):
        with pytest.raises(InputError, match=r"^it must be between 1 and 2, not ") as caught:
            check_range("it", wrong, 1, 2)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 80
