"""Tunes whole networks with each cost model and compares them with PyTorch, torch.compile and ONNX Runtime.

Runs in either environment, as a user tunes: each search is stopped at every budget of minutes, the network compiled and
timed beside its peers, and the search goes on. With 0 minutes nothing is measured, the cost model chooses alone. The
work directories are kept, and a script that was interrupted goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.table import Table

import tvm_gnn_cost
from common import WORK, console, parser, result_name, write_result
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.report import latency
from tvm_gnn_cost.tuning.result import TuneResult

NETWORKS = {
    "meta-schedule": ("resnet-18", "mobilenet-v2", "inception-v3"),
    "auto-scheduler": ("resnet-18", "mobilenet", "inception-v3"),
}
PEERS = ("PyTorch", "torch.compile", "ONNX Runtime")


@dataclass(frozen=True)
class Point:
    """A network after a budget: latencies in milliseconds of the tuned network and of its peers, timed in turn."""

    network: str
    model: str
    seed: int
    minutes: float
    wall_clock_s: float
    trials: int
    tuned_ms: float
    slowest_ms: float
    difference: float | None
    peers_ms: dict[str, float | None]
    share_of_matrix_product: float | None
    seconds: dict[str, float]


def tune_to(network: str, model: str, seed: int, minutes: float, folder: Path, compare: bool) -> Point:
    """Tunes a network until a budget is spent, in a folder that every budget of the run shares."""
    work_dir = folder / f"{network}-{model}-{seed}{'' if minutes else '-unmeasured'}"
    saved = work_dir / f"after-{minutes:g}.json"
    start = time.perf_counter()
    budget: dict[str, Any] = {"minutes": minutes} if minutes else {"trials": 0}
    if not saved.exists():
        result = tvm_gnn_cost.tune(
            network, cost_model=model, seed=seed, work_dir=work_dir, compare=compare, progress=console.log, **budget
        )
        wall_clock = result.searching_seconds if minutes else time.perf_counter() - start
        write_json(saved, asdict(point_of(result, network, model, seed, minutes, wall_clock)))
    return Point(**json.loads(saved.read_text()))


def point_of(result: TuneResult, network: str, model: str, seed: int, minutes: float, wall_clock: float) -> Point:
    """What a result says."""
    assert result.end_to_end is not None, "tune compares"
    found = {one.name: one for one in result.end_to_end.networks}
    tuned = found["tuned"]
    peers = {name: found[name].latency * 1e3 for name in PEERS if name in found and found[name].seconds}
    return Point(
        *(network, model, seed, minutes, wall_clock, result.trials),
        *(tuned.latency * 1e3, max(tuned.seconds) * 1e3, tuned.difference),
        peers_ms={name: peers.get(name) for name in PEERS},
        share_of_matrix_product=result.share_of_matrix_product(result.flops, tuned.latency),
        seconds=result.seconds,
    )


def table_of(points: Sequence[Point]) -> Table:
    """A row a network, model and budget; means over the seeds with their standard deviation."""
    table = Table(title="end to end, milliseconds; peers are timed beside every network", title_justify="left")
    for column in ("network", "model", "minutes", "wall clock", "trials", "tuned", *PEERS, "of peak", "difference"):
        table.add_column(column, justify="left" if column in ("network", "model") else "right")
    for rows in _grouped(points).values():
        one = rows[0]
        peers = [[row.peers_ms[name] for row in rows if row.peers_ms[name]] for name in PEERS]
        shares = [row.share_of_matrix_product for row in rows if row.share_of_matrix_product]
        table.add_row(
            one.network,
            one.model,
            f"{one.minutes:g}",
            f"{statistics.mean(row.wall_clock_s for row in rows):.0f} s",
            f"{statistics.mean(row.trials for row in rows):.0f}",
            _spread([row.tuned_ms for row in rows]),
            *(_spread([value for value in values if value]) for values in peers),
            f"{100 * statistics.mean(shares):.0f} %" if shares else "-",
            f"{max(row.difference or 0.0 for row in rows):.1g}",
        )
    return table


def _grouped(points: Sequence[Point]) -> dict[tuple[str, str, float], list[Point]]:
    groups: dict[tuple[str, str, float], list[Point]] = {}
    for point in points:
        groups.setdefault((point.network, point.model, point.minutes), []).append(point)
    return groups


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def plot(points: Sequence[Point], path: Path) -> None:
    """Latency against minutes, a panel a network, a line a model and seed, and the peers' medians across."""
    networks = list(dict.fromkeys(point.network for point in points))
    figure, axes = plt.subplots(1, len(networks), figsize=(5 * len(networks), 4), squeeze=False)
    for axis, network in zip(axes[0], networks, strict=True):
        own = [point for point in points if point.network == network]
        for (model, seed), colour in {(p.model, p.seed): _COLOURS.get(p.model, "tab:green") for p in own}.items():
            line = sorted((p.wall_clock_s / 60, p.tuned_ms) for p in own if (p.model, p.seed) == (model, seed))
            axis.plot(*zip(*line, strict=True), marker="o", color=colour, label=model if seed == 0 else None)
        for name, style in zip(PEERS, (":", "-.", "--"), strict=True):
            values = [value for point in own if (value := point.peers_ms[name])]
            if values:
                axis.axhline(statistics.median(values), color="black", linestyle=style, label=name)
        axis.set(title=network, xlabel="minutes", ylabel="latency, ms", ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


_COLOURS = {"gnn": "tab:blue", "xgb": "tab:orange", "random": "tab:gray"}


def benchmark(arguments: argparse.Namespace, name: str, folder: Path) -> None:
    """Runs what is missing, prints the table, draws the plot and writes the JSON."""
    points: list[Point] = []
    for network in arguments.networks:
        for seed in range(arguments.seeds):
            for model in arguments.models:
                for minutes in sorted(arguments.minutes):
                    # A model without pre-trained weights has no choices of its own.
                    if minutes or model == "gnn":
                        done = tune_to(network, model, seed, minutes, folder, not arguments.quick)
                        points.append(done)
                        console.log(
                            f"{network} {model} seed {seed}, {minutes:g} minutes: {latency(done.tuned_ms / 1e3)}"
                        )
    console.print(table_of(points))
    if arguments.json:
        plot(points, arguments.json.with_suffix(".png"))
    settings = {key: getattr(arguments, key) for key in ("networks", "models", "minutes", "seeds")}
    best = {network: min(p.tuned_ms for p in points if p.network == network) for network in arguments.networks}
    assert all(math.isfinite(value) for value in best.values()), "every network was timed"
    write_result(arguments.json, name, settings, {"best_ms": best, "points": [asdict(point) for point in points]})


def main() -> None:
    """Reads the options and runs the benchmark."""
    name = result_name("end_to_end", scheduler().name)
    options = parser(__doc__)
    options.add_argument("--networks", nargs="+", default=list(NETWORKS[scheduler().name]))
    options.add_argument("--models", nargs="+", default=["gnn", "xgb"])
    options.add_argument("--minutes", nargs="+", type=float, default=[0, 5, 15])
    options.add_argument("--seeds", type=int, default=1)
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
