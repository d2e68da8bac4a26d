"""Kills each command at random times, resumes it, and compares the outcome with that of an uninterrupted run.

All processes of a command get SIGKILL at a time that is uniform over the duration of its uninterrupted run. Then the
same command runs to its end. No committed result may be lost, the files and their content must be those of the
uninterrupted run, and no temporary file may be left; otherwise the exit code is 1. Measured times are not compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from common import DATA, WORK, XLA, console, parser, result_name, table_of, write_result
from stores import thin_out
from tvm_gnn_cost import GraphStore, extract
from tvm_gnn_cost.datasets.records import RECORDS
from tvm_gnn_cost.datasets.tenset import files_ending
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tpugraphs.format.protos import TuningData

#: The part of an output that must not depend on a kill: any value that can be compared.
Outcome = Any

#: A run that takes longer counts as hanging.
_TIMEOUT_S = 600.0

#: Commands that a quick run kills once.
_QUICK = ["extract", "train"]

_COLLECTION = "layout:xla:random"


@dataclass(frozen=True)
class Case:
    """A command and the checks of its output.

    Attributes:
        name: Of the command.
        arguments: Its arguments, given the output folder.
        outcome: The content of the output folder that does not depend on measurements.
        committed: The results in the folder of a killed run that must not be lost.
        ignored: Prefixes of the names of files that not every run leaves.
    """

    name: str
    arguments: Callable[[Path], Sequence[object]]
    outcome: Callable[[Path], Outcome]
    committed: Callable[[Path], set[Any]] = lambda _folder: set()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tally:
    """The kills of one command.

    Attributes:
        seconds: Duration of its uninterrupted run.
        kills: Number of kills.
        kept: Number of kills after a first commit.
        problems: Failed checks.
    """

    seconds: float
    kills: int = 0
    kept: int = 0
    problems: tuple[str, ...] = ()


def content(path: Path) -> str:
    """A digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def arrays(folder: Path) -> dict[str, dict[str, str]]:
    """A digest of each array of each npz file below a folder, but of those that say how long something took."""
    found = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as npz:
            found[str(path.relative_to(folder))] = {
                name: hashlib.sha256(npz[name].tobytes()).hexdigest() for name in npz.files if name != "savings"
            }
    return found


def lines(path: Path) -> list[str]:
    """The complete lines of a file; none if it is missing."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def database_records(folder: Path) -> list[tuple[str, str]]:
    """Each record of a collection with its line in ``measurements.jsonl``."""
    return list(zip(lines(folder / RECORDS), lines(folder / "measurements.jsonl"), strict=False))


def collected(folder: Path) -> Outcome:
    """The number of programs of each task and phase in a database, and the traces of the random ones."""
    pairs = [(json.loads(record), json.loads(measurement)) for record, measurement in database_records(folder)]
    counts = Counter((entry["task"], entry["phase"]) for _, entry in pairs)
    sampled = sorted(json.dumps(record[1][0]) for record, entry in pairs if entry["phase"] == "random")
    return counts, sampled, sorted(line for line in lines(folder / "tasks.jsonl"))


def tenset_records(folder: Path) -> set[Any]:
    """The lines of the records of a folder in TenSet's layout."""
    return {line for path in files_ending(folder / "measure_records" / "cpu", ".json") for line in lines(path)}


def tenset_collected(folder: Path) -> Outcome:
    """The number of programs of each task in a folder in TenSet's layout."""
    return {path.name: len(lines(path)) for path in files_ending(folder / "measure_records" / "cpu", ".json")}


def stored(folder: Path) -> Outcome:
    """The keys of a store's programs, and a digest of each with its task; shards may differ."""
    store = GraphStore(folder)
    programs = store.load()
    digests = []
    for row in range(len(programs)):
        task, graph = programs.tasks[programs.task[row]], programs.graphs.select([row])
        names = [graph.type_names[number] for number in graph.node_type]
        digest = hashlib.sha256(json.dumps([*task.identity, sorted(task.weights.items()), names]).encode())
        for array in (graph.x, graph.edge_index, graph.edge_type, programs.latency[row]):
            digest.update(np.ascontiguousarray(array).tobytes())
        digests.append(digest.hexdigest())
    return sorted(store.keys()), sorted(digests)


def tuned(folder: Path) -> Outcome:
    """The tasks of a tuning run, and the number of measured programs."""
    result = json.loads((folder / "tuning.json").read_text())
    tasks = result["tasks"]
    return [one["name"] for one in tasks], sum(one["trials"] for one in tasks), result["searched"]


def measured_layouts(folder: Path) -> Outcome:
    """The graphs of a folder of measured layouts, with their sizes."""
    graphs = json.loads((folder / "card.json").read_text())["graphs"]
    return {name: {field: one[field] for field in ("nodes", "configurable", "configs")} for name, one in graphs.items()}


def card_graphs(folder: Path) -> set[Any]:
    """The entries of a card of measured layouts."""
    card = folder / "card.json"
    return set(map(str, json.loads(card.read_text())["graphs"].items())) if card.exists() else set()


def files(folder: Path) -> dict[str, str]:
    """A digest of each file below a folder."""
    return {str(path.relative_to(folder)): content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def finished(*patterns: str) -> Callable[[Path], set[Any]]:
    """For commands that commit whole files: names and digests of those that match a pattern."""

    def found(folder: Path) -> set[Any]:
        paths = [path for pattern in patterns for path in folder.rglob(pattern)]
        return {(str(path.relative_to(folder)), content(path)) for path in paths}

    return found


def scheduler_cases(inputs: Path, quick: bool) -> list[Case]:
    """Commands that measure, extract, train and tune with the scheduler of the installed TVM."""
    name = scheduler().name
    is_meta = name == "meta-schedule"
    (data,) = thin_out(DATA[name][:1], inputs)
    hardware = [] if is_meta else ["--hardware", sorted((data / "measure_records").iterdir())[0].name]
    store = inputs / "store"
    extract(data, store, features=False, hardware=hardware[1] if hardware else None)
    held_out = sorted(GraphStore(store).load().networks)[0]
    measuring = ("--scheduler", name)
    operators = ("dense/0",) if quick else ("dense/0", "softmax/0", "dense/1")
    trials = 4 if quick else 12
    return [
        Case(
            "collect",
            lambda out: ("collect", *operators, out, "--random", 4, "--guided", 2, "--patience", 0, *measuring),
            collected if is_meta else tenset_collected,
            (lambda out: set(database_records(out))) if is_meta else tenset_records,
        ),
        Case(
            "extract",
            lambda out: ("extract", data, out, "--no-features", *hardware),
            stored,
            lambda out: GraphStore(out).keys(),
            ("shard-",),
        ),
        Case(
            "train",
            lambda out: ("train", store, out / "m.safetensors", "--held-out", held_out, "--epochs", 2 if quick else 6),
            files,
        ),
        Case(
            "tune",
            lambda out: (
                *("tune", "perceptron" if is_meta else "mlp", "--work-dir", out, "--no-compare", *measuring),
                *("--trials", trials, "--batch-size", 4, "--population-size", 16, "--cost-model", "random"),
            ),
            tuned,
            lambda out: set(lines(out / (RECORDS if is_meta else "records.json"))),
            ("logs/",),
        ),
    ]


def write_kernels(path: Path, count: int) -> None:
    """Writes a message with measured tiles of synthetic kernels."""
    rng = np.random.default_rng(0)
    kernels = []
    for number in range(count):
        chain = [{"name": f"i{i}", "opcode": "add", "id": i + 1, "operand_ids": [i] if i else []} for i in range(40)]
        runs = [
            {
                "op_config": {"tile_size_config": {"output_bounds": rng.integers(1, 64, 3).tolist()}},
                "profile": {"compute_time_ns": int(rng.integers(10, 1000))},
                "is_default": run == 0,
            }
            for run in range(20)
        ]
        module = {"name": f"kernel-{number}", "computations": [{"name": "main", "id": 1, "instructions": chain}]}
        kernels.append({"module": module, "runs": runs})
    path.write_bytes(TuningData(modules=kernels).SerializeToString())


def tpugraphs_cases(inputs: Path, quick: bool) -> list[Case]:
    """The commands of ``tpugraphs``."""
    kernels, prepared, models = inputs / "kernels.pb", inputs / "prepared", inputs / "models"
    write_kernels(kernels, 20 if quick else 400)
    training = ("--set", "channels=16", "--folds", 4, "--trained", 2, "--kept", 1, "--epochs", 1 if quick else 3)
    run_to_end(("tpugraphs", "prepare", XLA, prepared), inputs)
    run_to_end(("tpugraphs", "train", prepared, _COLLECTION, models, *training), inputs)
    model = ("--model", f"{_COLLECTION}={models}", "--permutations", 1)
    networks = ("perceptron-a",) if quick else ("perceptron-a", "elman-a", "lstm-a")
    chosen = [option for network in networks for option in ("--network", network)]
    rounds = ("--configs", 4, "--rounds", 4, "--seconds", 0.002, "--threshold", -1)
    return [
        Case(
            "encode", lambda out: ("tpugraphs", "encode", kernels, out, "--source", "tile"), arrays, finished("*.npz")
        ),
        Case(
            "measure",
            lambda out: ("tpugraphs", "measure", out, *chosen, *rounds),
            measured_layouts,
            card_graphs,
        ),
        Case("prepare", lambda out: ("tpugraphs", "prepare", XLA, out), arrays, finished("*.npz")),
        Case(
            "train (tpugraphs)",
            lambda out: ("tpugraphs", "train", prepared, _COLLECTION, out, *training),
            files,
            finished("*.safetensors"),
        ),
        Case("rank", lambda out: ("tpugraphs", "rank", XLA, out / "table.csv", *model), files),
        Case("evaluate", lambda out: ("tpugraphs", "evaluate", XLA, *model, "--json", out / "found.json"), files),
    ]


def run(arguments: Sequence[object], scratch: Path, kill_after: float | None = None) -> tuple[int | None, str]:
    """Runs a command in a new session.

    Args:
        arguments: Of the command line.
        scratch: Folder of its temporary files.
        kill_after: Seconds after which all of its processes are killed.

    Returns:
        Its exit code, None if it was killed, and its output.
    """
    temporary = scratch / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", "from tvm_gnn_cost.cli import main; main()", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=scratch,
        env={**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"},
    )
    try:
        printed, _ = process.communicate(timeout=_TIMEOUT_S if kill_after is None else kill_after)
    except subprocess.TimeoutExpired:
        _kill_session(process.pid)
        process.communicate()
        return None, "" if kill_after is not None else "it hangs"
    finally:
        _kill_session(process.pid)
        shutil.rmtree(temporary, ignore_errors=True)
    return process.returncode, printed


def _kill_session(leader: int) -> None:
    """Kills all processes of a session; workers may have their own process groups."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == leader:
                os.kill(process.pid, signal.SIGKILL)


def run_to_end(arguments: Sequence[object], scratch: Path) -> float:
    """Runs a command that must succeed, and returns its duration in seconds."""
    start = time.monotonic()
    code, printed = run(arguments, scratch)
    if code != 0:
        raise SystemExit(f"tvm-gnn-cost {' '.join(map(str, arguments))} ended with exit code {code}:\n{printed}")
    return time.monotonic() - start


def names(folder: Path, ignored: tuple[str, ...]) -> set[str]:
    """The names of the files and folders below a folder."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in found if not f"{name}/".startswith(ignored)} if ignored else found


def kill_once(case: Case, expected: Path, out: Path, seconds: float, scratch: Path) -> tuple[bool, bool, list[str]]:
    """Kills a command, resumes it and compares the outcomes.

    Args:
        case: The command.
        expected: The output of its uninterrupted run.
        out: A new output folder.
        seconds: Time of the kill.
        scratch: See :func:`run`.

    Returns:
        Whether it was killed before its end, whether something was committed by then, and the failed checks.
    """
    out.mkdir()
    if run(case.arguments(out), scratch, seconds)[0] is not None:
        return False, False, []
    before = case.committed(out)
    code, printed = run(case.arguments(out), scratch)
    if code != 0 or "Traceback" in printed:
        return True, bool(before), [f"the resumed run ended with exit code {code}: {printed[-2000:]}"]
    wrong = []
    if lost := before - case.committed(out):
        wrong.append(f"lost {len(lost)} of {len(before)} committed results: {sorted(map(str, lost))[0][:200]}")
    if case.outcome(out) != case.outcome(expected):
        wrong.append("its outcome differs from that of the uninterrupted run")
    there, without = names(out, case.ignored), names(expected, case.ignored)
    wrong += [f"left {name}" for name in sorted(there - without)]
    wrong += [f"lacks {name}" for name in sorted(without - there)]
    return True, bool(before), wrong


def main() -> None:
    """Prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=50, help="total number of kills")
    options.add_argument("--seed", type=int, default=0, help="seed of the times of the kills")
    options.add_argument("--commands", nargs="+", metavar="NAME", help="commands to kill")
    arguments = options.parse_args()
    chosen = arguments.commands or (_QUICK if arguments.quick else None)
    work = WORK / "kills"
    shutil.rmtree(work, ignore_errors=True)
    inputs = work / "inputs"
    inputs.mkdir(parents=True)
    cases = scheduler_cases(inputs, arguments.quick)
    # These need no TVM: one environment is enough.
    if scheduler().name == "meta-schedule" and chosen != _QUICK:
        cases += tpugraphs_cases(inputs, arguments.quick)
    cases = [case for case in cases if chosen is None or case.name in chosen]
    rng = random.Random(arguments.seed)
    tallies: dict[str, Tally] = {}
    for number in range(len(cases) if arguments.quick else arguments.kills):
        case = cases[number % len(cases)]
        expected = work / case.name / "uninterrupted"
        if case.name not in tallies:
            expected.mkdir(parents=True)
            tallies[case.name] = Tally(run_to_end(case.arguments(expected), work))
            console.print(f"{case.name}: {tallies[case.name].seconds:.0f} s", highlight=False)
        tally = tallies[case.name]
        is_killed = False
        while not is_killed:
            out = work / case.name / str(number)
            shutil.rmtree(out, ignore_errors=True)
            moment = rng.uniform(0, tally.seconds)
            is_killed, has_kept, wrong = kill_once(case, expected, out, moment, work)
        problems = tuple(f"killed after {moment:.1f} s: {one}" for one in wrong)
        for problem in problems:
            console.print(f"{case.name}, {problem}", highlight=False, markup=False)
        if not problems:
            shutil.rmtree(out)
        tallies[case.name] = replace(
            tally, kills=tally.kills + 1, kept=tally.kept + has_kept, problems=tally.problems + problems
        )
    rows = [
        (name, f"{tally.seconds:.0f}", str(tally.kills), str(tally.kept), str(len(tally.problems)))
        for name, tally in tallies.items()
    ]
    columns = ("command", "uninterrupted, s", "kills", "after the first commit", "problems")
    console.print(table_of("Commands that were killed and resumed", columns, rows))
    settings = {"quick": arguments.quick, "kills": sum(one.kills for one in tallies.values()), "seed": arguments.seed}
    metrics = {
        name: {"seconds": one.seconds, "kills": one.kills, "after_commit": one.kept, "problems": list(one.problems)}
        for name, one in tallies.items()
    }
    write_result(arguments.json, result_name("kills", scheduler().name), settings, {"commands": metrics})
    if any(tally.problems for tally in tallies.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
