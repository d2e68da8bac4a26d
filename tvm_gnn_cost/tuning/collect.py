"""Collects measured programs: samples the design spaces of many tasks, builds and runs the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Note, ProgramsMeasured, Progress, TaskFinished, TasksFound, ignore
from tvm_gnn_cost.schedulers import scheduler as scheduler_named
from tvm_gnn_cost.schedulers.scheduler import (
    SAMPLING_PHASES,
    Collection,
    CollectPlan,
    MeasureSettings,
    Scheduler,
    Task,
)


@dataclass(frozen=True)
class Collected:
    """What a collection holds, and what one call added.

    Attributes:
        folder: The collection.
        tasks: Tasks of the workloads that were asked for.
        programs: Programs in the folder.
        failed: Those of them that failed to build or to run.
        measured_now: Programs that this call measured and that ran.
        failed_now: Programs that this call measured and that failed.
    """

    folder: Path
    tasks: int
    programs: int
    failed: int
    measured_now: int
    failed_now: int


def collect(
    workloads: Sequence[str],
    folder: Path | str,
    *,
    random: int = 12,
    guided: int = 8,
    seed: int = 0,
    repeats: int = 3,
    min_repeat_ms: int = 30,
    scheduler: str | None = None,
    hardware: str = "cpu",
    progress: Progress = ignore,
) -> Collected:
    """Measures the programs that ``folder`` still lacks; call it again after an interruption to go on.

    A program that fails to build or to run is recorded as failed.

    Args:
        workloads: Names of networks and operators (``resnet-18``, ``dense/0``), or the groups ``training`` and
            ``held-out``.
        folder: Where the collection is kept: a MetaSchedule database, or a folder in TenSet's layout.
        random: Random samples of the design space, for each task.
        guided: Samples near the fastest ones measured so far, for each task.
        seed: Of the samples.
        repeats: Times that each program is measured.
        min_repeat_ms: The least duration of one repeat; a short program runs many times within it, one of
            MetaSchedule's 5 times at most.
        scheduler: ``meta-schedule`` or ``auto-scheduler``; by default the one that the installed TVM has.
        hardware: For ``auto-scheduler``, the name of this machine's folder of measure records.
        progress: Receives events.

    Raises:
        InputError: a workload is unknown, or the folder holds measurements of another machine.
        WrongTVM: the installed TVM does not have the scheduler.
    """
    chosen = scheduler_named(scheduler)
    plan = CollectPlan(chosen.expand(workloads), random, guided, seed, repeats, min_repeat_ms)
    if not plan.workloads:
        raise InputError("no workload to collect; name a network, an operator or a group")
    collection = chosen.collection(Path(folder), plan, hardware)
    found: list[tuple[str, list[Task]]] = []
    known: set[str] = set()
    new: list[list[Task]] = []
    target = chosen.target(hardware)
    for name in plan.workloads:
        tasks = chosen.tasks_of_workload(name, target)
        new.append([task for task in tasks if task.key not in known])
        known.update(task.key for task in tasks)
        found.append((name, tasks))
        progress(TasksFound(name, len(new[-1])))
    # Nothing is written before all workloads are known to be right.
    collection.add_tasks(found)
    for problem in collection.problems:
        progress(Note(f"left out: {problem}"))
    measured, failed = _fill(chosen, target, plan, collection, _in_turn(new), progress)
    return Collected(Path(folder), len(known), *collection.count(), measured, failed)


def _in_turn(groups: Sequence[Sequence[Task]]) -> list[Task]:
    """The tasks of all workloads in turn, so that a collection that is cut short has some of everything."""
    longest = max(map(len, groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def _fill(
    scheduler: Scheduler,
    target: object,
    plan: CollectPlan,
    collection: Collection,
    tasks: Sequence[Task],
    progress: Progress,
) -> tuple[int, int]:
    """Measures what the tasks lack; returns how many programs ran and how many failed."""
    settings = MeasureSettings(plan.repeats, plan.min_repeat_ms)
    waiting = []
    for task in tasks:
        if any(collection.missing(task, phase) for phase in SAMPLING_PHASES):
            waiting.append(task)
        else:
            progress(TaskFinished(task.name))
    measured = failed = 0
    for start in range(0, len(waiting), plan.tasks_at_once):
        chunk = waiting[start : start + plan.tasks_at_once]
        for phase in SAMPLING_PHASES:
            wanted = [(task, collection.missing(task, phase)) for task in chunk]
            sampled = collection.sample(phase, wanted) if any(count for _, count in wanted) else []
            # A small design space may have no more different programs.
            groups = [group for group in sampled if group[1]]
            candidates = {task.key: some for task, some in groups}
            for task, outcomes in scheduler.measure(groups, target, settings) if groups else ():
                collection.append(phase, task, candidates[task.key], outcomes)
                bad = sum(outcome.failure is not None for outcome in outcomes)
                measured, failed = measured + len(outcomes) - bad, failed + bad
                progress(ProgramsMeasured(task.name, len(outcomes) - bad, bad))
        for task in chunk:
            progress(TaskFinished(task.name))
    return measured, failed
