"""Extends a collection of measured programs that is kept in TenSet's layout (``datasets/tenset.py``).

``<hardware>.card.json`` beside it says on what machine, when and how the records were measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput
from tvm.auto_scheduler.measure_record import load_record_from_string
from tvm.target import Target

from tvm_gnn_cost.datasets.records import Problem, last_line
from tvm_gnn_cost.datasets.tenset import parse_record, record_file, record_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import drop_broken_last_line, write_json
from tvm_gnn_cost.measuring.card import check_same, read_card, with_run
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import sample_states, steps_of
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import save_tasks
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import append_records
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Phase, Task

#: The steps of a program -> its measure input and result.
_Measured = dict[str, tuple[Any, Any]]


class TensetCollection:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Collection`.

    Args:
        folder: The folder; its tasks and records are kept.
        plan: What to collect.
        hardware: The name of this machine's folder in ``measure_records``.
        target: The target of the programs, with this name, which identifies their records.
        machine: What measures them.

    Raises:
        InputError: ``hardware`` cannot name a folder, its records are of another or an unknown machine, or the guide
            of the plan is not a checkpoint of ``auto_scheduler``.
    """

    def __init__(
        self, folder: Path, plan: CollectPlan, hardware: str, target: Target, machine: Mapping[str, Any]
    ) -> None:
        self.folder, self.plan, self.target = folder, plan, target
        self.card_path = folder / f"{hardware}.card.json"
        self.records = folder / "measure_records" / hardware
        self.problems: list[Problem] = []
        self.measured: dict[str, _Measured] = {}
        self.trained = None if plan.guide == "xgb" else GNNCostModel(plan.guide)
        card = read_card(self.card_path, {"machine": dict, "target": str, "runs": list})
        if card is not None:
            check_same(self.card_path, "the processor", card["machine"].get("processor"), machine["processor"])
            check_same(self.card_path, "the target", card["target"], str(target))
        elif self.records.is_dir() and any(self.records.iterdir()):
            raise InputError(
                f"{self.records} has records, but {self.card_path.name} with their machine is missing; latencies of "
                "different machines are not comparable, choose another hardware name"
            )
        self.card = {"machine": machine, "target": str(target), "runs": with_run(card["runs"] if card else [], plan)}

    def open(self) -> None:
        """Writes the card."""
        self.records.mkdir(parents=True, exist_ok=True)
        write_json(self.card_path, self.card)

    def known(self, workload: str) -> list[Task]:  # noqa: ARG002
        """Empty, because TenSet's layout does not record the operators of tasks."""
        return []

    def add_tasks(self, workloads: Sequence[tuple[str, Sequence[Task]]]) -> None:
        """Writes the pickles of the tasks, and reads their records in the folder.

        Raises:
            InputError: a pickle of the folder is rejected or damaged.
        """
        save_tasks(self.folder, workloads)
        for _, tasks in workloads:
            for task in tasks:
                if task.key not in self.measured:
                    drop_broken_last_line(self._file(task))
                    self.measured[task.key], problems = self._read(task)
                    self.problems += problems

    def missing(self, task: Task, phase: Phase) -> int:
        """Number of programs that are still to be measured; the oldest records count as random samples."""
        wanted = self.plan.random + (self.plan.guided if phase == "guided" else 0)
        return max(0, wanted - len(self.measured[task.key]))

    def sample(self, phase: Phase, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        """Up to the wanted number of new states of each task."""
        return [(task, self._sample(phase, task, count)) for task, count in wanted if count]

    def append(self, phase: Phase, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome]) -> None:  # noqa: ARG002
        """Adds a record for each state; TenSet's layout does not store the phase."""
        inputs = [MeasureInput(task.workload, state) for state in candidates]
        append_records(self._file(task), inputs, [outcome.result for outcome in outcomes])
        # TVM writes seconds with six digits. Reading them makes a resumed collection sample the same programs.
        self.measured[task.key], _ = self._read(task)

    def count(self) -> tuple[int, int]:
        """Number of recorded programs of the plan's tasks, and number of failed programs."""
        results = [result for of_task in self.measured.values() for _, result in of_task.values()]
        return len(results), sum(result.error_no != 0 for result in results)

    def _sample(self, phase: Phase, task: Task, count: int) -> list[Any]:
        """New states of a task: random, or the best of the guide."""
        there = self.measured[task.key]
        guide = None
        if phase == "guided" and self.trained is not None:
            guide = self.trained
        elif phase == "guided" and any(result.error_no == 0 for _, result in there.values()):
            guide = auto_scheduler.XGBModel(num_warmup_sample=1, verbose_eval=0, seed=self.plan.seed + 1)
            guide.update(*zip(*there.values(), strict=True))
        return sample_states(task.workload, count, self.plan.seed + len(there), guide, list(there))

    def _file(self, task: Task) -> Path:
        return record_file(self.records, task.key, str(self.target.kind))

    def _read(self, task: Task) -> tuple[_Measured, list[Problem]]:
        """The records of a task, and the unreadable lines of its file."""
        path = self._file(task)
        measurements: _Measured = {}
        problems: list[Problem] = []
        for line in record_lines(path) if path.exists() else ():
            try:
                parse_record(line)
                measured, result = load_record_from_string(line.text)
                measurements[steps_of(task.workload, measured.state)] = (measured, result)
            # TVM's readers raise errors of any type.
            except Exception as error:
                problems.append(Problem(line.file, line.line, last_line(error)))
        return measurements, problems


def check_hardware_name(hardware: str) -> None:
    """Checks that a name can be the name of a folder.

    Raises:
        InputError: it cannot.
    """
    if not re.fullmatch(r"[\w.-]+", hardware) or hardware in (".", ".."):
        raise InputError(f"hardware '{hardware}' cannot name a folder; use only letters, digits and . _ -")
