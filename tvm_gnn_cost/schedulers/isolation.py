"""Runs TVM on chunks of items and finds the item that makes it crash or fail.

TVM trusts a record's steps: those of another task can crash the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from joblib.executor import get_memmapping_executor
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError, WorkError

#: Seconds in which a Dask scheduler must answer, and have a worker.
_CONNECT_S = 10

Item = TypeVar("Item")
Done = TypeVar("Done")


def in_processes(
    run: Callable[[Sequence[Item]], Done],
    chunks: Iterable[Sequence[Item]],
    jobs: int,
    crashed: Callable[[Item], Done],
    cluster: str = "",
) -> Iterator[Done]:
    """Yields the result of each chunk, in order; a chunk with an item that crashes gives several results.

    Args:
        run: Works on one chunk; it and the chunk are pickled.
        chunks: The items.
        jobs: Number of processes; with 1 the work is done in this process, which a crash ends.
        crashed: Returns the result of an item that crashes its process.
        cluster: Address of a Dask scheduler whose workers do the work; the chunks of a worker that dies are run again.
            Empty for this machine.

    Raises:
        InputError: the package for Dask is missing.
        WorkError: no Dask scheduler answers at that address, or it has no worker.
    """
    if cluster:
        yield from _on_cluster(run, chunks, crashed, cluster)
    elif jobs == 1:
        yield from map(run, chunks)
    else:
        yield from _here(run, chunks, jobs, crashed)


def _here(
    run: Callable[[Sequence[Item]], Done],
    chunks: Iterable[Sequence[Item]],
    jobs: int,
    crashed: Callable[[Item], Done],
) -> Iterator[Done]:
    """Yields the result of each chunk, in order, from processes of this machine."""

    def submit(chunk: Sequence[Item]) -> Any:
        # A crash ends all processes, also between the two calls; there are others then.
        while True:
            with suppress(TerminatedWorkerError):
                return _pool(jobs).submit(run, chunk)

    try:
        # At most two chunks a process are read ahead, so that memory does not grow with their number.
        yield from _in_order(submit, chunks, lambda: 2 * jobs, TerminatedWorkerError, run, crashed)
    except BaseException:
        _pool(jobs).shutdown(kill_workers=True)
        raise


def _pool(jobs: int) -> Any:
    """The processes, which outlive a call. A process has one such pool, which ``joblib.Parallel`` uses too."""
    return get_memmapping_executor(jobs, max_nbytes=None)


def _on_cluster(
    run: Callable[[Sequence[Item]], Done],
    chunks: Iterable[Sequence[Item]],
    crashed: Callable[[Item], Done],
    cluster: str,
) -> Iterator[Done]:
    """Yields the result of each chunk, in order, from the workers of a Dask cluster."""
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ModuleNotFoundError as error:
        raise InputError(f"a cluster needs {error.name}, which is not installed; pip install '.[dask]'") from error
    try:
        client = Client(cluster, timeout=_CONNECT_S)
        client.wait_for_workers(1, timeout=_CONNECT_S)
    # ValueError: not an address; OSError or TimeoutError: no answer.
    except (ValueError, OSError) as error:
        raise WorkError(f"no Dask scheduler with a worker answers at {cluster} ({last_line(error)})") from error

    def most() -> int:
        # There may be others by now.
        return 2 * int(sum(client.nthreads().values()))

    with client:
        submit = partial(client.submit, run, pure=False)
        yield from _in_order(submit, chunks, most, KilledWorker, run, crashed)


def _in_order(
    submit: Callable[[Sequence[Item]], Any],
    chunks: Iterable[Sequence[Item]],
    most: Callable[[], int],
    lost: type[Exception],
    run: Callable[[Sequence[Item]], Done],
    crashed: Callable[[Item], Done],
) -> Iterator[Done]:
    """Yields the result of each chunk, in order.

    Args:
        submit: Returns a future of a chunk's result.
        chunks: The chunks.
        most: Returns the maximum number of chunks in flight.
        lost: The exception of a future whose process is gone.
        run: Works on a chunk.
        crashed: See :func:`in_processes`.
    """
    in_flight: deque[tuple[Any, Sequence[Item]]] = deque()

    def results() -> Iterator[Done]:
        future, chunk = in_flight.popleft()
        try:
            done: Done = future.result()
        except lost:
            yield from _apart(run, crashed, chunk)
        else:
            yield done

    for chunk in chunks:
        in_flight.append((submit(chunk), chunk))
        while len(in_flight) > most():
            yield from results()
    while in_flight:
        yield from results()


def _apart(
    run: Callable[[Sequence[Item]], Done], crashed: Callable[[Item], Done], chunk: Sequence[Item]
) -> Iterator[Done]:
    """Yields the results of a chunk in a separate process; if that crashes, the results of its halves."""
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
        yield from _apart(run, crashed, half)


Result = TypeVar("Result")


def each_or_empty(call: Callable[[Sequence[Any]], list[Result]], items: Sequence[Any], empty: Result) -> list[Result]:
    """The results of a call on all items, with ``empty`` for the items on which it fails.

    Where the call fails, it is repeated on each half of the items, down to single ones.

    >>> each_or_empty(lambda items: [1 / item for item in items], [1, 0, 4], -1)
    [1.0, -1, 0.25]
    """
    if not items:
        return []
    try:
        return call(items)
    # TVM raises errors of any type for an item that it cannot handle.
    except Exception:
        if len(items) == 1:
            return [empty]
    middle = len(items) // 2
    return each_or_empty(call, items[:middle], empty) + each_or_empty(call, items[middle:], empty)
