"""Ranks measured programs with several cost models and says how well each does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.datasets.split import networks_to_test
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.compare import (
    Evaluation,
    Model,
    compare,
    constant,
    gnn,
    node_count,
    random,
    trained_xgb,
)
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Progress, ignore
from tvm_gnn_cost.schedulers import holds_records, package, scheduler_of
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.extract import extract

#: The throughput that the trivial baselines predict.
_CONSTANT = 0.5


@dataclass(frozen=True)
class NamedModel:
    """A model as the command line names it.

    Attributes:
        predict: The model.
        detail: Of the graphs that it reads; any will do for a baseline.
        networks: The networks whose tasks it was trained on, as far as its card says.
        check_scheduler: Raises InputError if it cannot judge programs of a scheduler.
    """

    predict: Model
    detail: Detail = "statements"
    networks: tuple[str, ...] = ()
    check_scheduler: Callable[[str], None] = lambda _scheduler: None


@dataclass(frozen=True)
class Evaluations:
    """How the models did.

    Attributes:
        networks: The networks whose tasks were ranked.
        models: Model -> its metrics over all of them and task by task.
        trained_on: Model -> those of the networks that it was trained on.
        problems: Records that were left out.
    """

    networks: tuple[str, ...]
    models: dict[str, Evaluation]
    trained_on: dict[str, list[str]]
    problems: tuple[Problem, ...]


def model_by_name(name: str) -> NamedModel:
    """``random``, ``constant``, ``node-count``, ``xgb:PATH`` or a checkpoint's path.

    Raises:
        InputError: it is none of these, or the file is missing or damaged.
        WrongTVM: ``xgb`` needs a TVM, and there is none.
    """
    if name == "random":
        return NamedModel(random(0))
    if name == "constant":
        return NamedModel(constant(_CONSTANT))
    if name == "node-count":
        return NamedModel(node_count(_CONSTANT))
    if name.startswith("xgb:"):
        trees = package().OfflineTrees()
        trees.load(Path(name.removeprefix("xgb:")))
        return NamedModel(trained_xgb(trees))
    model = CostModel.load(name)
    return NamedModel(gnn(model), model.detail, tuple(model.card.get("networks", ())), model.check_scheduler)


def evaluate(
    source: Path | str,
    models: Sequence[str],
    *,
    networks: Sequence[str] = (),
    hardware: str | None = None,
    progress: Progress = ignore,
) -> Evaluations:
    """Ranks the measured programs of the given networks with each model.

    Args:
        source: A graph store, or a folder of measure records (TenSet's layout or a MetaSchedule database), which is
            extracted for this once. A database that names no network counts as one of its folder's name.
        models: Names of models, see :func:`model_by_name`.
        networks: The networks whose tasks count; by default the test networks, or the only network that there is.
        hardware: In TenSet's layout, the folder of ``measure_records``; not needed where there is only one.
        progress: Receives the events of the extraction.

    Raises:
        InputError: a model or a network is unknown, or nothing can be read or ranked.
        WrongTVM: the installed TVM cannot replay the records.
    """
    named = {name: model_by_name(name) for name in models}
    details = sorted({model.detail for model in named.values()})
    with_features = any(name.startswith("xgb:") for name in models)
    problems: tuple[Problem, ...] = ()
    if holds_records(Path(source)):
        programs, problems = _extracted(Path(source), details, with_features, networks, hardware, progress)
    elif hardware is not None:
        raise InputError(
            f"hardware is for a folder in TenSet's layout, but {source} is not such a folder; leave it out"
        )
    else:
        programs = dict.fromkeys(details, _loaded(GraphStore(Path(source)), with_features, networks))
    chosen = tuple(networks_to_test(next(iter(programs.values())).networks, networks))
    evaluations: dict[str, Evaluation] = {}
    for name, model in named.items():
        for scheduler in sorted({task.scheduler for task in programs[model.detail].tasks}):
            model.check_scheduler(scheduler)
        evaluations |= compare({name: model.predict}, programs[model.detail], chosen)
    trained_on = {name: [network for network in chosen if network in model.networks] for name, model in named.items()}
    return Evaluations(chosen, evaluations, trained_on, problems)


def _extracted(
    folder: Path,
    details: Sequence[Detail],
    with_features: bool,
    networks: Sequence[str],
    hardware: str | None,
    progress: Progress,
) -> tuple[dict[Detail, MeasuredPrograms], tuple[Problem, ...]]:
    """The programs of a folder of measure records, in each detail that is read."""
    # A misspelt network is found out now and not after the extraction.
    name = folder.resolve().name
    networks_to_test(scheduler_of(folder).measured(folder, hardware).networks or {name}, networks)
    programs = {}
    problems: tuple[Problem, ...] = ()
    with TemporaryDirectory() as scratch:
        for detail in details:
            store = Path(scratch) / detail
            done = extract(folder, store, detail=detail, features=with_features, hardware=hardware, progress=progress)
            problems = done.problems
            if not done.added:
                listed = "".join(f"\nleft out: {problem}" for problem in problems[:20])
                raise InputError(f"none of the {len(problems) + done.known} records of {folder} could be read{listed}")
            stored = _loaded(GraphStore(store), with_features, networks)
            programs[detail] = stored if stored.networks else _as_network(stored, name)
    return programs, problems


def _loaded(store: GraphStore, with_features: bool, networks: Sequence[str]) -> MeasuredPrograms:
    """The programs of the networks to test on, or all of them where the tasks name no network."""
    known = {network for task in store.tasks() for network in task.weights}
    return store.load(with_features=with_features, networks=networks_to_test(known, networks) if known else ())


def _as_network(programs: MeasuredPrograms, name: str) -> MeasuredPrograms:
    """The programs with all their tasks in one network."""
    return replace(programs, tasks=tuple(replace(task, weights={name: 1}) for task in programs.tasks))
