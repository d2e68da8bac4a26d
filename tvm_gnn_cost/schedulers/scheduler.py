"""What the rest of the package needs of one of TVM's auto-schedulers, by who needs it; imports no TVM.

``meta_schedule/`` and ``auto_scheduler/`` implement :class:`Scheduler`. TVM's own objects (a target, a workload, a
candidate, a cost model) are ``Any`` here: callers only pass them back to the scheduler.

``tests/schedulers/test_scheduler.py`` tests both implementations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tvm_gnn_cost.measuring.machine import Tracker

if TYPE_CHECKING:  # worker processes import this module, and should start quickly
    import numpy as np
    import numpy.typing as npt

    from tvm_gnn_cost.datasets.programs import MeasuredPrograms, TaskInfo
    from tvm_gnn_cost.datasets.records import Failure, Problem
    from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
    from tvm_gnn_cost.progress import Progress

#: How a program of a collection was sampled: at random, or as a cost model ranks it (:attr:`CollectPlan.guide`).
Phase = Literal["random", "guided"]
SAMPLING_PHASES: tuple[Phase, ...] = ("random", "guided")

#: Who imports networks, spans the design space and generates code: this package, or TVM alone. ``auto_scheduler`` has
#: only its own.
Space = Literal["package", "tvm"]


@dataclass(frozen=True)
class Network:
    """A network ready to tune.

    Attributes:
        name: Its name in the scheduler's catalogue, or of its file or function.
        mod: The Relax or Relay module.
        params: The weights that ``mod`` takes as parameters, by name.
        inputs: An example of each input, by name, in the order of the network's parameters.
        expected: The framework's outputs for ``inputs``; None where no framework can run the network.
        program: The network in its framework, a ``torch.export.ExportedProgram`` or an ``onnx.ModelProto``, to compare
            with; None if there is none.
        digest: A hash of the program with its weights; empty for a network of the catalogue, which its name identifies.
        alternative: A module with the same outputs but some other tasks; None if there is none.
        noise: Difference of a second run of the framework from ``expected``, relative to an output's largest value.
    """

    name: str
    mod: Any
    params: Mapping[str, Any]
    inputs: Mapping[str, npt.NDArray[Any]]
    expected: tuple[npt.NDArray[Any], ...] | None
    program: Any = None
    digest: str = ""
    alternative: Any = None
    noise: float = 0.0


@dataclass(frozen=True)
class Task:
    """A tuning task: a subgraph of a network, or a single operator.

    Attributes:
        key: Identifies the task in the scheduler's records.
        name: A readable name, which several tasks may share.
        weight: How many times the task occurs in its network.
        workload: TVM's own object: MetaSchedule's ``ExtractedTask`` or ``auto_scheduler``'s ``SearchTask``.
        instead_of: The key of the equivalent task that this task can replace; empty if there is none.
        is_warm: Whether its network leaves its weights in the caches, so that they are not evicted for a measurement.
    """

    key: str
    name: str
    weight: int
    workload: Any = field(compare=False, repr=False)
    instead_of: str = ""
    is_warm: bool = False


def median_repeat(run_secs: Sequence[float]) -> float:
    """The median of a program's repeats in seconds, by which a search chooses; infinite without repeats.

    A virtual machine's core can be twice as fast for a millisecond, most likely while the other thread of the physical
    core is idle. The fastest repeat of all is then of a program that met such a moment (``benchmarks/repeats.py``).

    >>> median_repeat([3.0, 1.0, 2.0])
    2.0
    """
    return float(statistics.median(run_secs)) if run_secs else math.inf


@dataclass(frozen=True)
class MeasureSettings:
    """How a program is measured.

    Attributes:
        repeats: Number of repeats; each places the arguments anew in memory and gives one latency.
        turns: Number of interleaved runs of each program of a batch in a repeat.
        timeout_s: Time limit in seconds for all repeats together; a program that takes longer has failed.
        patience_s: Seconds for which a batch is measured again while other processes keep the machine busy.
        tracker: The RPC tracker of the machines that measure; None for this machine.
        is_warm: Whether a program runs with its weights in the caches, instead of evicting them before each run.
        space: Whose code generator builds the programs.
    """

    repeats: int = 3
    turns: int = 2
    timeout_s: float = 20.0
    patience_s: float = 0.0
    tracker: Tracker | None = None
    is_warm: bool = False
    space: Space = "package"


@dataclass(frozen=True)
class Outcome:
    """The result of building and running one program.

    Attributes:
        seconds: Latency of each repeat; empty if the program failed.
        failure: Why the program has no latency; None if it ran.
        message: TVM's error message; empty if there was none.
        result: TVM's own result object, for its record; None where the record does not need it.
    """

    seconds: tuple[float, ...]
    failure: Failure | None = None
    message: str = ""
    result: Any = field(default=None, compare=False, repr=False)

    @property
    def latency(self) -> float:
        """The median of the repeats in seconds; infinite if the program failed."""
        return median_repeat(self.seconds)


@dataclass(frozen=True)
class CollectPlan:
    """What to collect.

    Attributes:
        workloads: Names of networks and operators.
        random: Number of random samples of each task's design space.
        guided: Number of samples of each task that a cost model picks.
        seed: Seed of the samples.
        repeats: See :class:`MeasureSettings`.
        turns: See :class:`MeasureSettings`.
        space: Whose tasks and design space.
        guide: ``xgb``, which learns from the programs of the task that were measured before, or ``gnn`` or the path of
            a checkpoint, which picks without them.
    """

    workloads: tuple[str, ...]
    random: int = 12
    guided: int = 8
    seed: int = 0
    repeats: int = 4
    turns: int = 4
    space: Space = "package"
    guide: str = "xgb"


class Collection(Protocol):
    """A folder of measured programs that is being extended; opening it writes nothing."""

    @property
    def problems(self) -> Sequence[Problem]:
        """The records in the folder that cannot be used."""

    def open(self) -> None:
        """Makes the folder ready and writes the card.

        Raises:
            InputError: a file of the folder is damaged.
        """

    def known(self, workload: str) -> list[Task]:
        """The tasks of a workload that the folder lists, without the slow extraction; maybe none."""

    def add_tasks(self, workloads: Sequence[tuple[str, Sequence[Task]]]) -> None:
        """Writes the tasks of each workload, given by name.

        Raises:
            InputError: a file of the folder is damaged.
        """

    def missing(self, task: Task, phase: Phase) -> int:
        """Number of programs of a task that are still to be measured."""

    def sample(self, phase: Phase, wanted: Sequence[tuple[Task, int]]) -> list[tuple[Task, list[Any]]]:
        """Up to the wanted number of new candidates of each task; fewer if the design space is small.

        The records of a task with no wanted candidates may still guide the sampling of other tasks.
        """

    def append(self, phase: Phase, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome]) -> None:
        """Records measured candidates of a task, each with its outcome."""

    def count(self) -> tuple[int, int]:
        """Number of programs in the folder, and of those among them that failed."""


@dataclass(frozen=True)
class Chunk:
    """The programs of some records, as graphs.

    Attributes:
        programs: The programs of the records that could be replayed; None if none could.
        keys: The key of each program's record.
        run_secs: Latencies of each program in seconds, one per repeat.
        problems: The records that could not be replayed, and why.
    """

    programs: MeasuredPrograms | None
    keys: Sequence[str] = ()
    run_secs: Sequence[tuple[float, ...]] = ()
    problems: Sequence[Problem] = ()


@dataclass(frozen=True)
class Listing:
    """A program's text and its graph.

    Attributes:
        lines: Each line with the node of the loop or TensorIR store that begins there; -1 for other lines.
        graphs: A single graph, of detail ``statements``.
    """

    lines: tuple[tuple[str, int], ...]
    graphs: ProgramGraphs


class MeasuredFolder(Protocol):
    """A folder of measure records.

    Attributes:
        programs_at_once: Number of records to extract at a time by default.
    """

    programs_at_once: int

    @property
    def total(self) -> int:
        """Number of records, including unreadable ones."""

    @property
    def networks(self) -> set[str]:
        """Names of the networks that the folder's tasks occur in."""

    @property
    def problems(self) -> Sequence[Problem]:
        """Lines that are known to be unreadable before any record is extracted."""

    def records(self) -> Iterator[tuple[str, Any]]:
        """Each record with its key, which is the same for the same record in any folder."""

    def task_info(self, record: Any) -> TaskInfo | None:
        """The task of a record; None if the folder does not describe it.

        Raises:
            InputError: the record is damaged.
        """

    def seconds(self, record: Any) -> float:
        """The fastest repeat of a record; infinite if the program failed.

        Raises:
            InputError: the record is damaged.
        """

    def listing(self, record: Any) -> Listing:
        """The text and the graph of a record's program.

        Raises:
            InputError: the record cannot be replayed.
        """

    def extract(
        self, chunks: Iterable[Sequence[tuple[str, Any]]], detail: Detail, with_features: bool
    ) -> Iterator[Chunk]:
        """Replays the records of each chunk and extracts graphs and optionally TVM's features of TensorIR stores.

        Args:
            chunks: Records with their keys, as :meth:`records` gives them.
            detail: ``tree`` or ``statements``.
            with_features: Whether to extract the features.
        """


class SearchListener(Protocol):
    """Receives what a search does; the scheduler calls it after every batch."""

    @property
    def progress(self) -> Progress:
        """Receives the search's stages and steps."""

    def interrupted(self) -> bool:
        """Whether the user pressed Ctrl-C, so that the search must end."""

    def finished(self) -> bool:
        """Whether the budget is spent, so that the search must end."""

    def worthwhile(self, gain: float) -> bool:
        """Whether to go on if another batch is expected to gain at most so many seconds per run of the network."""

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        """Receives a measured batch: the task's position and the seconds of each program, infinite if it failed."""

    def spent(self, seconds: Mapping[str, float]) -> None:
        """Receives the seconds that this search has spent so far in each phase (``tuning.result.PHASES``)."""


@dataclass(frozen=True)
class SearchSettings:
    """How a search runs.

    Attributes:
        measured: Number of programs measured by earlier runs.
        batch_size: Number of programs measured at a time.
        population_size: Population size of the evolutionary search.
        seed: Seed of the search; a resumed search adds ``measured``, so that it does not draw the same programs again.
        latencies: Seconds of each task with the best schedule so far; 0 for a task that is not searched.
        floors: Estimated lower bound of each task's seconds.
        tracker: The RPC tracker of the machines that measure; None for this machine.
    """

    measured: int
    batch_size: int
    population_size: int
    seed: int
    latencies: tuple[float, ...]
    floors: tuple[float, ...]
    tracker: Tracker | None = None


class Machine(Protocol):
    """Where programs and networks run: this machine, or a machine of an RPC tracker (``schedulers/machines.py``)."""

    def load(self, artifact: str) -> Any:
        """Loads a library, given by its path here.

        Raises:
            Exception: the file is missing, or TVM cannot load it.
        """

    def place(self, places: dict[Any, Any], position: int, info: Any) -> Any:
        """The argument at a position with this shape and dtype; equal arguments share their memory in ``places``.

        Args:
            places: Memory allocated so far.
            position: The argument's position.
            info: Kind, dtype, shape and optionally an upper bound; see ``BuiltProgram`` in ``turn_runner.py``.
        """

    def device(self) -> Any:
        """TVM's device."""

    def check(self) -> None:
        """Checks that the machine answers.

        Raises:
            ConnectionError: it does not.
        """


@dataclass(frozen=True)
class Kernel:
    """A kernel, or a built-in function of the runtime, in a run of a compiled network.

    Attributes:
        name: Its name in the library.
        calls: Number of its calls.
        seconds: Seconds of all of these calls together.
    """

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """The time of a compiled network by kernel.

    Attributes:
        kernels: The kernels and built-in functions, in the order of their first calls; each second is counted once.
        seconds: Median seconds of a run without the profiler.
        profiled: Median seconds of a run with the profiler.
    """

    kernels: list[Kernel]
    seconds: float
    profiled: float


class Loaded(Protocol):
    """A compiled network that can be run."""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs for its inputs, which are named and in the order of its parameters."""

    def bind(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Callable[[], Any]:
        """A function that runs the network on these inputs and does nothing else."""

    def seconds(self, inputs: Mapping[str, npt.NDArray[Any]], runs: int) -> list[float]:
        """Seconds of each of ``runs`` runs on these inputs, timed on the machine that runs them."""

    def profile(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Profile | None:
        """The time of a run on these inputs by kernel; None if the runtime has no profiler."""


class Compiled(Protocol):
    """A network that was just compiled."""

    @property
    def tasks(self) -> Mapping[str, list[str]]:
        """Name of each kernel -> key of its task, for :meth:`Loaded.profile`; a sequence of kernels has each."""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs, if it was compiled for this machine; see :meth:`Loaded.run`."""

    def export(self, path: Path) -> None:
        """Writes a library with the weights, for :meth:`Networks.load`.

        Args:
            path: ``.so`` for a shared library, ``.tar`` for object files that are linked when they are loaded.
        """


class Networks(Protocol):
    """Networks, their tasks, and compiling them.

    Attributes:
        name: ``meta-schedule`` or ``auto-scheduler``, as in stores, results and options.
        run_script: A script that runs an exported library, in which NETWORK stands for the library's name.
    """

    name: str
    run_script: Path

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of workloads with the groups ``training``, ``held-out`` and ``layers`` replaced by their members."""

    def check_workload(self, name: str) -> None:
        """Checks that there is a workload of this name, without loading a file.

        Raises:
            InputError: there is none.
        """

    def check_space(self, space: Space) -> None:
        """Checks that the scheduler has a design space.

        Raises:
            InputError: it does not.
        """

    def tasks_of_workload(self, name: str, target: Any, space: Space = "package") -> list[Task]:
        """The tasks of a network, or the only task of an operator ``kind/number``.

        Raises:
            InputError: there is no such workload.
            WorkError: it cannot be imported.
        """

    def target(self, hardware: str = "", text: str = "") -> Any:
        """The target of this machine, or the target that TVM parses from ``text``.

        Args:
            hardware: Name of the machine, for schedulers whose targets carry one.
            text: The target as TVM writes it; empty for this machine's.

        Raises:
            InputError: TVM knows no such target, or it has no number of cores.
        """

    def network(
        self,
        source: Any,
        inputs: Any = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        trusted: bool = False,
    ) -> Network:
        """A network to tune, with its own weights; those of the catalogue are drawn with a fixed seed.

        Args:
            source: A name of the scheduler's catalogue, the path of an ``.onnx`` or ``.pt2`` file,
                ``package.module:function``, an ``nn.Module``, a ``torch.export.ExportedProgram``, an
                ``onnx.ModelProto``, or a Relax or Relay module.
            inputs: Examples of its inputs, by name or in order. An ``nn.Module`` needs them; for other sources missing
                inputs are drawn.
            shapes: Input name -> shape, for inputs with dynamic dimensions.
            trusted: Whether a file may run code while it is read.

        Raises:
            InputError: there is no such network, a file is of another kind or not trusted, or the inputs do not fit.
            WorkError: torch cannot export it, or TVM cannot import it.
            FileNotFoundError: there is no such file.
        """

    def tasks(self, network: Network, target: Any) -> list[Task]:
        """The distinct tasks of a network.

        Raises:
            InputError: the network has no task.
        """

    def flops(self, task: Task) -> float:
        """Floating point operations of one run of the task's program; a multiply-add counts as two."""

    def traffic(self, task: Task) -> float:
        """Bytes of a task's arguments and results, of which an argument that is only looked up counts in part."""

    def dtypes(self, task: Task) -> Sequence[str]:
        """The dtypes that a task's programs compute with."""

    def compile(
        self,
        network: Network,
        target: Any,
        work_dir: Path | None = None,
        tuned: Sequence[Task] = (),
        chosen: Sequence[tuple[Task, Any]] = (),
    ) -> Compiled:
        """Compiles a network with TVM's default schedules, except for the given tasks.

        Args:
            network: The network.
            target: The target of the machine that will run it.
            work_dir: A search's work directory, for the records; default schedules everywhere if None.
            tuned: The tasks that get their fastest recorded schedule.
            chosen: Tasks, each with a candidate that was not measured.

        Raises:
            WorkError: TVM cannot compile the network.
        """

    def load(self, path: Path, machine: Machine | None = None) -> Loaded:
        """Loads a library that :meth:`Compiled.export` wrote.

        Args:
            path: The library, on this machine.
            machine: Runs it; this machine if None.

        Raises:
            WorkError: TVM cannot load it.
        """


class Programs(Protocol):
    """Sampling, measuring and verifying candidates of tasks."""

    def sample(self, task: Task, target: Any, count: int, seed: int) -> list[Any]:
        """Up to ``count`` distinct random candidates of a task's design space."""

    def measure(
        self, groups: Sequence[tuple[Task, Sequence[Any]]], target: Any, settings: MeasureSettings
    ) -> Iterator[tuple[Task, list[Outcome]]]:
        """Builds all candidates on all cores, then runs them one at a time and yields the outcomes task by task.

        A candidate with other outputs than its task's unscheduled program has failed.
        """

    def measure_untuned(
        self, tasks: Sequence[Task], target: Any, work_dir: Path, tracker: Tracker | None = None
    ) -> list[Outcome]:
        """Measures each task's unscheduled program, and records it if :meth:`Networks.compile` needs the record."""

    def faults(self, candidates: Sequence[tuple[Task, Any]], target: Any) -> list[str]:
        """What is wrong with each candidate, as a predicate such as ``differs by ...``; empty if it is correct.

        Each is built and run on this machine, and compared with its task's unscheduled program on random arguments.
        """

    def describe(self, task: Task, candidate: Any) -> str:
        """The schedule steps of a candidate, as text."""


class Records(Protocol):
    """Records of measured programs: of a work directory, or of a folder for training and evaluation.

    Attributes:
        records_file: Name of the file of measure records in a work directory.
    """

    records_file: str

    def record(
        self, measured: Sequence[tuple[Task, Sequence[Any], Sequence[Outcome]]], target: Any, work_dir: Path
    ) -> None:
        """Adds measured candidates to the records of a work directory."""

    def latencies(self, tasks: Sequence[Task], work_dir: Path) -> list[list[float]]:
        """Seconds of every recorded program of each task; infinite if it failed.

        Raises:
            InputError: the records are damaged.
        """

    def best(self, tasks: Sequence[Task], work_dir: Path) -> list[Any]:
        """The fastest recorded candidate of each task; None for a task without a valid record.

        Raises:
            InputError: the records are damaged.
        """

    def strike(self, task: Task, candidate: Any, work_dir: Path) -> None:
        """Marks the records of a candidate, as :meth:`best` returned it, as failed.

        Raises:
            InputError: the records are damaged.
        """

    def collection(
        self, folder: Path, plan: CollectPlan, hardware: str, target: Any, machine: Mapping[str, Any]
    ) -> Collection:
        """Opens a folder of measured programs to extend it.

        Args:
            folder: The folder; it may be missing.
            plan: What to collect.
            hardware: Name of the machine, for schedulers whose folders may hold measurements of several.
            target: The target that the programs are built for.
            machine: What measures them, for the card.

        Raises:
            InputError: the folder holds measurements of another machine, or ``hardware`` cannot name a folder.
        """

    def measured(
        self, folder: Path, hardware: str | None = None, jobs: int | None = None, cluster: str = ""
    ) -> MeasuredFolder:
        """Opens a folder of measure records to extract them.

        Args:
            folder: A MetaSchedule database, or a folder in TenSet's layout.
            hardware: In TenSet's layout, the machine's folder; only needed if there are several.
            jobs: Number of threads or processes; one per core if None.
            cluster: Address of a Dask scheduler whose workers extract instead; empty for this machine.

        Raises:
            InputError: a file that the folder needs is damaged, or ``hardware`` is wrong.
            FileNotFoundError: the folder holds no measure records.
        """


class Searching(Protocol):
    """Cost models in the scheduler's own form, and its search."""

    def cost_model(self, model: Any, seed: int, tasks: int, batch_size: int) -> Any:
        """A cost model for this scheduler's search.

        Args:
            model: ``gnn``, ``xgb``, ``random``, the path of a checkpoint, a
                :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, or a cost model of TVM's interface, as it is.
            seed: Seed of ``random``.
            tasks: Number of tasks of the search.
            batch_size: Number of programs measured at a time.

        Raises:
            InputError: there is no such model or file.
        """

    def score(self, model: Any, task: Task, target: Any, candidates: Sequence[Any]) -> npt.NDArray[np.float64]:
        """float64[n]: what a cost model of this scheduler predicts for candidates; higher is faster."""

    def learn(
        self, model: Any, task: Task, target: Any, candidates: Sequence[Any], outcomes: Sequence[Outcome]
    ) -> None:
        """Updates a cost model of this scheduler with measured candidates."""

    def learn_records(self, model: Any, tasks: Sequence[Task], work_dir: Path) -> None:
        """Updates a cost model of this scheduler with the records of an earlier run.

        Raises:
            InputError: the records are damaged.
        """

    def search(
        self,
        tasks: Sequence[Task],
        model: Any,
        work_dir: Path,
        settings: SearchSettings,
        on: SearchListener,
    ) -> None:
        """Searches schedules of all tasks and records every measured program in the work directory.

        Raises:
            WorkError: the listener reported an interruption; every batch measured before is recorded.
        """


class Tuning(Programs, Records, Searching, Protocol):
    """What searching the tasks of a network takes."""


class Scheduler(Networks, Tuning, Protocol):
    """One of TVM's auto-schedulers."""

    def versions(self) -> dict[str, str]:
        """Package -> version, for results."""
