"""Works on chunks of items in other processes, here or on a Dask cluster, and finds the item that crashes one.

TVM trusts a record's steps: those of another task can crash the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import joblib
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
        crashed: Gives the result for an item that crashes its process.
        cluster: Address of a Dask scheduler, whose workers do the work instead; one that dies costs nothing, as
            others do its part again. Empty for this machine.

    Raises:
        InputError: the package for Dask is missing.
        WorkError: no Dask scheduler answers at that address, or it has no worker.
    """
    if cluster:
        yield from _on_cluster(run, chunks, crashed, cluster)
        return
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


def _on_cluster(
    run: Callable[[Sequence[Item]], Done],
    chunks: Iterable[Sequence[Item]],
    crashed: Callable[[Item], Done],
    cluster: str,
) -> Iterator[Done]:
    """Yields the result of each chunk, in order, from the workers of a Dask cluster.

    joblib's Dask backend would wait for ever for an item that kills its worker.
    """
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ModuleNotFoundError as error:
        raise InputError(f"a cluster needs {error.name}, which is not installed; pip install '.[dask]'") from error
    try:
        client = Client(cluster, timeout=_CONNECT_S)
        client.wait_for_workers(1, timeout=_CONNECT_S)
    # A text that is no address is a ValueError, and one where nobody answers an OSError or a TimeoutError.
    except (ValueError, OSError) as error:
        raise WorkError(f"no Dask scheduler with a worker answers at {cluster} ({last_line(error)})") from error

    def results(future: Any, chunk: Sequence[Item]) -> Iterator[Done]:
        try:
            done: Done = future.result()
        except KilledWorker:
            yield from _apart(run, chunk, crashed)
        else:
            yield done

    with client:
        in_flight: deque[tuple[Any, Sequence[Item]]] = deque()
        for chunk in chunks:
            in_flight.append((client.submit(run, chunk, pure=False), chunk))
            # As many are read ahead as keep the workers busy, of which there may be others by now.
            while len(in_flight) > 2 * sum(client.nthreads().values()):
                yield from results(*in_flight.popleft())
        while in_flight:
            yield from results(*in_flight.popleft())


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
