"""The result of a tuning run, saved as ``tuning.json`` in its work directory."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.files import parse_json, write_json
from tvm_gnn_cost.measuring.bandwidth import CopySpeed, seconds_to_copy
from tvm_gnn_cost.schedulers.scheduler import Profile
from tvm_gnn_cost.tuning.arguments import check_settings
from tvm_gnn_cost.tuning.library import TunedNetwork
from tvm_gnn_cost.typed_json import from_json

#: Name of the result in the work directory.
FILE_NAME = "tuning.json"

#: The phases of a run in table order, the keys of ``TuneResult.seconds``.
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

#: Range of a measured latency, and maximum of a phase, in seconds.
_LATENCY, _LONGEST = (1e-12, 1e9), 1e12


@dataclass(frozen=True)
class Settings:
    """The arguments of a tuning run.

    Attributes:
        network: Name of the network in the catalogue, or of its file, function or class.
        trials: Number of programs to measure, over all tasks and all runs in this work directory; None for no limit.
            With 0, the cost model chooses the schedules.
        minutes: Minutes to search, over all runs in this work directory; None for no limit.
        cost_model: ``gnn``, ``xgb``, ``random`` or a checkpoint's path.
        seed: The seed of the search.
        target: TVM's target, as JSON.
        batch_size: Number of programs measured at a time.
        population_size: Population size of the evolutionary search.
        scheduler: Name of the scheduler.
        digest: A hash of the network and its weights; empty for a name in the catalogue.
    """

    network: str
    trials: int | None
    minutes: float | None
    cost_model: str
    seed: int
    target: str
    batch_size: int
    population_size: int
    scheduler: str
    digest: str = ""

    def __post_init__(self) -> None:
        """Rejects numbers that are out of range."""
        check_settings(self.trials, self.minutes, self.seed, self.batch_size, self.population_size)

    def covered_by(self, trials: int, seconds: float) -> bool:
        """Whether a number of measured programs or the seconds of a search use up the budget."""
        return (self.trials is not None and trials >= self.trials) or (
            self.minutes is not None and seconds >= 60 * self.minutes
        )


@dataclass
class TaskResult:
    """A task's latencies in seconds.

    Attributes:
        name: TVM's name of the task.
        weight: Number of occurrences of the task in the network.
        untuned: Latency of the default schedule; None if it was not measured (large tasks).
        best: Latency of the fastest measured program; None without a valid program.
        trials: Number of programs measured, including failures.
        failed: Number of programs that failed to build or to run.
        flops: Floating point operations of one run.
        instead_of: The position of the equivalent task that this task replaces in the network if it is faster; None if
            there is none.
        exhausted: Whether all programs of its design space are measured.
        bytes: Bytes of its arguments and results.
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
    bytes: float = 0.0

    def add(self, latencies: Sequence[float]) -> None:
        """Adds the latencies of measured programs in seconds, infinite for a failure."""
        valid = [latency for latency in latencies if math.isfinite(latency)]
        self.trials += len(latencies)
        self.failed += len(latencies) - len(valid)
        self.best = min([*valid, *([] if self.best is None else [self.best])], default=None)

    @property
    def improved(self) -> bool:
        """Whether a measured program is faster than the default schedule."""
        return self.best is not None and (self.untuned is None or self.best < self.untuned)

    @property
    def latency(self) -> float:
        """Seconds with the faster of the best and the default schedule; infinite if neither was measured."""
        return min((seconds for seconds in (self.best, self.untuned) if seconds is not None), default=math.inf)


@dataclass(frozen=True)
class CurvePoint:
    """The state after a batch: programs measured, seconds since the start, and weighted sum of latencies in seconds."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class NetworkTimes:
    """The end-to-end times of the tuned library, the untuned library or a peer.

    Attributes:
        name: ``tuned``, ``untuned``, or the peer's name.
        seconds: Seconds of each repeat; a slow network has fewer repeats.
        difference: The largest difference of an output from the reference, relative to the reference's largest value.
        failure: Why it was not timed; empty if it was.
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
        matrix_product: Floating point operations per second of a large matrix product on this machine; None if it
            failed.
        reference: Name of what the outputs are compared with.
        peers: Whether peers were requested.
    """

    networks: list[NetworkTimes]
    matrix_product: float | None
    reference: str
    peers: bool

    @property
    def tuned(self) -> NetworkTimes:
        """The tuned network."""
        return next(network for network in self.networks if network.name == "tuned")


@dataclass(frozen=True)
class StruckOff:
    """A program that was excluded because its outputs are wrong.

    Attributes:
        task: TVM's name of its task.
        reason: What is wrong, as a predicate.
        trace: Its schedule steps.
    """

    task: str
    reason: str
    trace: str


@dataclass(frozen=True)
class ModelFailures:
    """Batches that the cost model could not score or learn from, over all runs in the work directory.

    Attributes:
        failed: Number of these batches.
        batches: Number of batches that it was given.
        reason: The first error.

    >>> str(ModelFailures(2, 8, "could not score candidates: no memory"))
    'the cost model failed for 2 of 8 batches: could not score candidates: no memory'
    """

    failed: int
    batches: int
    reason: str

    def __str__(self) -> str:
        return f"the cost model failed for {self.failed} of {self.batches} batches: {self.reason}"


@dataclass
class TuneResult:
    """A tuning run.

    ``searched`` is true after a search that was not interrupted: its budget was spent, the design spaces exhausted, or
    no more gain expected, which ``stopped`` says; it is empty otherwise.
    ``library`` is the tuned network's file in ``work_dir``, and ``struck`` lists the programs excluded from it.
    ``model_failures`` is None unless the cost model failed; candidates that it could not score were ranked at random.
    ``copies`` is the speed of this machine's memory, and ``profile`` the time of the library by kernel, each of which
    belongs to the task at the position in ``kernels[name]``; a sequence of kernels has the position of each. They are
    missing for a network that another machine runs.
    """

    settings: Settings
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    tasks: list[TaskResult] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    searched: bool = False
    stopped: str = ""
    model_failures: ModelFailures | None = None
    library: str = ""
    end_to_end: EndToEnd | None = None
    struck: list[StruckOff] = field(default_factory=list)
    copies: list[CopySpeed] = field(default_factory=list)
    profile: Profile | None = None
    kernels: dict[str, list[int]] = field(default_factory=dict)
    work_dir: Path = field(default=Path(), compare=False, repr=False)

    @property
    def trials(self) -> int:
        """Number of programs measured, including failures."""
        return sum(task.trials for task in self.tasks)

    @property
    def latency(self) -> float:
        """The weighted sum of the latencies of the used tasks, in seconds."""
        return sum(task.weight * task.latency for task, used in zip(self.tasks, self.used, strict=True) if used)

    @property
    def rivals(self) -> dict[int, int]:
        """Position of a task -> position of its equivalent task."""
        pairs = [(i, task.instead_of) for i, task in enumerate(self.tasks) if task.instead_of is not None]
        return dict(pairs) | {other: i for i, other in pairs}

    @property
    def used(self) -> list[bool]:
        """Whether the tuned network has each task: of two equivalent tasks, it has the faster.

        If neither was measured, it has the task that replaces the other, which has fewer operations.
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
        """Floating point operations of the network: the weighted sum over all tasks that replace no other."""
        return sum(task.weight * task.flops for task in self.tasks if task.instead_of is None)

    def run(self, inputs: Any) -> Any:
        """Runs the tuned network.

        Args:
            inputs: An array or a torch tensor; several as a tuple in the network's order, or as a dict by name.

        Returns:
            The output as an array; several as a tuple of arrays.

        Raises:
            InputError: the inputs do not fit the network, or the library is missing or of another machine.
            WorkError: the library cannot be loaded.
        """
        return self._network.run(inputs)

    @cached_property
    def _network(self) -> TunedNetwork:
        if not self.library:
            raise InputError(f"{self.work_dir} has no library, tuning is not finished; tune again to resume")
        return TunedNetwork(self.work_dir / self.library)

    def spend(self, phase: str, seconds: float) -> None:
        """Adds seconds to a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def recount_trials(self, latencies: Sequence[Sequence[float]]) -> None:
        """Recomputes the counts from the records, which ``tuning.json`` may lag behind after a kill."""
        for task, seconds in zip(self.tasks, latencies, strict=True):
            task.trials, task.failed, task.best = 0, 0, None
            task.add(seconds)

    def share_of_matrix_product(self, flops: float, seconds: float) -> float | None:
        """Throughput relative to a large matrix product's; None if unknown."""
        product = self.end_to_end.matrix_product if self.end_to_end is not None else None
        return flops / seconds / product if product and flops and math.isfinite(seconds) else None

    def share_of_roofline(self, task: TaskResult) -> float | None:
        """The least time that a task's operations and its bytes need on this machine, relative to its latency.

        The operations take as long as in PyTorch's product of large matrices, or as in the fastest task, since PyTorch
        does not know every processor; the bytes take as long as in a copy (Williams et al. 2009, The roofline model).
        None if unknown.
        """
        own = self.share_of_matrix_product(task.flops, task.latency) or 0.0
        shares = [self.share_of_matrix_product(one.flops, one.latency) or 0.0 for one in self.tasks]
        share = own / max(1.0, *shares)
        if self.copies and math.isfinite(task.latency):
            share = max(share, seconds_to_copy(task.bytes, self.copies) / task.latency)
        return share or None

    def as_json(self) -> dict[str, Any]:
        """The result as JSON, with the throughputs derived from it."""

        def speed(flops: float, seconds: float) -> dict[str, Any]:
            return {
                "gflops": flops / seconds / 1e9 if math.isfinite(seconds) else None,
                "of_matrix_product": self.share_of_matrix_product(flops, seconds),
            }

        data = self._fields()
        for fields, task, used in zip(data["tasks"], self.tasks, self.used, strict=True):
            fields |= speed(task.flops, task.latency) | {"of_roofline": self.share_of_roofline(task), "used": used}
        if self.end_to_end is not None:
            for fields, network in zip(data["end_to_end"]["networks"], self.end_to_end.networks, strict=True):
                fields |= speed(self.flops, network.latency)
        return data

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "work_dir"}

    def save(self, work_dir: Path) -> None:
        """Writes ``work_dir/tuning.json`` atomically."""
        write_json(work_dir / FILE_NAME, self._fields())


def load_result(work_dir: Path) -> TuneResult:
    """Reads ``work_dir/tuning.json``.

    Raises:
        FileNotFoundError: the file is missing.
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
            f"{path} is not a tuning result of this version ({error}); choose another work directory or remove it"
        ) from error
    result.work_dir = work_dir
    return result


def _check(result: TuneResult) -> None:
    """Rejects impossible values.

    Raises:
        InputError: a number is out of range, or the numbers are inconsistent.
    """
    for i, task in enumerate(result.tasks):
        what = f"of task {i}"
        check_range(f"the weight {what}", task.weight, 1, 2**31)
        check_range(f"the operations {what}", task.flops, 0, 1e30)
        check_range(f"the bytes {what}", task.bytes, 0, 1e30)
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
    if result.model_failures is not None:
        check_range("the failures of the cost model", result.model_failures.failed, 1, result.model_failures.batches)
    for phase, seconds in result.seconds.items():
        check_range(f"the seconds of phase '{phase}'", seconds, 0, _LONGEST)
    for copy in result.copies:
        check_range("the size of a copy", copy.size, 1, 2**63)
        check_range("the speed of a copy", copy.speed, 1, 1e30)
    for name, places in result.kernels.items():
        for place in places:
            check_range(f"the task of kernel '{name}'", place, 0, len(result.tasks) - 1)
    if result.profile is not None:
        for kernel in result.profile.kernels:
            check_range(f"the calls of kernel '{kernel.name}'", kernel.calls, 1, 2**31)
            check_range(f"the seconds of kernel '{kernel.name}'", kernel.seconds, 0, _LONGEST)
        for seconds in (result.profile.seconds, result.profile.profiled):
            check_range("the seconds of a profiled run", seconds, *_LATENCY)
    if result.end_to_end is not None:
        check_range("the number of networks", len(result.end_to_end.networks), 1, 100)
        check_range("the speed of a matrix product", result.end_to_end.matrix_product, 1, 1e30)
        for network in result.end_to_end.networks:
            check_range(f"the difference of '{network.name}'", network.difference, 0, math.inf)
            for seconds in network.seconds:
                check_range(f"a latency of '{network.name}'", seconds, *_LATENCY)
        tuned = [network for network in result.end_to_end.networks if network.name == "tuned"]
        if len(tuned) != 1 or not tuned[0].seconds:
            raise InputError("the comparison end to end lacks the tuned network")


def resume(
    settings: Settings, work_dir: Path, records: str, versions: dict[str, str], machine: dict[str, Any]
) -> TuneResult:
    """The result so far in a work directory, or an empty one.

    Args:
        settings: The requested settings.
        work_dir: The directory.
        records: Name of the file of measure records in it.
        versions: Package -> version, for a new result.
        machine: Description of what measures.

    Raises:
        InputError: the directory was tuned with other settings, or has records without a result.
    """
    if not (work_dir / FILE_NAME).exists():
        if (work_dir / records).exists():
            raise InputError(f"{work_dir} has {records} but no {FILE_NAME}; choose another directory")
        return TuneResult(settings, machine, versions, datetime.date.today().isoformat(), work_dir=work_dir)
    result = load_result(work_dir)
    for name in ("scheduler", "network", "cost_model", "seed", "target", "batch_size", "population_size"):
        there, asked = getattr(result.settings, name), getattr(settings, name)
        if there != asked:
            raise InputError(
                f"{work_dir} was tuned with {name.replace('_', ' ')} {there}, not {asked}; "
                "choose another work directory or remove it"
            )
    if result.settings.digest != settings.digest:
        raise InputError(
            f"{work_dir} was tuned with another network '{settings.network}', with other weights or operators; "
            "choose another work directory or remove it"
        )
    if (settings.trials, settings.minutes) != (result.settings.trials, result.settings.minutes):
        result.settings = settings
        result.stopped = ""
        result.searched = settings.covered_by(result.trials, result.searching_seconds)
    return result
