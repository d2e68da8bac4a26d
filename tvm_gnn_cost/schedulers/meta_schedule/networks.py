"""Brings networks to Relax and extracts their tuning tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.importing.relax import modules as relax_modules
from tvm_gnn_cost.importing.relax.convert import to_relax
from tvm_gnn_cost.importing.relax.importer import simplified
from tvm_gnn_cost.importing.source import FRAMEWORKS, Model, load_model
from tvm_gnn_cost.lowering.alternatives import replacements
from tvm_gnn_cost.lowering.batch_norms import fold_batch_norms
from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.schedulers.scheduler import Network, Task


def load_network(
    source: Any, inputs: Any = None, shapes: Mapping[str, tuple[int, ...]] | None = None, trusted: bool = False
) -> Network:
    """A network ready to tune; see :func:`~tvm_gnn_cost.importing.source.load_model` for the arguments.

    Raises:
        InputError: there is no such network, a file is of another kind or not trusted, the inputs do not fit, or it has
            operators that cannot be imported; each of them is named.
        WorkError: torch cannot export it, or TVM cannot lower it.
    """
    model = load_model(source, inputs, shapes, trusted, frameworks=(*FRAMEWORKS, relax_modules), simplified=simplified)
    network = import_network(model)
    # TVM's passes raise errors of any type.
    try:
        direct, winograd = legalize(network.mod)
        pays = winograd is not None and replacements(direct, winograd)
        return replace(network, mod=direct, alternative=winograd if pays else None)
    except Exception as error:
        raise WorkError(f"TVM cannot lower {model.name}: {last_line(error)}") from error


def import_network(model: Model) -> Network:
    """A network in Relax's own operators, with its weights as constants and its batch norms folded."""
    if model.graph is None:
        # Importers repeat themselves; every copy of a constant's transpose would be compiled and run to fold it.
        mod, program = model.program, None
        try:
            for one in (relax.transform.EliminateCommonSubexpr(), correct, fold_batch_norms):
                mod = one(mod)
        except Exception as error:
            raise WorkError(f"TVM cannot lower {model.name}: {last_line(error)}") from error
    else:
        mod, program = relax.transform.EliminateCommonSubexpr()(to_relax(model.graph, model.name)), model.program
    return Network(model.name, mod, {}, model.inputs, model.expected, program, model.digest, noise=model.noise)


def tasks_of(network: Network, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a network, those of its alternative last; none for one that only moves values."""
    tasks = extract_tasks(network.mod, target)
    if network.alternative is None:
        return tasks
    places = replacements(network.mod, network.alternative)
    others = extract_tasks(network.alternative, target)
    return tasks + [replace(task, instead_of=places[task.key]) for task in others if task.key in places]


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a module, in TVM's order; their keys are structural hashes."""
    found = ms.relax_integration.extract_tasks(mod, target, {})
    return [Task(ms.utils.shash2hex(task.dispatched[0]), str(task.task_name), int(task.weight), task) for task in found]
