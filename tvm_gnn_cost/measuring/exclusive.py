"""One measurement at a time on a machine; needs no TVM."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: One lock a machine and user, so that two processes never measure at the same time; ``flock`` on it works too.
LOCK_PATH = Path(tempfile.gettempdir()) / "tvm_gnn_cost-measure.lock"


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Waits until no other process measures on this machine, and keeps others waiting meanwhile."""
    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
