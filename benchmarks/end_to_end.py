"""Tunes whole networks with each cost model and compares them with PyTorch, torch.compile and ONNX Runtime.

Runs in either environment, as a user tunes: each search is stopped at every budget of minutes, the network compiled,
and the search goes on. With 0 minutes nothing is measured, the cost model chooses alone. At the end all libraries of a
network and its peers are timed in turn, so that a machine that is faster at one time than at another favours none. The
work directories are kept, and a script that was interrupted goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

import tvm_gnn_cost
from common import WORK, console, parser, result_name, write_result
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.measuring.contest import contest
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.end_to_end import MATRIX_PRODUCT, line_up, operations_per_second, peer_programs

NETWORKS = {
    "meta-schedule": ("resnet-18", "mobilenet-v2", "inception-v3"),
    "auto-scheduler": ("resnet-18", "mobilenet", "inception-v3"),
}
PEERS = ("PyTorch", "torch.compile", "ONNX Runtime")

#: Turns of each library and peer; each gives the median of the runs that fit into it.
_TURNS = 30


@dataclass(frozen=True)
class Point:
    """A network after a budget.

    ``wall_clock_s`` are the seconds of the search, and where nothing is measured those until the library is written;
    ``difference`` is the largest one of an output, relative to the reference's largest value.
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
        """Its name in the contest."""
        return f"{self.model} seed {self.seed}, {self.minutes:g} minutes"


def tune_to(network: str, model: str, seed: int, minutes: float, folder: Path) -> Point:
    """Tunes a network until a budget is spent, in a folder that every budget of the run shares."""
    work_dir = folder / f"{network}-{model}-{seed}{'' if minutes else '-unmeasured'}"
    saved = work_dir / f"after-{minutes:g}.json"
    budget: dict[str, Any] = {"minutes": minutes} if minutes else {"trials": 0}
    if not saved.exists():
        result = tvm_gnn_cost.tune(
            network, cost_model=model, seed=seed, work_dir=work_dir, compare=False, progress=console.log, **budget
        )
        assert result.end_to_end is not None, "tune compares with the reference"
        # The next budget writes another library in its place.
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


def time_in_turn(network: str, points: Sequence[Point], folder: Path, peers: bool) -> dict[str, list[float]]:
    """Seconds of each point's library, of the peers and of a large matrix product, by name; one for each turn."""
    saved = folder / f"{network}-in-turn.json"
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


def table_of(points: Sequence[Point], timed: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """A row a network, model and budget; means over the seeds of their medians, with the standard deviation."""
    table = Table(title="end to end, milliseconds: medians of turns, timed in turn", title_justify="left")
    columns = ("minutes", "wall clock", "trials", "tuned", "sum of tasks", *PEERS, "of peak", "difference")
    for column in ("network", "model", *columns):
        table.add_column(column, justify="left" if column in ("network", "model") else "right")
    for (network, model, minutes), rows in _grouped(points).items():
        found = _medians(timed[network])
        peak = operations_per_second(timed[network][MATRIX_PRODUCT])
        latencies = [found[row.name] for row in rows]
        table.add_row(
            *(network, model, f"{minutes:g}"),
            f"{statistics.mean(row.wall_clock_s for row in rows):.0f} s",
            f"{statistics.mean(row.trials for row in rows):.0f}",
            _spread(latencies),
            _spread([row.tasks_ms for row in rows if row.tasks_ms]),
            *(_spread([found[name]] if name in found else []) for name in PEERS),
            f"{100 * rows[0].flops / (statistics.mean(latencies) / 1e3) / peak:.0f} %",
            f"{max(row.difference or 0.0 for row in rows):.1g}",
        )
    return table


def _medians(timed: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of the turns of each, in milliseconds."""
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


def benchmark(arguments: argparse.Namespace, name: str, folder: Path) -> None:
    """Runs what is missing, prints the table and writes the JSON."""
    points: list[Point] = []
    timed: dict[str, dict[str, list[float]]] = {}
    for network in arguments.networks:
        for seed in range(arguments.seeds if network == arguments.networks[0] else 1):
            for model in arguments.models[: None if seed == 0 else 1]:
                for minutes in sorted(arguments.minutes):
                    # A model without pre-trained weights has no choices of its own.
                    if minutes or model == "gnn":
                        points.append(tune_to(network, model, seed, minutes, folder))
        own = [point for point in points if point.network == network]
        timed[network] = time_in_turn(network, own, folder, peers=not arguments.quick)
    console.print(table_of(points, timed))
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
    write_result(arguments.json, name, settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    name = result_name("end_to_end", scheduler().name)
    options = parser(__doc__)
    options.add_argument("--networks", nargs="+", default=list(NETWORKS[scheduler().name]))
    options.add_argument("--models", nargs="+", default=["gnn", "xgb"])
    options.add_argument("--minutes", nargs="+", type=float, default=[0, 5, 15])
    options.add_argument("--seeds", type=int, default=1, help="of the first network with the first model; else one")
    options.add_argument("--runs", type=Path, default=WORK / name, help="where the work directories are")
    arguments = options.parse_args()
    if not arguments.quick:
        benchmark(arguments, name, arguments.runs)
        return
    arguments.networks = ["perceptron" if scheduler().name == "meta-schedule" else "mlp"]
    arguments.models, arguments.minutes, arguments.seeds = ["gnn"], [0, 0.3], 1
    with tempfile.TemporaryDirectory() as folder:
        benchmark(arguments, name, Path(folder))


if __name__ == "__main__":
    main()
