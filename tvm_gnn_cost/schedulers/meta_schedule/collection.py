"""Extends a collection of measured programs that is kept as a MetaSchedule database.

The folder has the database (``database_workload.json``, ``database_tuning_record.json``), which every TVM tool reads,
and what that format lacks: ``tasks.jsonl`` (each task with its weight in each workload, and the size of a small design
space), ``measurements.jsonl`` (a line per record: how the program was sampled, and why it failed) and ``card.json``
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
from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule.sampling import Guide, TrainedGuide, sample_random
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import commit, latency
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Phase, Task

_CARD, _TASKS, _MEASUREMENTS = "card.json", "tasks.jsonl", "measurements.jsonl"


class DatabaseCollection:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Collection`.

    Args:
        folder: The folder; its programs are kept.
        plan: What to collect.
        target: The target of the programs.
        machine: What measures them.

    Raises:
        InputError: the folder was measured for another target or design space, its card is damaged, or the guide of
            the plan is not a checkpoint of MetaSchedule.
    """

    #: A damaged record cannot be skipped, because TVM rejects the whole database.
    problems: Sequence[Problem] = ()

    def __init__(self, folder: Path, plan: CollectPlan, target: tvm.target.Target, machine: Mapping[str, Any]) -> None:
        self.folder, self.plan, self.target, self.machine = folder, plan, target, machine
        self.trained = None if plan.guide == "xgb" else GNNCostModel(plan.guide)
        self.card = read_card(folder / _CARD, {"target": dict, "runs": list}) or {"runs": []}
        if "target" in self.card:
            check_same(folder / _CARD, "the target", self.card["target"], json.loads(str(target)))
            # Collections had a single design space before.
            check_same(folder / _CARD, "the design space", self.card.get("space", "package"), plan.space)
        self.counts: dict[tuple[str, str], int] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        #: Task -> its number in the file of workloads, and task -> its valid records.
        self.numbers: dict[str, int] = {}
        self.records: dict[str, list[ms.database.TuningRecord]] = {}

    def open(self) -> None:
        """Writes the card and reads the folder.

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
        about["space"] = self.plan.space
        write_json(self.folder / _CARD, {**self.card, **about, "runs": with_run(self.card["runs"], self.plan)})

    def known(self, workload: str) -> list[Task]:
        """The tasks of a workload that the folder lists, without TVM's objects."""
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
        """Number of programs of a phase that are still to be measured, up to the size of the design space."""
        wanted = self.plan.random if phase == "random" else self.plan.guided
        exhausted: dict[str, int] = self.tasks[task.key].get("exhausted", {})
        # Nothing is near the fastest of a single program.
        most = 0 if exhausted.get("random") == 0 else exhausted.get(phase, wanted)
        return max(0, min(wanted, most) - self.counts.get((task.key, phase), 0))

    def sample(self, phase: Phase, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        """Up to the wanted number of new candidates of each task; none for a task with a single program."""
        sampled = (self._sample_random if phase == "random" else self._sample_guided)(wanted)
        self._write_tasks()
        return sampled

    def _sample_random(self, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        sampled = []
        for task in [task for task, count in wanted if count]:
            candidates = sample_random(task, self.target, self.plan.random, self.plan.seed, self.plan.space)
            # A single program needs no ranking.
            candidates = candidates if len(candidates) > 1 else []
            self._note_exhausted(task, "random", len(candidates))
            sampled.append((task, candidates[self.counts.get((task.key, "random"), 0) :]))
        return sampled

    def _sample_guided(self, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        records = {task.key: self.records.get(task.key, []) for task, _ in wanted}
        guide: Guide | TrainedGuide
        if self.trained is None:
            guide = Guide(records, self.target, wanted, self.plan.space)
        else:
            guide = TrainedGuide(records, self.target, self.trained, self.plan.space)
        sampled = []
        for task, count in wanted:
            if count:
                # TVM cannot replay some traces that change a weight's layout; its errors have any type.
                try:
                    candidates = guide.sample(task, count)
                except Exception:
                    candidates = []
                self._note_exhausted(task, "guided", len(candidates) + self.counts.get((task.key, "guided"), 0))
                sampled.append((task, candidates))
        return sampled

    def append(self, phase: Phase, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
        """Adds a record for each candidate, and its line in ``measurements.jsonl``."""
        # TVM writes the lines, into an empty database: opening the folder's would read all its lines.
        with tempfile.TemporaryDirectory() as folder:
            database = ms.database.JSONDatabase(work_dir=folder)
            commit(database, task, candidates, outcomes, self.target)
            (workload,) = (Path(folder) / WORKLOADS).read_text().splitlines()
            lines = (Path(folder) / RECORDS).read_text().splitlines(keepends=True)
            # TVM does not report a full disk.
            if len(lines) != len(outcomes) or not lines[-1].endswith("\n"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            records = database.get_all_tuning_records()
        if self.plan.guided:
            self.records.setdefault(task.key, []).extend(record for record in records if latency(record) < float("inf"))
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
        """Notes the size of a design space that is smaller than planned."""
        if most < (self.plan.random if phase == "random" else self.plan.guided):
            self.tasks[task.key].setdefault("exhausted", {})[phase] = most

    def _write_tasks(self) -> None:
        write_text(self.folder / _TASKS, "".join(json.dumps(entry) + "\n" for entry in self.tasks.values()))

    def _read_records(self) -> None:
        """Reads the tasks' numbers, and the records of tasks with missing guided programs."""
        database = read_database(self.folder)
        if database.problems:
            raise InputError(f"{database.problems[0]}; the database is damaged, choose another folder")
        self.numbers = {
            workload.hash: number for number, workload in enumerate(database.workloads) if workload is not None
        }
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
        """Number of programs in the folder, and number of failed programs."""
        failed = [entry["failure"] is not None for entry in self._measurements()]
        return len(failed), sum(failed)

    def _match_lines(self) -> None:
        """Truncates the two files with a line per record to the same length, which differs after a kill.

        A kill after the first write leaves a workload without a file of records.

        Raises:
            InputError: the folder is not a collection, and would lose its records.
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
            raise InputError(f"{files[0]} is not of a collection, {_MEASUREMENTS} is missing; choose another folder")
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
        path: The file, with an object per line.
        fields: Name -> type of the required fields.

    Raises:
        InputError: a line is not such an object.
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
