"""Tunes networks of six families and times them interleaved with the engines that could be installed instead.

Each network is tuned without a measurement and for a number of minutes. Then both libraries and every engine run in
turns, each in its own process; an engine that computes something else than the framework has no time. ``--tvm`` adds
TVM's own MetaSchedule with XGBModel, for the same minutes or until every task has a batch. Every finished step is saved
and not repeated, and the result is written after each network. Nothing else may run on the machine: the load of other
processes is in the result.

The packages are those of the ``compare`` and ``zoo`` extras, with basic-pitch (see ``zoo.py``), and executorch:

    pip install '.[tvm,compare,zoo]' executorch
    pip install --no-deps basic-pitch==0.4.0
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import engine_profiles
import figures
import tvm_gnn_cost
from common import console, earlier_metrics, parser, run_saved, shipped_version, table_of, write_result
from engines_networks import BATCHES, FAMILIES, NETWORKS
from engines_tables import (
    FAMILY_COLUMNS,
    ONNX_RUNTIME,
    TUNED_AIMS,
    TVM,
    UNMEASURED,
    UNMEASURED_AIMS,
    columns,
    failures,
    family_rows,
    page,
    picture,
    plain,
    rows,
    summary,
    tuned_name,
    verdict,
    without_measurement,
)
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import parse_json, write_json, write_text
from tvm_gnn_cost.measuring.contest import contest
from tvm_gnn_cost.measuring.machine import OtherLoad, describe_machine, machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning.comparison import limit, relative_difference
from tvm_gnn_cost.tuning.compiling import framework_of
from tvm_gnn_cost.tuning.end_to_end import MATRIX_PRODUCT, line_up, peer_programs, wrong
from tvm_gnn_cost.tuning.peers import PEERS, as_onnx, save_program
from zoo_one import environment

#: Seconds of all turns of an engine, after which it is not timed again: TVM's default schedules take seconds.
_LONGEST_S = 60.0

_SEED = 0

#: Marks of the table in the README.
_BEGIN, _END = "<!-- engines: benchmarks/engines.py --docs . -->\n", "<!-- /engines -->"


def tune(name: str, folder: Path, minutes: float) -> dict[str, Any]:
    """Tunes a network without a measurement, or for minutes; a search that was interrupted goes on."""
    with tempfile.TemporaryDirectory() as temporary:
        program, given = made(name, Path(temporary))
        work_dir = folder / f"minutes-{minutes:g}"
        budget: dict[str, Any] = {"minutes": minutes} if minutes else {"trials": 0}
        start = time.time()
        result = tvm_gnn_cost.tune(
            program, given, seed=_SEED, work_dir=work_dir, compare=False, progress=console.log, **budget
        )
    assert result.end_to_end is not None, "tune compares with the reference"
    library = work_dir / result.library
    return {
        "trials": result.trials,
        "seconds": result.searching_seconds if minutes else library.stat().st_mtime - start,
        "difference": result.end_to_end.tuned.difference,
        "library": str(library.relative_to(folder)),
    }


def made(name: str, folder: Path) -> tuple[Any, Any]:
    """A network and its inputs, as ``tune`` takes them."""
    program, inputs = NETWORKS[name].make(folder)
    return program, inputs if isinstance(program, Path) else tuple(map(torch.from_numpy, inputs.values()))


def imported_with_tvm(name: str) -> Any:
    """A network as TVM's own importers read it."""
    from tvm_gnn_cost.schedulers.meta_schedule.networks import import_with_tvm

    with tempfile.TemporaryDirectory() as temporary:
        network = scheduler().network(*made(name, Path(temporary)))
    return import_with_tvm(network.program, name, scheduler().target())


def search_with_tvm(name: str, folder: Path, minutes: float) -> None:
    """Searches with TVM's own MetaSchedule for minutes and until all tasks have a batch, and ends the process."""
    from tvm_search import search_network

    search_network(imported_with_tvm(name), folder / "tvm", _SEED, 60 * minutes)


def compile_with_tvm(name: str, folder: Path, minutes: float) -> dict[str, Any]:
    """Searches in another process, and compiles the network with what was found."""
    from tvm_search import compile_network

    mod, start = imported_with_tvm(name), time.monotonic()
    code = in_process(search_with_tvm, name, folder, minutes)
    seconds = time.monotonic() - start
    if code:
        raise WorkError(f"TVM's search ended with exit code {code}")
    return {
        "trials": compile_network(mod, folder / "tvm", folder / "tvm.so"),
        "seconds": seconds,
        "library": "tvm.so",
    }


def time_all(
    name: str, folder: Path, libraries: Mapping[str, str], engines: Collection[str], turns: int, seconds: float
) -> dict[str, Any]:
    """Times the libraries and the engines, interleaved, and compares their outputs with the framework's."""
    with tempfile.TemporaryDirectory() as temporary:
        network = scheduler().network(*made(name, Path(temporary)))
        programs = {title: (scheduler().name, folder / library) for title, library in libraries.items()}
        peers = peer_programs(network, Path(temporary), slow=True)
        programs |= {title: program for title, program in peers.items() if title in engines}
        contestants, outputs = line_up(programs, network.inputs, Path(temporary))
        load = OtherLoad()
        timed = contest(
            *(contestants, folder / "logs"),
            repeats=turns,
            seconds=seconds,
            limit=_LONGEST_S,
            together=False,
            progress=console.log,
            interrupted=lambda: False,
        )
        busy = load.cores()
        found = {}
        for one in timed:
            difference = None if one.failure or one.name == MATRIX_PRODUCT else _difference(outputs[one.name], network)
            reason = one.failure or wrong(difference, _tolerance(network), framework_of(network))
            # The path of a log is of no use to readers of the result.
            outcome = {"difference": difference, "reason": reason.partition("; its output is in ")[0]}
            found[one.name] = outcome | ({} if reason else spread(one.seconds))
    about = {"reference": framework_of(network), "machine": describe_machine(), "other_load": busy}
    return {"engines": found} | about


def profile(name: str) -> dict[str, Any]:
    """Where the time of ONNX Runtime and of OpenVINO goes."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        network = scheduler().network(*made(name, Path(temporary)))
        path = as_onnx(save_program(network.program, Path(temporary)))
        for engine, profiler in ((ONNX_RUNTIME, engine_profiles.onnx_runtime), ("OpenVINO", engine_profiles.openvino)):
            # Their errors have any type; why they cannot run a network is in their times.
            with suppress(Exception), machine_to_itself():
                found[engine] = profiler(path, list(network.inputs.values()), usable_cores())
    return found


def _difference(path: Path, network: Network) -> float | None:
    if network.expected is None:
        return None
    with np.load(path) as file:
        return relative_difference(list(file.values()), network.expected)


def _tolerance(network: Network) -> float:
    """The tolerance of ``tune``, without what it adds for networks that amplify rounding errors."""
    arrays = (*network.inputs.values(), *(network.expected or ()))
    return max(limit({"float32", *(str(array.dtype) for array in arrays)}), 2 * network.noise)


def spread(seconds: list[float]) -> dict[str, Any]:
    """Median, quartiles and turns in ms.

    >>> spread([0.004, 0.001, 0.002, 0.003])["quartiles"]
    [1.75, 3.25]
    """
    turns = [round(1e3 * one, 6) for one in seconds]
    low, middle, high = np.quantile(turns, (0.25, 0.5, 0.75))
    return {"median": float(middle), "quartiles": [float(low), float(high)], "turns": turns}


def saved(path: Path, step: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a step found, from its file or by running it in its own process; an error that it explains is found too."""
    with suppress(FileNotFoundError):
        return dict(parse_json(path.read_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    code = in_process(_save, path, step, *arguments)
    if not path.exists():
        return {"reason": f"its process ended with exit code {code}"}
    return dict(parse_json(path.read_text()))


def _save(path: Path, step: Callable[..., dict[str, Any]], *arguments: Any) -> None:
    try:
        found = step(*arguments)
    except (InputError, WorkError) as error:
        found = {"reason": str(error)}
    write_json(path, found)


def in_process(function: Callable[..., Any], *arguments: Any) -> int | None:
    """Calls a function in another process, and ends what that has started; its exit code."""
    process = get_context("spawn").Process(target=function, args=arguments)
    process.start()
    try:
        process.join()
        return process.exitcode
    finally:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            for one in (*parent.children(recursive=True), parent):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.join()


def run_network(name: str, family: str, arguments: argparse.Namespace, runs: Path, checkpoint: str) -> dict[str, Any]:
    """All steps of a network; what fails is in the result with its reason."""
    # Runs with another checkpoint are repeated.
    folder, minutes = runs / checkpoint / name, arguments.minutes
    points = {UNMEASURED: saved(folder / "minutes-0.json", tune, name, folder, 0.0)}
    if arguments.search:
        points[tuned_name(minutes)] = saved(folder / f"minutes-{minutes:g}.json", tune, name, folder, minutes)
    if arguments.tvm:
        title = f"{TVM}, {minutes:g} minutes"
        points[title] = saved(folder / "tvm.json", compile_with_tvm, name, folder, minutes)
    libraries = {title: point["library"] for title, point in points.items() if "library" in point}
    # Libraries that were tuned since are timed with everything else again.
    path = folder / f"timed-{'-'.join(Path(library).parent.name or 'tvm' for library in libraries.values())}.json"
    timed = saved(path, time_all, name, folder, libraries, arguments.engines, arguments.turns, arguments.seconds)
    profiles = saved(folder / "profiles.json", profile, name)
    failed = {title: {"reason": point["reason"]} for title, point in points.items() if "reason" in point}
    return {
        "family": family,
        "source": NETWORKS[name].source,
        "checkpoint": checkpoint,
        "points": points,
        **timed,
        "profiles": profiles,
        "engines": {title: one for title, one in timed.get("engines", {}).items() if title != MATRIX_PRODUCT} | failed,
    }


def benchmark(arguments: argparse.Namespace, folder: Path) -> None:
    """Runs what is missing, prints the tables, and writes the JSON after each network."""
    os.environ.update(environment())
    settings = {key: getattr(arguments, key) for key in ("minutes", "turns")}
    settings |= {"threads": usable_cores(), "seed": _SEED}
    # Each network has the machine that it ran on: it is compared on one machine, different networks need not be.
    found, checkpoint = earlier_metrics(arguments.json, settings).get("networks", {}), shipped_version()
    for family, networks in (*FAMILIES.items(), ("larger batches", BATCHES)):
        for network in networks:
            if network.name not in arguments.only:
                continue
            if not network.installed:
                console.print(f"{network.name} is left out: {network.package} is not installed")
                continue
            found[network.name] = run_network(network.name, family, arguments, folder, checkpoint)
            found = {name: found[name] for name in NETWORKS if name in found}
            write_result(arguments.json, "engines", settings, {"networks": found})
    minutes = arguments.minutes
    times = map(plain, rows(found, minutes))
    console.print(table_of("ms: quartiles of the turns", plain(columns(found)), times))
    console.print(table_of("the engine's time / ours", plain(FAMILY_COLUMNS), family_rows(found, minutes)))
    console.print(table_of("without a time", ("network", "engine", "reason"), failures(found), ("engine", "reason")))
    console.print(verdict(found, tuned_name(minutes), "", TUNED_AIMS), markup=False)
    console.print(verdict(found, UNMEASURED, ONNX_RUNTIME, UNMEASURED_AIMS), markup=False)
    console.print(without_measurement(found, minutes), markup=False)


def write_pages(result: Mapping[str, Any], root: Path) -> None:
    """Writes ``docs/results/engines.md``, its figure, and the table in ``README.md`` between its two marks."""
    docs, readme = root / "docs", root / "README.md"
    write_text(docs / "results" / "engines.md", page(result))
    before, begin, rest = readme.read_text().partition(_BEGIN)
    write_text(readme, f"{before}{begin}{summary(result)}{_END}{rest.partition(_END)[2]}")
    drawing = picture(result["metrics"]["networks"], result["settings"]["minutes"])
    figures.write_image(drawing, docs / "images" / "engines.svg")


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    default = [network.name for networks in FAMILIES.values() for network in networks]
    options.add_argument("--only", nargs="+", metavar="NAME", default=default, help="networks to run")
    options.add_argument("--minutes", type=float, default=5.0, help="minutes of the search")
    options.add_argument("--turns", type=int, default=20, help="turns of each library and engine")
    options.add_argument("--seconds", type=float, default=0.2, help="seconds of a turn")
    options.add_argument("--engines", nargs="+", default=list(PEERS), choices=PEERS, help="engines to compare with")
    options.add_argument("--tvm", action="store_true", help="also TVM's own MetaSchedule, for the same minutes")
    options.add_argument(
        "--search", action=argparse.BooleanOptionalAction, default=True, help="tune for the minutes, or not at all"
    )
    quick = {"only": ["gru"], "minutes": 0.1, "turns": 2, "seconds": 0.01}
    run_saved(options, "engines", benchmark, write_pages, **quick)


if __name__ == "__main__":
    main()
