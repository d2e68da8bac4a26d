"""What worker processes build in ``test_build_pool.py``: texts."""

from __future__ import annotations

import os
import time

from tvm_gnn_cost.schedulers.build_pool import Built


def build(text: str) -> Built:
    """Ends its process, fails or hangs where the text says so."""
    if text == "crash":
        os._exit(1)
    if text == "fail":
        raise ValueError("this is no program")
    if text == "hang":
        time.sleep(600)
    return Built(text, seconds=1.5)


def process(_text: str) -> Built:
    return Built(str(os.getpid()))
