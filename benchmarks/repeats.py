"""By which of its repeats a search should choose a program: their fastest, their median or their mean.

Candidates of networks that others made are measured as the search of ``tune`` does, several times. Each measurement
chooses a program and orders the pairs; the other measurements judge both. Run it alone on the machine.
"""

from __future__ import annotations

import statistics
import tempfile
import warnings
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import track

from common import console, parser, table_of, write_result
from engines import made
from engines_networks import NETWORKS
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings
from tvm_gnn_cost.tuning.search import Screening

#: Name -> the latency of a program from its repeats, float64[programs, repeats] -> float64[programs].
STATISTICS: dict[str, Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]] = {
    "fastest": lambda seconds: seconds.min(axis=1),
    "median": lambda seconds: np.median(seconds, axis=1),
    "mean": lambda seconds: seconds.mean(axis=1),
}

#: The latency by which the choice is judged, from all repeats of the other measurements.
JUDGES = ("median", "fastest")

#: Recurrent networks, whose steps run with their weights in the caches, and convolutional ones.
_NETWORKS = ("lstm", "gru", "mobilenet-v2", "shufflenet", "resnet-18")

#: Relative difference of the latencies of two programs that count as different.
_DIFFERENT = 0.03

#: Programs that are interleaved, as in a batch of the search.
_BATCH = 8

_SEED = 0


def measure(name: str, tasks: int, programs: int, measurements: int) -> list[npt.NDArray[np.float64]]:
    """Seconds of the repeats of the best-scored candidates of a network's largest tasks.

    Returns:
        float64[measurements, programs, repeats] for each task; without programs that failed.
    """
    target = scheduler().target()
    with tempfile.TemporaryDirectory() as folder:
        network = scheduler().network(*made(name, Path(folder)))
    extracted = scheduler().tasks(network, target)
    model = scheduler().cost_model("gnn", _SEED, len(extracted), _BATCH)
    screening = Screening(
        scheduler(), model, target, dict.fromkeys((task.key for task in extracted), 4 * programs), _SEED
    )
    largest = sorted(extracted, key=lambda task: -task.weight * scheduler().flops(task))
    found = []
    for task in largest[:tasks]:
        best = screening.rank(task)[:programs]
        groups = [(task, best[start : start + _BATCH]) for start in range(0, len(best), _BATCH)]
        runs = []
        for _ in range(measurements):
            measured = scheduler().measure(groups, target, MeasureSettings())
            runs.append([outcome.seconds for _, outcomes in measured for outcome in outcomes])
        valid = [rows for rows in zip(*runs, strict=True) if all(len(row) == MeasureSettings.repeats for row in rows)]
        if len(valid) > 1:
            found.append(np.array(valid).swapaxes(0, 1))
    return found


def judged(tasks: Sequence[npt.NDArray[np.float64]], statistic: str, judge: str) -> dict[str, float]:
    """How well one measurement chooses and orders programs, judged by the others; a mean over measurements and tasks.

    Args:
        tasks: float64[measurements, programs, repeats] of each task.
        statistic: Of the repeats of the measurement that chooses.
        judge: Statistic of all repeats of the other measurements.
    """
    right, regrets = [], []
    for seconds in tasks:
        for number, chooser in enumerate(seconds):
            others = np.concatenate([*seconds[:number], *seconds[number + 1 :]], axis=1)
            latency, truth = STATISTICS[statistic](chooser), STATISTICS[judge](others)
            regrets.append(float(truth[np.argmin(latency)] / truth.min() - 1))
            for i, j in combinations(range(len(truth)), 2):
                if abs(np.log(truth[i] / truth[j])) > _DIFFERENT:
                    right.append((latency[i] < latency[j]) == (truth[i] < truth[j]))
    return {
        "pairs": float(np.mean(right)) if right else float("nan"),
        "regret": statistics.fmean(regrets),
        "regret_90th_percentile": float(np.percentile(regrets, 90)),
        "regret_largest": max(regrets),
    }


def main() -> None:
    """Measures, prints the tables and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--networks", nargs="+", metavar="NAME", choices=NETWORKS, default=list(_NETWORKS))
    options.add_argument("--tasks", type=int, default=4, help="number of a network's tasks")
    options.add_argument("--programs", type=int, default=24, help="number of programs of a task")
    options.add_argument("--measurements", type=int, default=4, help="number of times that everything is measured")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    networks, size = arguments.networks, (arguments.tasks, arguments.programs, arguments.measurements)
    if arguments.quick:
        networks, size = ["gru"], (2, 3, 2)
    found = {}
    for name in track(networks, "measuring", console=console, transient=True):
        if NETWORKS[name].installed:
            found[name] = measure(name, *size)
        else:
            console.print(f"{name} is left out: {NETWORKS[name].package} is not installed")
    if not found:
        options.error("none of the networks is installed; choose others with --networks")
    tasks = [task for of_network in found.values() for task in of_network]
    groups = {"all": tasks, **found}
    metrics: dict[str, Any] = {
        "tasks": len(tasks),
        "programs": sum(task.shape[1] for task in tasks),
        "judges": {
            judge: {
                statistic: {name: judged(group, statistic, judge) for name, group in groups.items() if group}
                for statistic in STATISTICS
            }
            for judge in JUDGES
        },
    }
    for judge, by_statistic in metrics["judges"].items():
        rows = [
            (statistic, *(f"{value:.4f}" for value in by_name["all"].values()))
            for statistic, by_name in by_statistic.items()
        ]
        title = f"{len(tasks)} tasks, judged by the {judge} of the other measurements"
        console.print(table_of(title, ("repeat", "pairs", "regret", "90th percentile", "largest"), rows))
    settings = {"networks": list(found), "threads": usable_cores(), "seed": _SEED}
    settings |= dict(zip(("tasks", "programs", "measurements"), size, strict=True))
    write_result(arguments.json, "repeats", settings, metrics)


if __name__ == "__main__":
    main()
