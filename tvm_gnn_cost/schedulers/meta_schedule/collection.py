"""Extends a collection of measured programs that is kept as a MetaSchedule database.

The folder holds the database (``database_workload.json``, ``database_tuning_record.json``), which every TVM tool reads,
and beside it what that format has no room for: ``tasks.jsonl`` (each task, its weight in each of its workloads, and how
many programs its design space has if those are few),
``measurements.jsonl`` (a line a record: how its program was sampled, and why it failed if it did) and ``card.json``
(machine, date, settings).
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import RECORDS, WORKLOADS, Problem, parsed_objects
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import append_lines, drop_broken_last_line, keep_first_lines, write_json, write_text
from tvm_gnn_cost.measuring.card import check_same, read_card, with_run
from tvm_gnn_cost.schedulers.database.records import read_database
from tvm_gnn_cost.schedulers.meta_schedule.sampling import Guide, sample_random
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import commit, latency
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Phase, Task

_CARD, _TASKS, _MEASUREMENTS = "card.json", "tasks.jsonl", "measurements.jsonl"


class DatabaseCollection:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Collection`.

    Args:
        folder: The folder; the programs that it already holds stay.
        plan: What to collect.
        target: The target of the programs.
        machine: What measures them.

    Raises:
        InputError: the folder was measured for another target, or its card is damaged.
    """

    #: A damaged record cannot be skipped here: TVM refuses the whole database.
    problems: Sequence[Problem] = ()

    def __init__(self, folder: Path, plan: CollectPlan, target: tvm.target.Target, machine: Mapping[str, Any]) -> None:
        self.folder, self.plan, self.target, self.machine = folder, plan, target, machine
        self.card = read_card(folder / _CARD, {"target": dict, "runs": list}) or {"runs": []}
        if "target" in self.card:
            check_same(folder / _CARD, "the target", self.card["target"], json.loads(str(target)))
        self.counts: dict[tuple[str, str], int] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        #: Task -> its number in the file of workloads, and its records that ran.
        self.numbers: dict[str, int] = {}
        self.records: dict[str, list[ms.database.TuningRecord]] = {}

    def open(self) -> None:
        """Writes the card and reads what the folder holds.

        Raises:
            InputError: a file of the folder is damaged.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._match_lines()
        for entry in self._measurements():
            self._count_one(entry["task"], entry["phase"])
        fields = {"hash": str, "name": str, "weights": dict}
        self.tasks = {entry["hash"]: entry for entry in _entries(self.folder / _TASKS, fields)}
        if (self.folder / RECORDS).exists():
            self._read_records()
        about = {"target": json.loads(str(self.target)), "machine": self.machine, "tvm": tvm.__version__}
        write_json(self.folder / _CARD, {**self.card, **about, "runs": with_run(self.card["runs"], self.plan)})

    def known(self, workload: str) -> list[Task]:
        """The tasks of a workload that were added before, without TVM's objects."""
        entries = [entry for entry in self.tasks.values() if workload in entry["weights"]]
        return [Task(entry["hash"], entry["name"], entry["weights"][workload], None) for entry in entries]

    def add_tasks(self, workloads: Sequence[tuple[str, Sequence[Task]]]) -> None:
        """Writes the tasks of workloads."""
        for name, tasks in workloads:
            for task in tasks:
                entry = self.tasks.setdefault(task.key, {"hash": task.key, "name": task.name, "weights": {}})
                entry["weights"][name] = task.weight
        self._write_tasks()

    def missing(self, task: Task, phase: Phase) -> int:
        """How many programs of that phase the plan still lacks; none that the design space does not have."""
        wanted = self.plan.random if phase == "random" else self.plan.guided
        most: int = self.tasks[task.key].get("exhausted", {}).get(phase, wanted)
        return max(0, min(wanted, most) - self.counts.get((task.key, phase), 0))

    def sample(self, phase: Phase, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        """Up to the wanted number of new candidates of each task; none of a task that has a single program."""
        found = (self._sample_random if phase == "random" else self._sample_guided)(wanted)
        self._write_tasks()
        return found

    def _sample_random(self, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        found = []
        for task in [task for task, count in wanted if count]:
            candidates = sample_random(task, self.target, self.plan.random, self.plan.seed)
            # There is nothing to choose among one.
            candidates = candidates if len(candidates) > 1 else []
            self._note_exhausted(task, "random", len(candidates))
            found.append((task, candidates[self.counts.get((task.key, "random"), 0) :]))
        return found

    def _sample_guided(self, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        guide = Guide({task.key: self.records.get(task.key, []) for task, _ in wanted}, self.target, wanted)
        found = []
        for task, count in wanted:
            if count:
                # TVM cannot replay some traces that move a weight's layout, with an error of any type.
                try:
                    candidates = guide.sample(task, count)
                except Exception:
                    candidates = []
                self._note_exhausted(task, "guided", len(candidates) + self.counts.get((task.key, "guided"), 0))
                found.append((task, candidates))
        return found

    def append(self, phase: Phase, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
        """Adds a record for each candidate, and its line in ``measurements.jsonl``."""
        # TVM writes the lines; it would read all that are there to open the folder's own database.
        with tempfile.TemporaryDirectory() as folder:
            database = ms.database.JSONDatabase(work_dir=folder)
            commit(database, task, candidates, outcomes, self.target)
            (workload,) = (Path(folder) / WORKLOADS).read_text().splitlines()
            lines = (Path(folder) / RECORDS).read_text().splitlines(keepends=True)
            # TVM says nothing of a full disk.
            if len(lines) != len(outcomes) or not lines[-1].endswith("\n"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            records = database.get_all_tuning_records()
        if self.plan.guided:
            self.records.setdefault(task.key, []).extend(one for one in records if latency(one) < float("inf"))
        if task.key not in self.numbers:
            self.numbers[task.key] = len(self.numbers)
            append_lines(self.folder / WORKLOADS, [workload])
        measurements = []
        for outcome in outcomes:
            message = None if outcome.failure is None else outcome.message[-400:]
            measurements.append({"task": task.key, "phase": phase, "failure": outcome.failure, "message": message})
            self._count_one(task.key, phase)
        number = self.numbers[task.key]
        append_lines(self.folder / RECORDS, (f"[{number}{line.removeprefix('[0').rstrip()}" for line in lines))
        append_lines(self.folder / _MEASUREMENTS, map(json.dumps, measurements))

    def _note_exhausted(self, task: Task, phase: Phase, most: int) -> None:
        """Remembers that the design space has no more programs, if it has fewer than the plan asks for."""
        if most < (self.plan.random if phase == "random" else self.plan.guided):
            self.tasks[task.key].setdefault("exhausted", {})[phase] = most

    def _write_tasks(self) -> None:
        write_text(self.folder / _TASKS, "".join(json.dumps(entry) + "\n" for entry in self.tasks.values()))

    def _read_records(self) -> None:
        """Reads the tasks' numbers, and the records of tasks that still lack guided programs."""
        database = read_database(self.folder)
        if database.problems:
            raise InputError(f"{database.problems[0]}; the database is damaged, choose another folder")
        self.numbers = {one.hash: number for number, one in enumerate(database.workloads) if one is not None}
        for record in database.records:
            key = database.workload(record).hash
            if not record.failure and self.counts.get((key, "guided"), 0) < self.plan.guided:
                candidate = database.replay(record)
                workload = ms.database.Workload(database.workload(record).mod)
                self.records.setdefault(key, []).append(
                    ms.database.TuningRecord(
                        candidate.sch.trace, workload, record.run_secs, self.target, candidate.args_info
                    )
                )

    def count(self) -> tuple[int, int]:
        """Number of programs in the folder, and of those among them that failed."""
        failed = [entry["failure"] is not None for entry in self._measurements()]
        return len(failed), sum(failed)

    def _match_lines(self) -> None:
        """Makes the two files with a line a record equally long; a kill between two writes leaves one longer.

        A kill after the first of them leaves a workload without a file of records.

        Raises:
            InputError: the records are not a collection's, which would lose them.
        """
        drop_broken_last_line(self.folder / WORKLOADS)
        if (self.folder / WORKLOADS).exists():
            (self.folder / RECORDS).touch()
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
