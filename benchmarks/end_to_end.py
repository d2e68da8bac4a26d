"""Tunes whole networks with each cost model and compares them with PyTorch, torch.compile and ONNX Runtime.

Runs in either environment. ``tune`` stops at each budget of minutes, compiles the network and resumes; with 0 minutes
it measures nothing, and the cost model chooses the schedules. Then all libraries of a network and its peers are timed
interleaved, because the speed of a virtual machine changes. The work directories are kept; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm_gnn_cost
from common import console, parser, result_name, run_saved, shipped_version, table_of, write_result
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.measuring.contest import contest
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.end_to_end import MATRIX_PRODUCT, line_up, operations_per_second, peer_programs

NETWORKS = {
    "meta-schedule": ("resnet-18", "mobilenet-v2", "inception-v3"),
    "auto-scheduler": ("resnet-18", "mobilenet", "inception-v3"),
}
PEERS = ("PyTorch", "torch.compile", "ONNX Runtime")

#: Number of turns of each library and peer.
_TURNS = 30


@dataclass(frozen=True)
class Point:
    """A network after a budget.

    ``wall_clock_s`` is the time of the search, or with 0 minutes the time until the library is written; ``difference``
    is the maximum difference of an output, relative to the largest value of the reference.
    """

    network: str
    model: str
    seed: int
    minutes: float
    wall_clock_s: float
    trials: int
    tasks_ms: float | None
    flops: float
    difference: float | None
    seconds: dict[str, float]
    library: str

    @property
    def name(self) -> str:
        """Its name in the comparison."""
        return f"{self.model} seed {self.seed}, {self.minutes:g} minutes"


def tune_to(network: str, model: str, seed: int, minutes: float, folder: Path) -> Point:
    """Tunes a network until a budget is spent; all budgets of a run share a work directory."""
    work_dir = folder / f"{network}-{model}-{seed}{'' if minutes else '-unmeasured'}"
    saved = work_dir / f"after-{minutes:g}.json"
    budget: dict[str, Any] = {"minutes": minutes} if minutes else {"trials": 0}
    if not saved.exists():
        result = tvm_gnn_cost.tune(
            network, cost_model=model, seed=seed, work_dir=work_dir, compare=False, progress=console.log, **budget
        )
        assert result.end_to_end is not None, "tune compares with the reference"
        # The next budget overwrites the library.
        library = saved.with_suffix(".so")
        shutil.copyfile(work_dir / result.library, library)
        point = Point(
            *(network, model, seed, minutes),
            result.searching_seconds + (0.0 if minutes else result.seconds["compilation"]),
            result.trials,
            1e3 * result.latency if math.isfinite(result.latency) else None,
            result.flops,
            result.end_to_end.tuned.difference,
            result.seconds,
            str(library.relative_to(folder)),
        )
        write_json(saved, asdict(point))
    return Point(**json.loads(saved.read_text()))


def time_interleaved(network: str, points: Sequence[Point], folder: Path, peers: bool) -> dict[str, list[float]]:
    """Name -> seconds of each turn, for each point's library, the peers and a large matrix product."""
    saved = folder / f"{network}-interleaved.json"
    names = [point.name for point in points]
    if saved.exists() and set(names) <= set(found := json.loads(saved.read_text())):
        return {name: found[name] for name in (*names, *PEERS, MATRIX_PRODUCT) if name in found}
    loaded = scheduler().network(network)
    with tempfile.TemporaryDirectory() as temporary:
        programs = {point.name: (scheduler().name, folder / point.library) for point in points}
        if peers:
            programs |= peer_programs(loaded, Path(temporary))
        contestants, _ = line_up(programs, loaded.inputs, Path(temporary))
        timed = contest(
            *(contestants, folder / "logs"),
            repeats=2 if not peers else _TURNS,
            limit=math.inf,
            progress=console.log,
            interrupted=lambda: False,
        )
    seconds = {one.name: one.seconds for one in timed if one.seconds}
    assert set(names) <= set(seconds), "every library runs"
    write_json(saved, seconds)
    return seconds


def rows_of(points: Sequence[Point], timed: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[Sequence[str]]:
    """A row for each network, model and budget: means over the seeds of their medians, with the standard deviation."""
    for (network, model, minutes), group in _grouped(points).items():
        medians = _medians(timed[network])
        product = operations_per_second(timed[network][MATRIX_PRODUCT])
        latencies = [medians[point.name] for point in group]
        yield (
            *(network, model, f"{minutes:g}"),
            f"{statistics.mean(point.wall_clock_s for point in group):.0f} s",
            f"{statistics.mean(point.trials for point in group):.0f}",
            _spread(latencies),
            _spread([point.tasks_ms for point in group if point.tasks_ms]),
            *(_spread([medians[name]] if name in medians else []) for name in PEERS),
            f"{100 * group[0].flops / (statistics.mean(latencies) / 1e3) / product:.0f} %",
            f"{max(point.difference or 0.0 for point in group):.1g}",
        )


def _medians(timed: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Name -> median of its turns in milliseconds."""
    return {name: 1e3 * statistics.median(seconds) for name, seconds in timed.items()}


def _grouped(points: Sequence[Point]) -> dict[tuple[str, str, float], list[Point]]:
    groups: dict[tuple[str, str, float], list[Point]] = {}
    for point in points:
        groups.setdefault((point.network, point.model, point.minutes), []).append(point)
    return groups


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def benchmark(arguments: argparse.Namespace, folder: Path) -> None:
    """Runs what is missing, prints the table and writes the JSON."""
    # Networks that were tuned with another checkpoint are repeated.
    folder /= shipped_version()
    points: list[Point] = []
    timed: dict[str, dict[str, list[float]]] = {}
    for network in arguments.networks:
        for seed in range(arguments.seeds if network == arguments.networks[0] else 1):
            for model in arguments.models[: None if seed == 0 else 1]:
                for minutes in sorted(arguments.minutes):
                    # Without measurements only the pre-trained model can choose.
                    if minutes or model == "gnn":
                        points.append(tune_to(network, model, seed, minutes, folder))
        tuned = [point for point in points if point.network == network]
        timed[network] = time_interleaved(network, tuned, folder, peers=not arguments.quick)
    columns = ("minutes", "wall clock", "trials", "tuned", "sum of tasks", *PEERS, "of matmul", "difference")
    title = "end to end, ms: medians of interleaved turns"
    console.print(table_of(title, ("network", "model", *columns), rows_of(points, timed), ("model",)))
    settings = {key: getattr(arguments, key) for key in ("networks", "models", "minutes", "seeds")}
    milliseconds = {
        network: {
            one: {"median": median, "turns": [1e3 * x for x in found[one]]} for one, median in _medians(found).items()
        }
        for network, found in timed.items()
    }
    about = [{key: value for key, value in asdict(point).items() if key != "library"} for point in points]
    metrics = {
        "milliseconds": milliseconds,
        "points": [row | {"name": p.name} for row, p in zip(about, points, strict=True)],
    }
    write_result(arguments.json, result_name("end_to_end", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--networks", nargs="+", default=list(NETWORKS[scheduler().name]))
    options.add_argument("--models", nargs="+", default=["gnn", "xgb"])
    options.add_argument("--minutes", nargs="+", type=float, default=[0, 5, 15])
    options.add_argument(
        "--seeds", type=int, default=1, help="of the first network with the first model; the others have one"
    )
    network = "perceptron" if scheduler().name == "meta-schedule" else "mlp"
    quick: dict[str, Any] = {"networks": [network], "models": ["gnn"]}
    name = result_name("end_to_end", scheduler().name)
    run_saved(options, name, benchmark, **quick, minutes=[0, 0.1], seeds=1)


if __name__ == "__main__":
    main()
