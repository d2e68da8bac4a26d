"""A store of a million programs: rates, memory and disk, extrapolated to the 52 million of TenSet on 16 cores.

Runs in either environment. Extracts real programs on one core and writes them repeatedly with other constants,
thousands per task as in TenSet. Times a training with a tenth of the store and with all of it. Every step runs in its
own process: its peak memory should not grow with the store, except for the index of a training, some tens of bytes per
program. The store needs 2 kB of disk per program and is removed at the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common import DATA, WORK, console, parser, result_name, table_of, write_result
from stores import thin_out
from tvm_gnn_cost import GraphStore, extract
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.tenset import is_tenset
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.progress import EpochFinished, Event, Stage
from tvm_gnn_cost.schedulers import scheduler

#: Programs of TenSet (Zheng et al. 2021), programs of one of its tasks on one machine, and cores of the estimate.
TENSET, OF_TASK, CORES = 52_000_000, 4_000, 16
#: Scheduler -> a folder of measured programs.
_DATA = {"meta-schedule": DATA["meta-schedule"][-1], "auto-scheduler": DATA["auto-scheduler"][0]}
#: Programs per shard, as in ``extract``.
_SHARD = 512
_NETWORKS = 20
_DAY = 24 * 3600

#: Columns of the node features that are counts: iterations, bytes, operations. Each is scaled in every program.
_COUNTS = np.array(
    [
        column
        for column, (name, group) in enumerate(VALUES)
        if group not in ("dtype", "target")
        and re.search(
            r"const_0|extent|iter|bytes|lines|executions|stride_(inn|sec|thi)|reuse|footprint|_ops|loads", name
        )
    ]
)


def measured_alone(step: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The result of a step in a new process, and its peak memory in MiB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_with_peak, step).result()


def _with_peak(step: Callable[[], dict[str, float]]) -> dict[str, float]:
    found = step()
    # getrusage would count the memory of the parent process.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return {**found, "peak_mib": int(peak) / 1024}


def extraction(data: Path, store: Path) -> dict[str, float]:
    """Extracts a folder of measured programs on one core."""
    hardware = min(path.name for path in (data / "measure_records").iterdir()) if is_tenset(data) else None
    start = time.perf_counter()
    added = extract(data, store, features=False, hardware=hardware, jobs=1).added
    return {"programs": added, "per_second": added / (time.perf_counter() - start)}


def writing(real: Path, folder: Path, first: int, until: int, of_task: int) -> dict[str, float]:
    """Appends the programs ``first`` to ``until`` to the store; the rate excludes making them."""
    programs, store = GraphStore(real).load(), GraphStore(folder)
    seconds = 0.0
    for start in range(first, until, _SHARD):
        shard = synthetic(programs, np.arange(start, min(until, start + _SHARD)), of_task)
        rng = np.random.default_rng(start)
        repeats = (shard.latency[:, None] * (1 + 0.03 * rng.random((len(shard), 3)))).tolist()
        begin = time.perf_counter()
        store.append(shard, run_secs=repeats, keys=[rng.bytes(16).hex() for _ in range(len(shard))])
        seconds += time.perf_counter() - begin
    return {"per_second": (until - first) / seconds, "bytes_per_program": size_of(store) / until}


def synthetic(real: MeasuredPrograms, numbers: npt.NDArray[np.int64], of_task: int) -> MeasuredPrograms:
    """Programs of the synthetic store, by number: real ones of one task with other constants.

    Args:
        real: The real programs.
        numbers: int64[n], ascending.
        of_task: Number of programs per task.
    """
    rng = np.random.default_rng(numbers[0])
    with_graph = np.flatnonzero((real.graphs.node_counts > 0) & np.isfinite(real.latency))
    rows = {task: with_graph[real.task[with_graph] == task] for task in np.unique(real.task[with_graph]).tolist()}
    bases = list(rows)
    task = numbers // of_task
    chosen = np.array([rng.choice(rows[bases[one % len(bases)]]) for one in task.tolist()])
    tasks = {}
    for one in np.unique(task).tolist():
        base = real.tasks[bases[one % len(bases)]]
        tasks[one] = replace(base, hash=f"{base.hash}-{one}", weights={f"network-{one % _NETWORKS}": 1})
    few = real.select(chosen)
    return replace(
        few,
        graphs=with_other_constants(few.graphs, rng),
        tasks=tuple(tasks.values()),
        task=(task - task[0]).astype(np.int32),
        latency=few.latency * np.exp(rng.normal(0, 0.3, len(few))),
    )


def with_other_constants(graphs: ProgramGraphs, rng: np.random.Generator) -> ProgramGraphs:
    """The graphs with scaled counts; equal counts of a program stay equal, so that they compress as well."""
    factors = rng.integers(1, 64, (len(graphs), len(_COUNTS)))
    values = graphs.x.copy()
    # Limits of a data type are also constants: in float32 their products would be infinite.
    counts = np.exp2(np.abs(values[:, _COUNTS]), dtype=np.float64) - 1
    more = np.log2(1 + counts * np.repeat(factors, graphs.node_counts, axis=0))
    values[:, _COUNTS] = np.sign(values[:, _COUNTS]) * more
    return replace(graphs, x=values)


def reading(folder: Path) -> dict[str, float]:
    """Reads the whole store in order."""
    start = time.perf_counter()
    programs = sum(map(len, GraphStore(folder).iterate(_SHARD)))
    return {"per_second": programs / (time.perf_counter() - start)}


def drawing(folder: Path, steps: int) -> dict[str, float]:
    """Reads the programs of some training steps: 32 programs each of eight tasks."""
    start = time.perf_counter()
    programs = GraphStore(folder).programs()
    opened = time.perf_counter()
    rng = np.random.default_rng(0)
    read = 0
    for _ in range(steps):
        tasks = rng.choice(len(programs.tasks), min(8, len(programs.tasks)), replace=False).tolist()
        own = [np.flatnonzero(programs.task == task) for task in tasks]
        rows = np.concatenate([rng.choice(rows, min(32, len(rows)), replace=False) for rows in own])
        read += len(programs.graphs.select(rows).read())
    return {"open_seconds": opened - start, "per_second": read / (time.perf_counter() - opened)}


def training(folder: Path, trees: int) -> dict[str, float]:
    """Trains the default model for two epochs and times the second, including validation, on all cores."""
    # Imported here: the processes of the other steps should not load PyTorch.
    from tvm_gnn_cost.models.topk_gnn import PRESETS
    from tvm_gnn_cost.training.fit import preset_settings
    from tvm_gnn_cost.training.pipeline import split_programs, train_gnn

    programs = GraphStore(folder).programs()
    parts = split_programs(programs, ["network-0"], 0)
    tasks = len(np.unique(programs.task[parts.train]))
    settings = replace(preset_settings("gnn", tasks), epochs=2, trees=trees)
    at: dict[str, float] = {"start": time.perf_counter()}

    def note(event: Event) -> None:
        if isinstance(event, EpochFinished):
            at[f"epoch {event.number}"] = time.perf_counter()
        elif isinstance(event, Stage):
            at["trees"] = time.perf_counter()

    with tempfile.TemporaryDirectory() as scratch:
        train_gnn(programs, parts, PRESETS["gnn"], settings, Path(scratch) / "fit", progress=note)
    end = time.perf_counter()
    return {
        "epoch_seconds": at["epoch 2"] - at["epoch 1"],
        "first_epoch_seconds": at["epoch 1"] - at["start"],
        "trees_seconds": end - at["trees"],
        "tasks": tasks,
        "drawn": int(np.minimum(np.bincount(programs.task[parts.train]), settings.programs_per_task).sum()),
    }


def size_of(store: GraphStore) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in store.shards())


def estimate(extracted: dict[str, float], last: dict[str, Any]) -> dict[str, float]:
    """Extrapolation to TenSet: days of extraction on 16 cores and of writing, gigabytes, hours per epoch."""
    tasks = TENSET / OF_TASK
    return {
        "extraction_days": TENSET / (extracted["per_second"] * CORES) / _DAY,
        "writing_days": TENSET / last["writing"]["per_second"] / _DAY,
        "gigabytes": TENSET * last["writing"]["bytes_per_program"] / 1e9,
        "epoch_hours_on_these_cores": last["training"]["epoch_seconds"] * tasks / last["training"]["tasks"] / 3600,
    }


def show(extracted: dict[str, float], rows: list[dict[str, Any]], days: dict[str, float]) -> None:
    """Prints the tables."""
    console.print(f"extraction: {extracted['per_second']:.0f} programs/s per core ({extracted['programs']} programs)")
    steps = ("writing", "reading", "drawing", "training")
    cells: tuple[tuple[str, str, str, str], ...] = (
        ("disk, bytes per program", "writing", "bytes_per_program", ".0f"),
        ("writing, programs/s", "writing", "per_second", ".0f"),
        ("sequential reading, programs/s", "reading", "per_second", ".0f"),
        ("reading in training order, programs/s", "drawing", "per_second", ".0f"),
        ("opening, s", "drawing", "open_seconds", ".1f"),
        ("programs per epoch", "training", "drawn", ".0f"),
        ("epoch, s", "training", "epoch_seconds", ".1f"),
        ("growing the trees, s", "training", "trees_seconds", ".1f"),
        *((f"peak memory of {step}, MiB", step, "peak_mib", ".0f") for step in steps),
    )
    columns = ("programs in the store", *(f"{row['programs']:,}" for row in rows))
    lines = [(label, *(f"{row[step][name]:{form}}" for row in rows)) for label, step, name, form in cells]
    console.print(table_of("", columns, lines))
    console.print(
        f"TenSet's {TENSET // 1_000_000} million: {days['extraction_days']:.1f} days of extraction on {CORES} cores, "
        f"{days['writing_days']:.1f} days of writing, {days['gigabytes']:.0f} GB, "
        f"{days['epoch_hours_on_these_cores']:.1f} hours per epoch on this machine"
    )


def benchmark(arguments: argparse.Namespace, data: Path, folder: Path) -> None:
    """Runs all steps, prints the tables and writes the JSON."""
    programs, trees, steps = (4_000, 5, 4) if arguments.quick else (arguments.programs, arguments.trees, 50)
    of_task = min(OF_TASK, programs // 100)
    real, store = folder / "real", folder / "synthetic"
    extracted = measured_alone(partial(extraction, data, real))
    extracted["bytes_per_program"] = size_of(GraphStore(real)) / extracted["programs"]
    rows: list[dict[str, Any]] = []
    for first, until in ((0, programs // 10), (programs // 10, programs)):
        row: dict[str, Any] = {"programs": until}
        for name, step in (
            ("writing", partial(writing, real, store, first, until, of_task)),
            ("reading", partial(reading, store)),
            ("drawing", partial(drawing, store, steps)),
            ("training", partial(training, store, trees)),
        ):
            console.print(f"{until:,} programs: {name}", highlight=False)
            row[name] = measured_alone(step)
        rows.append(row)
    days = estimate(extracted, rows[-1])
    show(extracted, rows, days)
    settings = {"programs": programs, "of_task": of_task, "trees": trees, "steps": steps, "quick": arguments.quick}
    metrics = {"extraction": extracted, "stores": rows, "tenset": days}
    write_result(arguments.json, result_name("scale", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark in a folder that is removed at the end."""
    options = parser(__doc__)
    options.add_argument("--programs", type=int, default=1_000_000, help="number of programs")
    options.add_argument("--trees", type=int, default=100, help="number of trees")
    options.add_argument("--data", type=Path, default=_DATA[scheduler().name], help="a folder of measured programs")
    options.add_argument("--folder", type=Path, help="keep the stores in this folder")
    arguments = options.parse_args()
    if arguments.folder is not None and arguments.folder.exists():
        options.error(f"{arguments.folder} exists; name a new folder")
    WORK.mkdir(parents=True, exist_ok=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(dir=WORK))
    try:
        data = thin_out([arguments.data], folder / "thin")[0] if arguments.quick else arguments.data
        benchmark(arguments, data, folder)
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
