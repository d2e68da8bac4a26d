"""Puts the results of all benchmarks on one self-contained page: work/report/index.html by default.

Reads the JSON in ``results/``; with ``--run``, runs the benchmarks that have none, which takes hours. Every section has
the command that reproduces it.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from common import WORK, console, read_result
from report_sections import Results, sections
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import write_text

_HERE = Path(__file__).parent
_RESULTS = _HERE / "results"

#: Result -> options of its script that are not the defaults.
_OPTIONS = {
    "accuracy": "--models gnn xgb mlp node-count constant random",
    "accuracy-auto-scheduler": "--models gnn xgb mlp node-count constant random",
    "accuracy-tpgnn": "--models tpgnn --seeds 1 --epochs 4 --data benchmarks/data/cpu-2core-cascadelake",
    "cuda_programs": "FOLDER --seeds 2",
    "curves": "--epochs 12 --seeds 2",
    "end_to_end": "--models gnn xgb random --minutes 0 5 --seeds 3",
    "engines": "--tvm",
    "gpu_search": "FOLDER --at-once 3 --seeds 3 --valid-samples 16 --seconds 455",
    "gpu_training": "FOLDER --accuracy-of gpu --repeats 5",
    "new_processor": "--processors cascadelake znver5 --tasks 16 64 256 1024 --seeds 1",
}
#: All results.
NAMES = (
    *("accuracy", "accuracy-auto-scheduler", "accuracy-tpgnn", "by_task", "by_task-auto-scheduler", "conformance"),
    *("cuda_programs", "curves", "drop_in", "drop_in-auto-scheduler", "end_to_end", "engines", "extraction"),
    *("gpu_search", "gpu_training", "kernels", "kills", "kills-auto-scheduler"),
    *("new_processor", "new_processor-auto-scheduler", "prediction", "prediction-auto-scheduler"),
    *("repeats", "retest"),
    *("scale", "scale-auto-scheduler", "search", "search-auto-scheduler", "soak"),
    *("tpugraphs_accuracy", "tpugraphs_speed", "updates", "updates-auto-scheduler", "zoo"),
)


def command(name: str) -> str:
    """The command that reproduces a result, in the root of the repository."""
    script = name.partition("-")[0]
    python = ".venv-auto-scheduler/bin/python" if name.endswith("-auto-scheduler") else ".venv/bin/python"
    options = f" {_OPTIONS[name]}" if name in _OPTIONS else ""
    return f"{python} benchmarks/{script}.py{options} --json benchmarks/results/{name}.json"


def _machines(results: Results) -> list[tuple[str, str, str, str]]:
    """For each result its machine, its versions and the command that reproduces it."""
    rows = []
    for name, result in results.items():
        machine, versions = result["machine"], result["versions"]
        about = f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, {machine['system']}"
        rows.append(
            (name, about, ", ".join(f"{package} {version}" for package, version in versions.items()), command(name))
        )
    return rows


def run_missing(folder: Path, start: Callable[[str], int]) -> None:
    """Runs each benchmark that has no result in the folder; prints the names of those that fail."""
    for name in NAMES:
        if not (folder / f"{name}.json").exists():
            console.print(f"{name} is missing: {command(name)}", highlight=False)
            if start(command(name)):
                console.print(f"{name} failed; the page does not have it", highlight=False)


def write_page(folder: Path, page: Path) -> None:
    """Writes the page with the results of a folder."""
    paths = {name: folder / f"{name}.json" for name in NAMES}
    results = {name: read_result(path) for name, path in paths.items() if path.exists()}
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True)
    template = environment.get_template("report.html.j2")
    write_text(page, template.render(sections=sections(results), machines=_machines(results), command=command))


def main() -> None:
    """Reads the options and writes the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", type=Path, default=_RESULTS, help="folder of the results")
    options.add_argument("--page", type=Path, default=WORK.parent / "report" / "index.html", help="the page to write")
    options.add_argument("--run", action="store_true", help="run the benchmarks without a result")
    arguments = options.parse_args()
    if arguments.run:
        run_missing(arguments.results, lambda line: subprocess.run(line.split(), cwd=_HERE.parent).returncode)
    try:
        write_page(arguments.results, arguments.page)
    except InputError as error:
        options.error(str(error))
    console.print(f"page: {arguments.page}", highlight=False)


if __name__ == "__main__":
    main()
