from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.schedulers.conftest import Listener, search_settings
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Task

pytestmark = pytest.mark.needs("tvm")


def test_two_searches_in_two_threads_measure_and_record_what_is_theirs(tasks: list[Task], tmp_path: Path) -> None:
    stderr = os.fstat(2)

    def search(number: int) -> Listener:
        work_dir, listener = tmp_path / str(number), Listener(budget=2)
        work_dir.mkdir()
        model = scheduler().cost_model("gnn", number, 1, 2)
        scheduler().search([tasks[number]], model, work_dir, search_settings(1), listener)
        return listener

    with ThreadPoolExecutor(2) as pool:
        listeners = list(pool.map(search, range(2)))
    for number, listener in enumerate(listeners):
        assert [place for place, _ in listener.batches] == [0, 0]
        (found,) = scheduler().latencies([tasks[number]], tmp_path / str(number))
        assert sorted(found) == pytest.approx(sorted(one for _, batch in listener.batches for one in batch), rel=1e-4)
    assert (os.fstat(2).st_dev, os.fstat(2).st_ino) == (stderr.st_dev, stderr.st_ino)
