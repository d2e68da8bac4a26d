"""Brings networks to Relax and extracts their tuning tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.importing import exported, onnx_graphs
from tvm_gnn_cost.importing.relax import modules as relax_modules
from tvm_gnn_cost.importing.relax.convert import to_relax
from tvm_gnn_cost.importing.relax.importer import simplified
from tvm_gnn_cost.importing.source import FRAMEWORKS, Model, load_model
from tvm_gnn_cost.lowering.alternatives import replacements
from tvm_gnn_cost.lowering.batch_norms import fold_batch_norms
from tvm_gnn_cost.lowering.constants import content
from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.kernels import kernel_calls
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.schedulers.meta_schedule.compile import task_keys
from tvm_gnn_cost.schedulers.scheduler import Network, Task

#: Bytes of a network's weights that stay in the second-level cache of a core.
_CACHED_BYTES = 2**20


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


def tasks_with_tvm(source: Any, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a network that TVM alone imports and lowers.

    Raises:
        InputError: see :func:`load_network`.
        WorkError: TVM cannot import it.
    """
    model = load_model(source, frameworks=(*FRAMEWORKS, relax_modules))
    return extract_tasks(import_with_tvm(model.program, model.name, target), target)


def import_with_tvm(program: Any, name: str, target: tvm.target.Target) -> tvm.IRModule:
    """A network as TVM's own importers read it, with TVM's own passes.

    Args:
        program: A ``torch.export.ExportedProgram``, an ``onnx.ModelProto`` or a Relax module.
        name: The network's name.
        target: The target.

    Raises:
        WorkError: TVM cannot import it.
    """
    from tvm.relax.frontend import onnx, torch

    # They raise errors of any type.
    try:
        if onnx_graphs.accepts(program):
            mod = onnx.from_onnx(program)
        elif exported.accepts(program):
            mod = torch.from_exported_program(program, unwrap_unit_return_tuple=True)
        else:
            mod = program
        passes = [relax.transform.DecomposeOpsForInference(), relax.transform.CanonicalizeBindings()]
        with target:
            return tvm.transform.Sequential([*passes, relax.get_pipeline("zero")])(mod)
    except Exception as error:
        raise WorkError(f"TVM cannot import {name}: {last_line(error)}") from error


def tasks_of(network: Network, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a network, those of its alternative last; none for one that only moves values."""
    warm = _warm(network.mod)
    tasks = [replace(task, is_warm=task.key in warm) for task in extract_tasks(network.mod, target)]
    if network.alternative is None:
        return tasks
    places = replacements(network.mod, network.alternative)
    others = extract_tasks(network.alternative, target)
    return tasks + [replace(task, instead_of=places[task.key]) for task in others if task.key in places]


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a module, in TVM's order; their keys are structural hashes."""
    found = ms.relax_integration.extract_tasks(mod, target, {})
    return [Task(ms.utils.shash2hex(task.dispatched[0]), str(task.task_name), int(task.weight), task) for task in found]


def _warm(mod: tvm.IRModule) -> set[str]:
    """The keys of the tasks whose weights are in the caches when they run.

    Those are all tasks of a network whose weights fit in a cache together, and those that run several times with the
    same weights, as the steps of a recurrent layer do.
    """
    #: Function -> for each call the sizes of its weights by their content.
    weights: dict[str, list[dict[bytes, int]]] = {}
    for call in kernel_calls(mod):
        constants = [value for value in call.args[1].fields if isinstance(value, GenericConst)]
        sizes = {content(value): value.value.numpy().nbytes for value in constants}
        weights.setdefault(str(call.args[0].name_hint), []).append(sizes)
    keys = task_keys(mod)
    stored = {digest: size for calls in weights.values() for sizes in calls for digest, size in sizes.items()}
    if sum(stored.values()) <= _CACHED_BYTES:
        return set(keys.values())
    return {
        keys[name] for name, calls in weights.items() if calls[0] and 2 * len(set(map(frozenset, calls))) <= len(calls)
    }
