"""Memory, time per batch and prediction time of a long search.

Runs in either environment. Searches a network as ``tune`` does, and after every measured batch samples the memory of
this process and of its workers, the time since the last batch, and the time that the cost model takes to score a fixed
set of candidates. Compares the last quarter of the search with the second: the first also loads and screens.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from common import console, median_seconds, parser, result_name, table_of, write_result
from setups import setup
from tvm_gnn_cost.progress import ignore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.result import Settings, TaskResult, TuneResult
from tvm_gnn_cost.tuning.search import ResultListener, Screening, numbers_of_samples, search

#: Number of candidates that are scored after every batch, and of calls, of which the median counts.
_SCORED, _CALLS = 64, 3

#: Column -> title.
_FIGURES = {
    "memory_mib": "memory of this process, MiB",
    "workers_mib": "memory of its workers, MiB",
    "round_s": "time of a batch, s",
    "prediction_ms": f"scoring {_SCORED} candidates, ms",
}


@dataclass(frozen=True)
class Sample:
    """A sample after a measured batch.

    Attributes:
        seconds: Since the start of the search.
        trials: Number of measured programs.
        memory_mib: Resident memory of this process.
        workers_mib: Resident memory of its descendants.
        round_s: Seconds since the previous batch, without sampling.
        prediction_ms: Milliseconds to score the fixed candidates.
    """

    seconds: float
    trials: int
    memory_mib: float
    workers_mib: float
    round_s: float
    prediction_ms: float


class Watch(ResultListener):
    """Samples a search after each batch.

    Args:
        result: The result so far.
        work_dir: Its folder.
        predict: Scores the fixed candidates.
    """

    def __init__(self, result: TuneResult, work_dir: Path, predict: Callable[[], object]) -> None:
        super().__init__(result, work_dir, ignore, lambda: False)
        self.predict, self.process = predict, psutil.Process()
        self.samples: list[Sample] = []
        self.last = time.perf_counter()

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        """Samples a batch."""
        super().measured(task, latencies)
        round_s = time.perf_counter() - self.last
        workers = sum(_memory(child) for child in self.process.children(recursive=True))
        predicted = 1e3 * median_seconds(self.predict, _CALLS)
        sample = Sample(self.elapsed, self.result.trials, _memory(self.process), workers, round_s, predicted)
        self.samples.append(sample)
        self.last = time.perf_counter()


def _memory(process: psutil.Process) -> float:
    """Resident memory in MiB; 0 for a process that has ended."""
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def soak(network: str, minutes: float | None, trials: int | None, work_dir: Path) -> list[Sample]:
    """Searches a network until a budget is spent.

    Args:
        network: A name in the scheduler's catalogue.
        minutes: Of the search.
        trials: Number of programs to measure instead of the minutes.
        work_dir: Folder of records and logs.
    """
    chosen, target = scheduler(), scheduler().target()
    tasks = chosen.tasks(chosen.network(network), target)
    settings = Settings(network, trials, minutes, "gnn", 0, str(target), 8, 64, chosen.name)
    tuned = [
        TaskResult(task.name, task.weight, None, flops=chosen.flops(task), bytes=chosen.traffic(task)) for task in tasks
    ]
    result = TuneResult(settings, {}, {}, "", tasks=tuned)
    model = chosen.cost_model("gnn", 0, len(tasks), settings.batch_size)
    largest = max(tasks, key=chosen.flops)
    candidates = chosen.sample(largest, target, _SCORED, seed=0)
    context = setup().context(largest, target)
    watch = Watch(result, work_dir, lambda: model.predict(context, candidates))
    search(chosen, tasks, model, Screening(chosen, model, target, numbers_of_samples(tasks, tuned), 0), watch)
    return watch.samples


def quarters(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Column -> its median in the second quarter of the time and in the last, and their ratio."""
    end = samples[-1].seconds
    second = [one for one in samples if end / 4 <= one.seconds < end / 2] or list(samples[:1])
    last = [one for one in samples if one.seconds >= 3 * end / 4]
    medians = {}
    for name in _FIGURES:
        before, after = (statistics.median(getattr(one, name) for one in quarter) for quarter in (second, last))
        medians[name] = {"second_quarter": before, "last_quarter": after, "ratio": after / before if before else 1.0}
    return medians


def by_minute(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Column -> a value for each minute: the number of trials at its end, and medians of the others."""
    minutes = [list(group) for _, group in groupby(samples, lambda sample: int(sample.seconds // 60))]
    columns: dict[str, list[float]] = {
        "minute": [int(group[0].seconds // 60) for group in minutes],
        "trials": [group[-1].trials for group in minutes],
    }
    for name in _FIGURES:
        medians = [statistics.median(getattr(sample, name) for sample in group) for group in minutes]
        columns[name] = [float(f"{median:.4g}") for median in medians]
    return columns


def main() -> None:
    """Reads the options, searches and writes the JSON."""
    name = result_name("soak", scheduler().name)
    options = parser(__doc__)
    options.add_argument("--network", default="inception-v3")
    options.add_argument("--minutes", type=float, default=120)
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    network, minutes, trials = arguments.network, arguments.minutes, None
    if arguments.quick:
        network, minutes, trials = setup().smallest, None, 16
    with tempfile.TemporaryDirectory() as folder:
        samples = soak(network, minutes, trials, Path(folder))
    medians = quarters(samples)
    columns = ("", "second quarter", "last quarter", "ratio")
    rows = [(_FIGURES[name], *(f"{value:.3f}" for value in values.values())) for name, values in medians.items()]
    console.print(table_of(f"{network}: medians", columns, rows))
    settings: dict[str, Any] = {"network": network, "minutes": minutes, "trials": trials, "figures": _FIGURES}
    metrics = {"medians": medians, "by_minute": by_minute(samples)}
    write_result(arguments.json, name, settings, metrics)


if __name__ == "__main__":
    main()
