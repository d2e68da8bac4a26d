"""Extends a collection of measured programs that is kept as a MetaSchedule database.

The folder holds the database (``database_workload.json``, ``database_tuning_record.json``), which every TVM tool reads,
and beside it what that format has no room for: ``tasks.jsonl`` (each task, and its weight in each of its workloads),
``measurements.jsonl`` (a line a record: how its program was sampled, and why it failed if it did) and ``card.json``
(machine, date, settings).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm

from tvm_gnn_cost.datasets.json_lines import parsed_objects
from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import drop_broken_last_line, keep_first_lines, write_json, write_text
from tvm_gnn_cost.measuring.card import check_same, read_card, today
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.schedulers.meta_schedule.records import RECORDS
from tvm_gnn_cost.schedulers.meta_schedule.sampling import Guide, sample_random
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import commit, open_database
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Phase, Task

_CARD, _TASKS, _MEASUREMENTS = "card.json", "tasks.jsonl", "measurements.jsonl"


class DatabaseCollection:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Collection`.

    Args:
        folder: The folder; the programs that it already holds stay.
        plan: What to collect.
        target: The target of this machine.

    Raises:
        InputError: the folder was measured for another target, or its card is damaged.
    """

    #: A damaged record cannot be skipped here: TVM refuses the whole database.
    problems: Sequence[Problem] = ()

    def __init__(self, folder: Path, plan: CollectPlan, target: tvm.target.Target) -> None:
        self.folder, self.plan, self.target = folder, plan, target
        self.card = read_card(folder / _CARD, {"target": dict, "runs": list}) or {"runs": []}
        if "target" in self.card:
            check_same(folder / _CARD, "the target", self.card["target"], json.loads(str(target)))

    def add_tasks(self, workloads: Sequence[tuple[str, Sequence[Task]]]) -> None:
        """Writes the tasks and the card, and opens the database.

        Raises:
            InputError: a file of the folder is damaged.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._match_lines()
        self.database = open_database(self.folder)
        self.counts: dict[tuple[str, str], int] = {}
        for entry in self._measurements():
            self._count_one(entry["task"], entry["phase"])
        path = self.folder / _TASKS
        known = {entry["hash"]: entry for entry in _entries(path, {"hash": str, "weights": dict})}
        for name, tasks in workloads:
            for task in tasks:
                entry = known.setdefault(task.key, {"hash": task.key, "name": task.name, "weights": {}})
                entry["weights"][name] = task.weight
        write_text(path, "".join(json.dumps(entry) + "\n" for entry in known.values()))
        # As the card gives it back, to be found in there.
        run = json.loads(json.dumps({"date": today(), **asdict(self.plan)}))
        runs = self.card["runs"] + ([] if run in self.card["runs"] else [run])
        about = {"target": json.loads(str(self.target)), "machine": describe_machine(), "tvm": tvm.__version__}
        write_json(self.folder / _CARD, {**self.card, **about, "runs": runs})

    def missing(self, task: Task, phase: Phase) -> int:
        """How many programs of that phase the plan still lacks."""
        wanted = self.plan.random if phase == "random" else self.plan.guided
        return max(0, wanted - self.counts.get((task.key, phase), 0))

    def sample(self, phase: Phase, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        """Up to the wanted number of new candidates of each task."""
        if phase == "random":
            return [(task, sample_random(task, self.target, count, self.plan.seed)) for task, count in wanted if count]
        guide = Guide(self.database, self.target, [task for task, _ in wanted])
        return [(task, guide.sample(task, count)) for task, count in wanted if count]

    def append(self, phase: Phase, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
        """Adds a record for each candidate, and its line in ``measurements.jsonl``."""
        for candidate, outcome in zip(candidates, outcomes, strict=True):
            commit(self.database, task, [candidate], [outcome], self.target)
            message = None if outcome.failure is None else outcome.message[-400:]
            line = {"task": task.key, "phase": phase, "failure": outcome.failure, "message": message}
            with (self.folder / _MEASUREMENTS).open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._count_one(task.key, phase)

    def count(self) -> tuple[int, int]:
        """Number of programs in the folder, and of those among them that failed."""
        failed = [entry["failure"] is not None for entry in self._measurements()]
        return len(failed), sum(failed)

    def _match_lines(self) -> None:
        """Makes the two files with a line a record equally long; a kill between two writes leaves one longer.

        Raises:
            InputError: the records are not a collection's, which would lose them.
        """
        files = [self.folder / RECORDS, self.folder / _MEASUREMENTS]
        lengths = []
        for file in files:
            drop_broken_last_line(file)
            lengths.append(len(file.read_bytes().splitlines()) if file.exists() else 0)
        if lengths[0] > 1 and not files[1].exists():
            raise InputError(
                f"{files[0]} is no collection's, it has no {_MEASUREMENTS} beside it; choose another folder"
            )
        for file, length in zip(files, lengths, strict=True):
            if length > min(lengths):
                keep_first_lines(file, min(lengths))

    def _measurements(self) -> list[dict[str, Any]]:
        return _entries(self.folder / _MEASUREMENTS, {"task": str, "phase": str, "failure": str | None})

    def _count_one(self, task: str, phase: str) -> None:
        self.counts[task, phase] = self.counts.get((task, phase), 0) + 1


def _entries(path: Path, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON objects of a file that may be missing.

    Args:
        path: The file, with one object a line.
        fields: Names and types of the fields that each must have.

    Raises:
        InputError: a line is no such object.
    """
    problems: list[Problem] = []
    entries = []
    for line, entry in parsed_objects(path if path.exists() else None, problems):
        entries.append(entry)
        wrong = [name for name, kind in fields.items() if not isinstance(entry.get(name, ...), kind)]
        if wrong:
            problems.append(Problem(path, line, f"'{wrong[0]}' is missing or wrong"))
    if problems:
        raise InputError(f"{problems[0]}; choose another folder")
    return entries
