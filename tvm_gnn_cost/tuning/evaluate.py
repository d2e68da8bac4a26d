"""Ranks measured programs with several cost models and says how well each does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.datasets.split import networks_to_test
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.compare import Evaluation, compare
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Progress, ignore
from tvm_gnn_cost.schedulers import holds_records, scheduler_of
from tvm_gnn_cost.tuning.extract import extract
from tvm_gnn_cost.tuning.models import named_models, stored_model


@dataclass(frozen=True)
class EvaluateResult:
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


def evaluate(
    source: str | os.PathLike[str],
    models: Any,
    *,
    networks: Sequence[str] = (),
    hardware: str | None = None,
    progress: Progress = ignore,
) -> EvaluateResult:
    """Ranks the measured programs of the given networks with each model.

    Args:
        source: A graph store, or a folder of measure records (TenSet's layout or a MetaSchedule database), which is
            extracted for this once. A database that names no network counts as one of its folder's name.
        models: One model, several, or a dict of name -> model. A model is a
            :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, a ``GNNCostModel``, an ``XGBBaseline``, TVM's own
            ``XGBModel`` or ``RandomModel``, the path of a checkpoint or of an XGBoost file, or the name of a baseline:
            ``gnn`` (the checkpoint that ships), ``random``, ``constant`` or ``node-count``.
        networks: The networks whose tasks count; by default the test networks, or the only network that there is.
        hardware: In TenSet's layout, the folder of ``measure_records``; not needed where there is only one.
        progress: Receives the events of the extraction.

    Raises:
        InputError: a model or a network is unknown, or nothing can be read or ranked.
        WrongTVMError: the installed TVM cannot replay the records.

    >>> result = evaluate(records, {"shipped": "gnn", "chance": "random"}, networks=["softmax/0"])
    >>> sorted(result.models)
    ['chance', 'shipped']
    >>> 0 <= result.models["shipped"].metrics["pairwise_accuracy"] <= 1
    True
    """
    named = {name: stored_model(model) for name, model in named_models(models).items()}
    details = sorted({model.detail for model in named.values()})
    with_features = any(model.with_features for model in named.values())
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
    return EvaluateResult(chosen, evaluations, trained_on, problems)


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
