"""Shared by the benchmark scripts: options, folders of the data, tables and the JSON of a result."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import parse_json, write_text
from tvm_gnn_cost.measuring.machine import describe_machine, use_all_cores

console = Console(width=160)

# TVM's own runner, which some scripts compare with, starts processes that inherit this one's environment.
use_all_cores()

_DATA = Path(__file__).parent / "data"

#: Scheduler -> folders of measured programs. The last three of MetaSchedule and the last of auto_scheduler have no
#: programs of the held-out networks.
DATA = {
    "meta-schedule": tuple(
        _DATA / f"cpu-2core{name}"
        for name in ("-zen4", "-cascadelake", "-zen5", "-zen5-tvm", "-zen5-operators", "-nhwc", "")
    ),
    "auto-scheduler": (_DATA / "tenset-cpu", _DATA / "tenset-cpu-operators"),
}
#: Scheduler -> networks that no model of a benchmark is trained on, and for MetaSchedule a tenth of the families.
HELD_OUT = TEST_NETWORKS | {
    "meta-schedule": (
        *TEST_NETWORKS["meta-schedule"],
        *(f"families:{family}_*" for family in ("swin", "whisper", "mamba", "regnet")),
    )
}
XLA = _DATA / "xla-cpu"
#: Folder of graph stores, which are derived from the data, and of finished runs.
WORK = Path(__file__).parent.parent / "work" / "benchmarks"

_PACKAGES = (
    "tvm-gnn-cost",
    "apache-tvm",
    "bitblas",
    "apache-tvm-ffi",
    "torch",
    "torch-geometric",
    "xgboost",
    "xgboost-cpu",
    "numpy",
    "jax",
    "onnxruntime",
    "openvino",
    "MNN",
    "executorch",
)


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every script."""
    out = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    out.add_argument("--json", type=Path, metavar="PATH", help="write the result to this file")
    out.add_argument(
        "--quick", action="store_true", help="at most two minutes, to test the script; the numbers are meaningless"
    )
    return out


def result_name(benchmark: str, scheduler: str) -> str:
    """The name of a result and of the folder of its runs; that of MetaSchedule does not name the scheduler.

    >>> result_name("search", "auto-scheduler")
    'search-auto-scheduler'
    """
    return benchmark if scheduler == "meta-schedule" else f"{benchmark}-{scheduler}"


def call_seconds(call: Callable[[], Any], repeats: int) -> list[float]:
    """Wall clock of each call."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median wall clock of the calls."""
    return statistics.median(call_seconds(call, repeats))


def versions() -> dict[str, str]:
    """Package -> its version, of those that are installed."""
    installed = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def shipped_version() -> str:
    """A digest of the shipped checkpoint and its settings in a search; finished searches of others are repeated."""
    # Scripts that score nothing do not load torch.
    from tvm_gnn_cost import CostModel

    model = CostModel.load()
    shipped = model.checkpoint.source
    assert shipped is not None
    return hashlib.sha256(shipped.read_bytes() + repr(model.settings).encode()).hexdigest()[:8]


def cell(value: Mapping[str, float]) -> str:
    """A mean with its standard deviation, if that is not 0 when rounded.

    >>> cell({"mean": 0.8125, "std": 0.004})
    '0.812 ± 0.004'
    """
    mean = f"{value['mean']:.3f}"
    return f"{mean} ± {value['std']:.3f}" if value["std"] >= 0.0005 else mean


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], names: Collection[str] = ()) -> Table:
    """A table for the console; the first column and those in ``names`` are aligned to the left."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if not number or column in names else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def run_saved(
    options: argparse.ArgumentParser,
    name: str,
    benchmark: Callable[[argparse.Namespace, Path], None],
    write_docs: Callable[[Mapping[str, Any], Path], None] | None = None,
    **quick: Any,
) -> None:
    """Reads the options and runs a benchmark that saves its finished runs, or writes its result into the docs.

    Args:
        options: The options of the script.
        name: Of the result.
        benchmark: Gets the options and the folder of the runs.
        write_docs: Gets a result and the folder of the project, for the option ``--docs``.
        quick: Values of options in a quick run, whose folder is removed.
    """
    options.add_argument(
        "--runs", type=Path, default=WORK / name, help="folder of finished runs, which are not repeated"
    )
    if write_docs:
        help_docs = "run nothing, and write what README and docs show of the result --json into those in this folder"
        options.add_argument("--docs", type=Path, metavar="ROOT", help=help_docs)
    arguments = options.parse_args()
    if write_docs and arguments.docs:
        if not arguments.json or not arguments.json.is_file():
            options.error("--docs needs the file of a result: --json PATH")
        try:
            write_docs(read_result(arguments.json), arguments.docs)
        except InputError as error:
            options.error(str(error))
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.quick:
            vars(arguments).update(quick, runs=Path(folder))
        try:
            benchmark(arguments, arguments.runs)
        except (InputError, WorkError) as error:
            options.exit(1, f"{options.prog}: {error}\n")


def read_result(path: Path) -> dict[str, Any]:
    """The result in a file.

    Raises:
        InputError: it is not the JSON of a result.
    """
    try:
        result = parse_json(path.read_bytes())
    except ValueError as error:
        raise InputError(
            f"{path} is not the JSON of a result ({error}); remove it or run its benchmark again"
        ) from None
    if not isinstance(result, dict) or not {"settings", "metrics"} <= set(result):
        raise InputError(f"{path} is not the JSON of a result (no settings or metrics); give another path")
    return result


def earlier_metrics(path: Path | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an earlier result with these settings, which a benchmark adds to; none without such a result.

    Raises:
        InputError: the file is not the JSON of a result.
    """
    if path is None or not path.exists():
        return {}
    result = read_result(path)
    return dict(result["metrics"]) if result["settings"] == settings else {}


def write_result(path: Path | None, benchmark: str, settings: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Writes the result as JSON; nothing without a path."""
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
    text = re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers[0].split()), json.dumps(result, indent=1))
    write_text(path, f"{text}\n")
