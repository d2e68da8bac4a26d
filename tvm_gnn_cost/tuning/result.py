"""The result of a tuning run, as it is saved in its work directory."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.files import parse_json, write_json
from tvm_gnn_cost.tuning.arguments import check_settings
from tvm_gnn_cost.tuning.library import TunedNetwork
from tvm_gnn_cost.typed_json import from_json

#: Where in the work directory the result is.
FILE_NAME = "tuning.json"

#: The phases of a run, in the order of a table; the keys of ``TuneResult.seconds``.
PHASES = (
    "preparation",
    "initial population",
    "mutation",
    "prediction",
    "model update",
    "building",
    "running",
    "verification",
    "compilation",
    "comparison",
    "other",
)

#: The phases that follow the search.
_AFTER_SEARCHING = ("verification", "compilation", "comparison")

#: What a measured program or network takes, and what a phase does, in seconds.
_LATENCY, _LONGEST = (1e-12, 1e9), 1e12


@dataclass(frozen=True)
class Settings:
    """The arguments of a tuning run.

    Attributes:
        network: The network's name: in the catalogue, or of its file, function or class.
        trials: Programs to measure, over all tasks and all runs in this work directory; 0 to take the cost model's own
            choices; None for no limit.
        minutes: Minutes to search, over all runs in this work directory; None for no limit.
        cost_model: ``gnn``, ``xgb``, ``random`` or a checkpoint's path.
        seed: The seed of the search.
        target: TVM's target, as JSON.
        batch: Programs measured at a time.
        population: Candidates that the evolutionary search keeps.
        scheduler: ``meta-schedule`` or ``auto-scheduler``.
        digest: A hash of the network and its weights; empty for a name in the catalogue.
    """

    network: str
    trials: int | None
    minutes: float | None
    cost_model: str
    seed: int
    target: str
    batch: int
    population: int
    scheduler: str = "meta-schedule"
    digest: str = ""

    def __post_init__(self) -> None:
        """Refuses numbers out of their ranges."""
        check_settings(self.trials, self.minutes, self.seed, self.batch, self.population)

    def covered_by(self, trials: int, seconds: float) -> bool:
        """Whether so many measured programs or so many seconds of search use up the budget."""
        return (self.trials is not None and trials >= self.trials) or (
            self.minutes is not None and seconds >= 60 * self.minutes
        )


@dataclass
class TaskResult:
    """A task's latencies in seconds.

    Attributes:
        name: TVM's name of the task.
        weight: How many times the task occurs in the network.
        untuned: Latency of the default schedule; None if it was not measured, as those of large tasks are not.
        best: Least mean latency of the measured programs; None if none of them was valid.
        trials: Programs measured, failures included.
        failed: Programs that failed to build or to run.
        flops: Floating point operations of one run.
        instead_of: The position of the task that computes the same in another way, and that this one replaces in the
            network if it is faster; None if there is none.
        exhausted: Whether all programs of its design space are measured.
    """

    name: str
    weight: int
    untuned: float | None
    best: float | None = None
    trials: int = 0
    failed: int = 0
    flops: float = 0.0
    instead_of: int | None = None
    exhausted: bool = False

    def add(self, latencies: Sequence[float]) -> None:
        """Counts measured programs: mean latencies in seconds, infinite where one failed."""
        valid = [latency for latency in latencies if math.isfinite(latency)]
        self.trials += len(latencies)
        self.failed += len(latencies) - len(valid)
        self.best = min([*valid, *([] if self.best is None else [self.best])], default=None)

    @property
    def improved(self) -> bool:
        """Whether a measured program beats the default schedule."""
        return self.best is not None and (self.untuned is None or self.best < self.untuned)

    @property
    def latency(self) -> float:
        """Seconds with the schedule that the tuned network uses: the better one; infinite if none was measured."""
        return min((one for one in (self.best, self.untuned) if one is not None), default=math.inf)


@dataclass(frozen=True)
class CurvePoint:
    """The state of the search after a batch: programs measured, seconds since the start, weighted sum of latencies."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class NetworkTimes:
    """The network end to end with one of its contestants: the tuned or the untuned library, or a peer.

    Attributes:
        name: ``tuned``, ``untuned``, or the peer's name.
        seconds: Of a run, one for each repeat; a slow network has fewer repeats.
        difference: The largest difference of an output from the reference, relative to the reference's largest value.
        failure: Why it has no seconds, in one sentence; empty if it has.
    """

    name: str
    seconds: list[float]
    difference: float | None = None
    failure: str = ""

    @property
    def latency(self) -> float:
        """Median of the repeats; infinite if it failed."""
        return median(self.seconds) if self.seconds else math.inf


@dataclass(frozen=True)
class EndToEnd:
    """The network end to end.

    Attributes:
        networks: The tuned network, its peers and the untuned network.
        matrix_product: Floating point operations a second that a large matrix product reaches on this machine; None if
            it failed.
        reference: Whose outputs the others are compared with.
        peers: Whether peers were asked for.
    """

    networks: list[NetworkTimes]
    matrix_product: float | None
    reference: str
    peers: bool

    @property
    def tuned(self) -> NetworkTimes:
        """The tuned network."""
        return next(one for one in self.networks if one.name == "tuned")


@dataclass(frozen=True)
class StruckOff:
    """A program that was to be used, and computes something else.

    Attributes:
        task: TVM's name of its task.
        reason: What is wrong, in a sentence without a subject.
        trace: The steps that make it out of the task's program.
    """

    task: str
    reason: str
    trace: str


@dataclass
class TuneResult:
    """A tuning run.

    ``searched`` tells that a search has ended of itself: its budget was spent, or there was nothing left to measure.
    ``library`` is the tuned network's file in ``work_dir``, and ``struck`` are the programs that were left out of it.
    """

    settings: Settings
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    tasks: list[TaskResult] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    searched: bool = False
    library: str = ""
    end_to_end: EndToEnd | None = None
    struck: list[StruckOff] = field(default_factory=list)
    work_dir: Path = field(default=Path(), compare=False, repr=False)

    @property
    def trials(self) -> int:
        """Programs measured, failures included."""
        return sum(task.trials for task in self.tasks)

    @property
    def latency(self) -> float:
        """The weighted sum of the used tasks' latencies, in seconds."""
        return sum(task.weight * task.latency for task, used in zip(self.tasks, self.used, strict=True) if used)

    @property
    def rivals(self) -> dict[int, int]:
        """The positions of the tasks that compute the same, each with the other's."""
        pairs = [(i, task.instead_of) for i, task in enumerate(self.tasks) if task.instead_of is not None]
        return dict(pairs) | {other: i for i, other in pairs}

    @property
    def used(self) -> list[bool]:
        """Whether the tuned network has each task: of two that compute the same, it has the faster one.

        If neither has been measured, it has the one that computes less, which replaces the other.
        """
        rivals, latencies = self.rivals, [task.latency for task in self.tasks]

        def wins(i: int, task: TaskResult) -> bool:
            if i not in rivals:
                return True
            there = latencies[rivals[i]]
            return latencies[i] < there or (latencies[i] == there and task.instead_of is not None)

        return [wins(i, task) for i, task in enumerate(self.tasks)]

    @property
    def searching_seconds(self) -> float:
        """Seconds of preparation and search, over all runs."""
        return sum(seconds for phase, seconds in self.seconds.items() if phase not in _AFTER_SEARCHING)

    @property
    def finished(self) -> bool:
        """Whether the search has ended and the network was compared end to end."""
        return self.searched and self.end_to_end is not None

    @property
    def flops(self) -> float:
        """Floating point operations of the network: the weighted sum of its tasks', those that replace others apart."""
        return sum(task.weight * task.flops for task in self.tasks if task.instead_of is None)

    def run(self, inputs: Any) -> Any:
        """Runs the tuned network.

        Args:
            inputs: An array or a torch tensor; several as a tuple in the network's order, or as a dict by name.

        Returns:
            The output as an array; several as a tuple of arrays.

        Raises:
            InputError: the inputs are not the network's, or the library is gone or was made for another machine.
            WorkError: the library cannot be loaded.
        """
        return self._network.run(inputs)

    @cached_property
    def _network(self) -> TunedNetwork:
        if not self.library:
            raise InputError(f"{self.work_dir} holds no library, its tuning is not finished; tune again to go on")
        return TunedNetwork(self.work_dir / self.library)

    def spend(self, phase: str, seconds: float) -> None:
        """Adds seconds to a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def recount_trials(self, latencies: Sequence[Sequence[float]]) -> None:
        """Counts each task's programs anew: the records are right after a kill, ``tuning.json`` may lag behind."""
        for task, own in zip(self.tasks, latencies, strict=True):
            task.trials, task.failed, task.best = 0, 0, None
            task.add(own)

    def share_of_matrix_product(self, flops: float, seconds: float) -> float | None:
        """The speed of so many operations in so many seconds over that of a large matrix product; None if unknown."""
        product = self.end_to_end.matrix_product if self.end_to_end is not None else None
        return flops / seconds / product if product and flops and math.isfinite(seconds) else None

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON, with the speeds that follow from it."""

        def speed(flops: float, seconds: float) -> dict[str, Any]:
            return {
                "gflops": flops / seconds / 1e9 if math.isfinite(seconds) else None,
                "of_matrix_product": self.share_of_matrix_product(flops, seconds),
            }

        data = self._fields()
        for fields, task, used in zip(data["tasks"], self.tasks, self.used, strict=True):
            fields |= speed(task.flops, task.latency) | {"used": used}
        if self.end_to_end is not None:
            for fields, network in zip(data["end_to_end"]["networks"], self.end_to_end.networks, strict=True):
                fields |= speed(self.flops, network.latency)
        return data

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "work_dir"}

    def save(self, work_dir: Path) -> None:
        """Writes ``work_dir/tuning.json`` whole or not at all."""
        write_json(work_dir / FILE_NAME, self._fields())


def load_result(work_dir: Path) -> TuneResult:
    """Reads what :meth:`TuneResult.save` wrote.

    Raises:
        FileNotFoundError: there is none.
        InputError: the file is damaged.
    """
    path = work_dir / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: no network was tuned in {work_dir} (tvm-gnn-cost tune)")
    try:
        result = from_json(TuneResult, parse_json(path.read_bytes()))
        _check(result)
    except ValueError as error:
        raise InputError(
            f"{path} is not a tuning result of this version ({error}); choose another work directory or remove that one"
        ) from error
    result.work_dir = work_dir
    return result


def _check(result: TuneResult) -> None:
    """Refuses what no tuning measures.

    Raises:
        InputError: a number is out of range, or the numbers do not fit together.
    """
    for i, task in enumerate(result.tasks):
        what = f"of task {i}"
        check_range(f"the weight {what}", task.weight, 1, 2**31)
        check_range(f"the operations {what}", task.flops, 0, 1e30)
        for latency in (task.untuned, task.best):
            check_range(f"a latency {what}", latency, *_LATENCY)
        check_range(f"the failed programs {what}", task.failed, 0, task.trials)
        check_range(f"the rival {what}", task.instead_of, 0, len(result.tasks) - 1)
        if task.instead_of == i:
            raise InputError(f"task {i} replaces itself")
    for point in result.curve:
        check_range("the trials of a point of the curve", point.trials, 0, math.inf)
        check_range("the seconds of a point of the curve", point.seconds, 0, _LONGEST)
        check_range("the latency of a point of the curve", point.latency, _LATENCY[0], math.inf)
    for phase, seconds in result.seconds.items():
        check_range(f"the seconds of phase '{phase}'", seconds, 0, _LONGEST)
    if result.end_to_end is not None:
        check_range("the number of networks", len(result.end_to_end.networks), 1, 100)
        check_range("the speed of a matrix product", result.end_to_end.matrix_product, 1, 1e30)
        for one in result.end_to_end.networks:
            check_range(f"the difference of '{one.name}'", one.difference, 0, math.inf)
            for seconds in one.seconds:
                check_range(f"a latency of '{one.name}'", seconds, *_LATENCY)
        tuned = [one for one in result.end_to_end.networks if one.name == "tuned"]
        if len(tuned) != 1 or not tuned[0].seconds:
            raise InputError("the comparison end to end lacks the tuned network")


def resume(
    settings: Settings, work_dir: Path, records: str, packages: Sequence[str], machine: dict[str, Any]
) -> TuneResult:
    """The result so far in a work directory, or an empty one.

    Args:
        settings: What is asked for now.
        work_dir: The directory.
        records: The file in it that holds measure records.
        packages: Whose versions belong to the result.
        machine: What measures.

    Raises:
        InputError: the directory belongs to other settings, or holds records without a result.
    """
    if not (work_dir / FILE_NAME).exists():
        if (work_dir / records).exists():
            raise InputError(f"{work_dir} holds {records} but no {FILE_NAME}; choose another directory")
        versions = {name: version(name) for name in packages}
        return TuneResult(settings, machine, versions, datetime.date.today().isoformat(), work_dir=work_dir)
    result = load_result(work_dir)
    for name in ("scheduler", "network", "cost_model", "seed", "target", "batch", "population"):
        there, asked = getattr(result.settings, name), getattr(settings, name)
        if there != asked:
            raise InputError(
                f"{work_dir} was tuned with {name.replace('_', ' ')} {there}, not {asked}; "
                "choose another work directory or remove that one"
            )
    if result.settings.digest != settings.digest:
        raise InputError(
            f"{work_dir} was tuned with another network '{settings.network}', of other weights or operators; "
            "choose another work directory or remove that one"
        )
    if (settings.trials, settings.minutes) != (result.settings.trials, result.settings.minutes):
        result.settings = settings
        result.searched = settings.covered_by(result.trials, result.searching_seconds)
    return result
