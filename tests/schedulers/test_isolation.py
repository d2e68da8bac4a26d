from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import joblib
import pytest

from tests.schedulers.crashing import fail, process, squares
from tvm_gnn_cost.schedulers.isolation import each_or_empty, in_processes


def crashed(item: int) -> list[int]:
    return [item]


def test_an_item_that_ends_its_process_is_found_and_the_rest_goes_on() -> None:
    chunks = [[1, 2], [3, 4, -5, 6], [7], [8, 9]]
    found = list(in_processes(squares, chunks, 2, crashed))
    assert [one for some in found for one in some] == [1, 4, 9, 16, -5, 36, 49, 64, 81]


def test_one_process_is_this_one() -> None:
    assert list(in_processes(process, [[1], [2]], 1, crashed)) == [[os.getpid()]] * 2


def test_several_processes_are_others() -> None:
    found = [pid for (pid,) in in_processes(process, [[1], [2], [3]], 2, crashed)]
    assert len(found) == 3
    assert os.getpid() not in found


def test_an_error_is_no_crash() -> None:
    with pytest.raises(ValueError, match="a bug with 1"):
        list(in_processes(fail, [[1]], 2, crashed))


def test_the_callers_joblib_and_these_processes_do_not_disturb_each_other() -> None:
    for _ in range(2):
        assert list(in_processes(squares, [[1], [2]], 2, crashed)) == [[1], [4]]
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-number) for number in range(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="a bug with 1"):
        list(in_processes(fail, [[1]], 2, crashed))
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-number) for number in range(3)) == [0, 1, 2]


def test_little_is_read_ahead() -> None:
    read = []

    def chunks() -> Iterator[list[int]]:
        for number in range(1, 40):
            read.append(number)
            yield [number]

    results = in_processes(squares, chunks(), 2, crashed)
    assert next(results) == [1]
    time.sleep(0.5)  # The processes are done with what was read; no more is until a result is taken.
    assert len(read) == 5
    assert sum(len(some) for some in results) == 38
    assert list(in_processes(squares, [], 2, crashed)) == []


def test_an_item_that_ends_a_clusters_worker_is_found_and_the_rest_goes_on() -> None:
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        chunks = [[1, 2], [3, 4, -5, 6], [7], [8, 9]]
        found = list(in_processes(squares, chunks, 1, crashed, cluster.scheduler_address))
    assert [one for some in found for one in some] == [1, 4, 9, 16, -5, 36, 49, 64, 81]


class Call:
    """Fails as a whole if an item is negative."""

    def __init__(self) -> None:
        self.made: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.made.append(list(items))
        if min(items) < 0:
            raise RuntimeError("negative")
        return [item**2 for item in items]


def test_one_call_where_nothing_fails() -> None:
    call = Call()
    assert each_or_empty(call, [1, 2, 3], 0) == [1, 4, 9]
    assert call.made == [[1, 2, 3]]


def test_only_the_item_that_fails_is_empty_and_few_calls_are_made() -> None:
    call = Call()
    assert each_or_empty(call, [1, 2, 3, 4, 5, -6, 7, 8], 0) == [1, 4, 9, 16, 25, 0, 49, 64]
    assert call.made == [[1, 2, 3, 4, 5, -6, 7, 8], [1, 2, 3, 4], [5, -6, 7, 8], [5, -6], [5], [-6], [7, 8]]


def test_all_may_fail_and_there_may_be_none() -> None:
    assert each_or_empty(Call(), [-1, -2, -3], 7) == [7, 7, 7]
    call = Call()
    assert each_or_empty(call, [], 7) == []
    assert call.made == []
