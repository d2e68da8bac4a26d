"""Collects measured programs: samples the design spaces of many tasks, and builds and runs the samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_gnn_cost.datasets.records import unpack
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.installed import require_compiler
from tvm_gnn_cost.measuring.machine import describe_measuring, tracker_at
from tvm_gnn_cost.progress import Note, ProgramsMeasured, Progress, TaskFinished, TasksFound, ignore
from tvm_gnn_cost.schedulers import scheduler as scheduler_named
from tvm_gnn_cost.schedulers.machines import count_machines
from tvm_gnn_cost.schedulers.scheduler import (
    SAMPLING_PHASES,
    Collection,
    CollectPlan,
    MeasureSettings,
    Scheduler,
    Space,
    Task,
)

#: Files of collections in either format, which may be compressed until lines are added to them. The cards are unpacked
#: first: if they are of another machine, the rest stays as it is.
_CARDS = ("*card.json",)
_FILES = ("*.json", "*.jsonl", "network_info/*.pkl", "measure_records/*/*.json")

#: Workloads whose tasks are interleaved, and tasks whose programs are built together so that no core idles between
#: tasks.
_WORKLOADS_AT_ONCE = _TASKS_AT_ONCE = 8


@dataclass(frozen=True)
class CollectResult:
    """What a collection holds, and what a call of :func:`collect` added.

    Attributes:
        folder: The collection.
        tasks: Number of tasks of the requested workloads.
        programs: Number of programs in the folder.
        failed: Number of programs in the folder that failed to build or to run.
        measured_now: Number of programs that this call measured and that ran.
        failed_now: Number of programs that this call measured and that failed.
        left_out: Why workloads that could not be imported were left out, a sentence for each.
    """

    folder: Path
    tasks: int
    programs: int
    failed: int
    measured_now: int
    failed_now: int
    left_out: tuple[str, ...] = ()


def collect(
    workloads: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    random: int = 12,
    guided: int = 8,
    seed: int = 0,
    repeats: int = 4,
    turns: int = 4,
    patience_s: float = 20.0,
    space: Space = "package",
    guide: str = "xgb",
    scheduler: str | None = None,
    hardware: str = "cpu",
    tracker: str = "",
    key: str = "",
    target: str = "",
    progress: Progress = ignore,
) -> CollectResult:
    """Measures the programs that are missing in ``folder``; the same call resumes after an interruption.

    A program that fails to build or to run is recorded as failed, and a network that cannot be imported is left out.

    Args:
        workloads: Networks as :func:`~tvm_gnn_cost.tune` takes them by name (``resnet-18``, ``my.onnx``,
            ``package.module:function``), operators (``dense/0``), or the groups ``training``, ``held-out`` and
            ``layers``.
        folder: The collection: a MetaSchedule database, or a folder in TenSet's layout. Compressed files in it are
            unpacked.
        random: Number of random samples of each task's design space.
        guided: Number of samples of each task that a cost model picks.
        seed: Seed of the samples.
        repeats: Number of measurements of each program, each at another place in memory.
        turns: Number of interleaved runs of each program of a task in a repeat.
        patience_s: Seconds for which a batch is measured again while other processes keep the machine busy.
        space: ``package`` for the tasks, the design space and the code generator that :func:`~tvm_gnn_cost.tune` uses;
            ``tvm`` for those of TVM's own ``tune_relax`` and ``tune_tir``. ``auto-scheduler`` has only the first.
        guide: The cost model that picks the guided samples. ``xgb`` learns from the random ones, and picks near the
            fastest. ``gnn``, the checkpoint that ships, or the path of another one picks what it ranks best after an
            evolutionary search. A model overestimates some of these, which its next training should contain.
        scheduler: ``meta-schedule`` or ``auto-scheduler``; by default the one that the installed TVM has.
        hardware: For ``auto-scheduler``, the name of this machine's folder of measure records.
        tracker: ``HOST:PORT`` of TVM's RPC tracker, whose machines run the programs; they are built on this machine.
            By default this machine runs them.
        key: The key of these machines, which should be identical.
        target: TVM's target of these machines, by default this machine's: JSON or a tag for ``meta-schedule``, such as
            ``{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4}``; for ``auto-scheduler`` a string such
            as ``llvm -mtriple=aarch64-linux-gnu -num-cores=4``.
        progress: Receives events.

    Raises:
        InputError: a workload or the target is unknown, the tracker's address is invalid, the guide is not a
            checkpoint, or the folder holds measurements of another machine or design space.
        InputError, WorkError: no workload can be imported.
        WorkError: the tracker does not answer, or has no machine with this key.
        WrongTVMError: the installed TVM does not have the scheduler.

    >>> collected = collect(["softmax/0"], work / "records", random=3, guided=0, turns=1, patience_s=0)
    >>> collected.tasks, collected.programs
    (1, 3)
    """
    chosen = scheduler_named(scheduler)
    plan = CollectPlan(chosen.expand(workloads), random, guided, seed, repeats, turns, space, guide)
    chosen.check_space(space)
    if not plan.workloads:
        raise InputError("no workload to collect; name a network, an operator or a group")
    check_folder(Path(folder))
    machines, built_for = tracker_at(tracker, key), chosen.target(hardware, target)
    if machines is not None:
        count_machines(machines)  # fails before networks are loaded if the tracker does not answer
    else:
        require_compiler()
    for name in plan.workloads:
        chosen.check_workload(name)
    unpack(Path(folder), _CARDS)
    collection = chosen.collection(Path(folder), plan, hardware, built_for, describe_measuring(machines))
    unpack(Path(folder), _FILES)
    settings = MeasureSettings(repeats, turns, patience_s=patience_s, tracker=machines, space=space)
    collection.open()
    filler = _Filler(chosen, built_for, plan, settings, collection, progress)
    for start in range(0, len(plan.workloads), _WORKLOADS_AT_ONCE):
        filler.fill(plan.workloads[start : start + _WORKLOADS_AT_ONCE])
    if len(filler.left_out) == len(plan.workloads):
        raise filler.left_out[-1]
    counts = collection.count()
    left_out = tuple(map(str, filler.left_out))
    return CollectResult(Path(folder), len(filler.seen), *counts, filler.measured, filler.failed, left_out)


def _interleaved(groups: Sequence[Sequence[Task]]) -> list[Task]:
    """The tasks of all workloads, interleaved, so that an interrupted collection has programs of every workload."""
    longest = max(map(len, groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


class _Filler:
    """Measures the missing programs of a collection.

    Attributes:
        seen: Keys of all tasks.
        measured: Number of programs that were measured and ran.
        failed: Number of programs that failed.
        left_out: Why workloads were left out, an error for each.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        target: object,
        plan: CollectPlan,
        settings: MeasureSettings,
        collection: Collection,
        progress: Progress,
    ) -> None:
        self.scheduler, self.target, self.plan = scheduler, target, plan
        self.collection, self.progress = collection, progress
        self.settings = settings
        self.seen: set[str] = set()
        self.measured = self.failed = 0
        self.left_out: list[InputError | WorkError] = []

    def fill(self, workloads: Sequence[str]) -> None:
        """Measures the missing programs of the tasks of these workloads."""
        groups = [(name, self._tasks(name)) for name in workloads]
        unknown = [(name, tasks) for name, tasks in groups if any(task.workload is not None for task in tasks)]
        if unknown:
            noted = len(self.collection.problems)
            self.collection.add_tasks(unknown)
            for problem in self.collection.problems[noted:]:
                self.progress(Note(f"left out: {problem}"))
        waiting = []
        for task in _interleaved([self._new(name, tasks) for name, tasks in groups]):
            if task.workload is not None and self._is_incomplete(task):
                waiting.append(task)
            else:
                self.progress(TaskFinished(task.name))
        for start in range(0, len(waiting), _TASKS_AT_ONCE):
            self._measure(waiting[start : start + _TASKS_AT_ONCE])

    def _is_incomplete(self, task: Task) -> bool:
        return any(self.collection.missing(task, phase) for phase in SAMPLING_PHASES)

    def _tasks(self, workload: str) -> list[Task]:
        """The tasks of a workload; they are not extracted again if the folder has all their programs."""
        known = self.collection.known(workload)
        if known and not any(self._is_incomplete(task) for task in known):
            return known
        try:
            return self.scheduler.tasks_of_workload(workload, self.target, self.plan.space)
        except (InputError, WorkError) as error:
            self.left_out.append(error)
            self.progress(Note(f"left out: {error}"))
            return []

    def _new(self, workload: str, tasks: Sequence[Task]) -> list[Task]:
        """The tasks that no earlier workload has."""
        new = [task for task in tasks if task.key not in self.seen]
        self.seen.update(task.key for task in tasks)
        self.progress(TasksFound(workload, len(new)))
        return new

    def _measure(self, tasks: Sequence[Task]) -> None:
        collection = self.collection
        for phase in SAMPLING_PHASES:
            wanted = [(task, collection.missing(task, phase)) for task in tasks]
            sampled = collection.sample(phase, wanted) if any(count for _, count in wanted) else []
            # A small design space may be exhausted.
            groups = [group for group in sampled if group[1]]
            candidates = {task.key: programs for task, programs in groups}
            for task, outcomes in self.scheduler.measure(groups, self.target, self.settings) if groups else ():
                collection.append(phase, task, candidates[task.key], outcomes)
                bad = sum(outcome.failure is not None for outcome in outcomes)
                self.measured, self.failed = self.measured + len(outcomes) - bad, self.failed + bad
                self.progress(ProgramsMeasured(task.name, len(outcomes) - bad, bad))
        for task in tasks:
            self.progress(TaskFinished(task.name))
