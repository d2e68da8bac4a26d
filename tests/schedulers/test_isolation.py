from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.schedulers.crashing import fail, process, squares
from tvm_gnn_cost.schedulers.isolation import in_processes


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
