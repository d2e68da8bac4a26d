"""What scripts that train and test on measured programs share: their options, and few programs for a quick run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import DATA, WORK, result_name
from stores import thin_out
from tvm_gnn_cost.schedulers import scheduler


def run_offline(
    options: argparse.ArgumentParser, name: str, benchmark: Callable[[argparse.Namespace, Path, Path, Path], None]
) -> None:
    """Reads the options and runs a benchmark; a quick run keeps nothing but its result.

    Args:
        options: The script's own options.
        name: The benchmark's name.
        benchmark: Gets the options, the measured programs, and the folders of graph stores and of finished runs.
    """
    options.add_argument("--data", type=Path, default=DATA[scheduler().name], help="the measured programs")
    options.add_argument("--seeds", type=int, default=3)
    runs = WORK / result_name(name, scheduler().name)
    options.add_argument("--runs", type=Path, default=runs, help="where finished runs are kept")
    arguments = options.parse_args()
    if not arguments.quick:
        benchmark(arguments, arguments.data, WORK, arguments.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        thin = thin_out(arguments.data, Path(folder) / "thin")
        benchmark(arguments, thin, Path(folder), Path(folder) / "runs")
