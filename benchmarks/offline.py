"""Shared by the scripts that train and test on measured programs: options, and fewer programs for a quick run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from common import DATA, HELD_OUT, WORK, result_name
from stores import thin_out
from tvm_gnn_cost.schedulers import scheduler

#: Called with the options, the folders of measured programs, and the folders of graph stores and of finished runs.
Benchmark = Callable[[argparse.Namespace, Sequence[Path], Path, Path], None]


def run_offline(options: argparse.ArgumentParser, name: str, benchmark: Benchmark) -> None:
    """Reads the options and runs a benchmark; a quick run has one seed and one epoch.

    Args:
        options: The options of the script.
        name: Of the benchmark.
        benchmark: The work of the script.
    """
    data, tested = DATA[scheduler().name], HELD_OUT[scheduler().name]
    options.add_argument("--data", type=Path, nargs="+", default=data, help="folders of measured programs")
    options.add_argument(
        "--held-out", nargs="+", default=tested, metavar="NETWORK", help="held-out networks, to test on"
    )
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--epochs", type=int, help="number of epochs; the number of trees changes in proportion")
    runs = WORK / result_name(name, scheduler().name)
    options.add_argument("--runs", type=Path, default=runs, help="folder of finished runs, which are not repeated")
    arguments = options.parse_args()
    if not arguments.quick:
        benchmark(arguments, arguments.data, WORK, arguments.runs)
        return
    folder = Path(_quick_folder().name)
    arguments.seeds = arguments.epochs = 1
    benchmark(arguments, thin_out(arguments.data, folder / "thin"), folder, folder / "runs")


@cache
def _quick_folder() -> tempfile.TemporaryDirectory[str]:
    """Of all quick runs of a process: the tests run several, which share stores and finished runs."""
    return tempfile.TemporaryDirectory()
