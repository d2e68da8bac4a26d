from __future__ import annotations

import os
import signal

import pytest

from tvm_gnn_cost.tuning.interrupt import interruptible


def test_one_ctrl_c_is_noted_and_the_work_goes_on() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_behind_a_ctrl_c_is_the_interruption() -> None:
    def search() -> None:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("the search ends itself")

    with pytest.raises(KeyboardInterrupt):
        search()


def test_an_error_without_one_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="a real one"), interruptible():
        raise RuntimeError("a real one")


def test_the_second_ctrl_c_ends_at_once() -> None:
    reached = []

    def search() -> None:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("first")
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("second")

    with pytest.raises(KeyboardInterrupt):
        search()
    assert reached == ["first"]
