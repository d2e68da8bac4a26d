"""What every benchmark script shares: its options, where its data is, and the JSON that it writes."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.measuring.machine import describe_machine, use_all_cores

console = Console(width=160)

# TVM's own runner, which some scripts compare with, starts processes that inherit this one's environment.
use_all_cores()

_DATA = Path(__file__).parent / "data"

#: Scheduler -> folders of measured programs. Of MetaSchedule's the last two have none of the test networks.
DATA = {
    "meta-schedule": tuple(
        _DATA / name for name in ("cpu-2core-zen4", "cpu-2core-cascadelake", "cpu-2core-nhwc", "cpu-2core")
    ),
    "auto-scheduler": (_DATA / "tenset-cpu",),
}
XLA = _DATA / "xla-cpu"
#: Where the scripts keep what they derive from the data, and finished runs.
WORK = Path(__file__).parent.parent / "work" / "benchmarks"

_PACKAGES = (
    "tvm-gnn-cost",
    "apache-tvm",
    "bitblas",
    "apache-tvm-ffi",
    "torch",
    "torch-geometric",
    "xgboost",
    "numpy",
    "jax",
)


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    out = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    out.add_argument("--json", type=Path, metavar="PATH", help="write the result to this file")
    out.add_argument("--quick", action="store_true", help="under two minutes, for CI: the figures mean little")
    return out


def result_name(benchmark: str, scheduler: str) -> str:
    """The name of a benchmark's result and runs: MetaSchedule's is the benchmark's own, another's names the scheduler.

    >>> result_name("search", "auto-scheduler")
    'search-auto-scheduler'
    """
    return benchmark if scheduler == "meta-schedule" else f"{benchmark}-{scheduler}"


def call_seconds(call: Callable[[], Any], repeats: int) -> list[float]:
    """Wall clock of each of some calls."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median wall clock of some calls."""
    return statistics.median(call_seconds(call, repeats))


def versions() -> dict[str, str]:
    """Installed versions of the packages that matter here."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_result(path: Path | None, benchmark: str, settings: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Writes the result in the form that all benchmarks share; nothing where there is no path."""
    if path is None:
        return
    result = {
        "benchmark": benchmark,
        "machine": describe_machine(),
        "versions": versions(),
        "settings": settings,
        "metrics": metrics,
    }
    # A list of numbers takes one line.
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), json.dumps(result, indent=1))
    write_text(path, f"{text}\n")
