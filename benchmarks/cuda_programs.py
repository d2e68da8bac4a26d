"""Accuracy on GPU programs: the model with and without the features of GPU programs, and TVM's XGBoost model.

Reads a published MetaSchedule database of TVM 0.16 in FOLDER, which this project does not include. Tasks are
cross-validated: a model ranks the programs of the fold that it was not trained on, and metrics are means over the
folds. Finished runs are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from common import console, parser, run_saved, write_result
from trained import ALONE, WITHOUT_GPU, XGB_OF_ALL, Job, run_all
from tvm_gnn_cost import GraphStore, extract
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.progress import Advanced, Event

_CONVERT = Path(__file__).parent.parent / "tools" / "convert_database.py"
MODELS = ("gnn", WITHOUT_GPU, "xgb", XGB_OF_ALL, "node-count", "random")


def replayed(arguments: argparse.Namespace, work: Path) -> tuple[Path, dict[str, Any]]:
    """The store of the programs that today's TVM replays, and their counts; the first call makes it."""
    name = f"{arguments.folder.resolve().name}-{arguments.programs_per_task}-{arguments.folds}"
    store, counts = work / f"{name}-statements", work / f"{name}.json"
    if not counts.exists():
        with tempfile.TemporaryDirectory() as folder, Progress(console=console, transient=True) as progress:
            database = Path(folder) / "database"
            sizes = ("--programs-per-task", str(arguments.programs_per_task), "--folds", str(arguments.folds))
            convert = [sys.executable, _CONVERT, arguments.folder, database, *sizes]
            found: dict[str, Any] = json.loads(subprocess.run(convert, check=True, stdout=subprocess.PIPE).stdout)
            bar = progress.add_task("extracting", total=None)

            def show(event: Event) -> None:
                if isinstance(event, Advanced):
                    progress.update(bar, completed=event.done, total=event.total)

            extraction = extract(database, store, programs_at_once=64, progress=show)
            found |= {
                "replayed": extraction.added + extraction.known,
                "problems": dict(Counter(problem.reason for problem in extraction.problems)),
            }
        write_json(counts, found)
    return store, json.loads(counts.read_text())


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the table and writes the JSON."""
    store, counts = replayed(arguments, finished)
    console.print(counts)
    seeds = range(arguments.seeds)
    jobs = [Job(model, seed, store) for seed in seeds for model in MODELS]
    runs: dict[str, dict[int, list[dict[str, float]]]] = {}
    for fold in range(arguments.folds):
        for job, result in run_all(jobs, (f"fold-{fold}",), arguments.epochs, arguments.quick, finished):
            parts = {job.name: result} | (result["alone"] if job.name == "gnn" else {})
            for name, metrics in parts.items():
                runs.setdefault(name, {}).setdefault(job.seed, []).append(metrics["all"])
    means = {
        name: [
            {metric: float(np.mean([one[metric] for one in folds])) for metric in folds[0]} for folds in own.values()
        ]
        for name, own in runs.items()
    }
    order = ("gnn", *ALONE, *MODELS[1:])
    rows = {name: compare.summarise(means[name]) for name in order}
    programs = GraphStore(store).load()
    title = f"{len(programs)} programs of {len(programs.tasks)} tasks, {arguments.folds} folds; {len(seeds)} seeds"
    console.print(compare.table(title, rows))
    settings = {"seeds": list(seeds), "epochs": arguments.epochs, "quick": arguments.quick, "folds": arguments.folds}
    settings |= {"programs_per_task": arguments.programs_per_task, "folder": arguments.folder.resolve().name}
    write_result(arguments.json, "cuda_programs", settings, {"models": rows, "programs": counts})


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the options of :func:`replayed` and of trainings on its store."""
    options.add_argument("folder", type=Path, metavar="FOLDER", help="a MetaSchedule database of TVM 0.16")
    options.add_argument("--programs-per-task", type=int, default=128)
    options.add_argument("--folds", type=int, default=4)
    options.add_argument("--epochs", type=int, help="number of epochs; the number of trees changes in proportion")


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--seeds", type=int, default=1)
    run_saved(options, "cuda_programs", benchmark, epochs=1, folds=2, programs_per_task=8)


if __name__ == "__main__":
    main()
