"""A lock that lets one process measure at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The lock's file, one on each machine; scripts can wait for it with ``flock``.
LOCK_PATH = Path(tempfile.gettempdir()) / "tvm_gnn_cost-measure.lock"


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Waits until no other process measures on this machine; others wait until the block ends.

    A process that is killed releases the lock.
    """
    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
