"""Works on chunks of items in other processes and finds the item that crashes one.

TVM trusts a record's steps: those of another task can crash the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

Item = TypeVar("Item")
Done = TypeVar("Done")


def in_processes(
    run: Callable[[Sequence[Item]], Done],
    chunks: Iterable[Sequence[Item]],
    jobs: int,
    crashed: Callable[[Item], Done],
) -> Iterator[Done]:
    """Yields the result of each chunk, in order; a chunk with an item that crashes gives several results.

    Args:
        run: Works on one chunk; it and the chunk are pickled.
        chunks: The items.
        jobs: Number of processes; with 1 the work is done in this process, which a crash ends.
        crashed: Gives the result for an item that crashes its process.
    """
    in_flight: deque[Sequence[Item]] = deque()

    def issue() -> Iterator[Any]:
        for chunk in remaining:
            in_flight.append(chunk)
            yield joblib.delayed(run)(chunk)

    remaining = iter(chunks)
    while True:
        # At most two chunks a process are read ahead, so that memory does not grow with their number.
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="2*n_jobs", batch_size=1)
        try:
            for result in parallel(issue()):
                in_flight.popleft()
                yield result
            return
        except TerminatedWorkerError:
            while in_flight:
                yield from _apart(run, in_flight.popleft(), crashed)


def _apart(
    run: Callable[[Sequence[Item]], Done], chunk: Sequence[Item], crashed: Callable[[Item], Done]
) -> Iterator[Done]:
    """Yields the results of a chunk in a process of its own; where that crashes, those of its halves."""
    with ProcessPoolExecutor(max_workers=1) as process:
        try:
            yield process.submit(run, chunk).result()
            return
        except TerminatedWorkerError:
            pass
    if len(chunk) == 1:
        yield crashed(chunk[0])
        return
    for half in (chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]):
        yield from _apart(run, half, crashed)
