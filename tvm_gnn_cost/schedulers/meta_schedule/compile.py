"""Compiles a network with default or tuned schedules, and loads exported libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.vm_build import _vmcodegen, _vmlink
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.lowering import code_generation
from tvm_gnn_cost.lowering.kernels import task_key
from tvm_gnn_cost.lowering.outlining import TAKES_POINTERS, called, of_pointers, outline_small_kernels
from tvm_gnn_cost.lowering.packing import prepack
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers.machines import ThisMachine
from tvm_gnn_cost.schedulers.meta_schedule.profiling import profile
from tvm_gnn_cost.schedulers.meta_schedule.search_log import without_stderr
from tvm_gnn_cost.schedulers.scheduler import Machine, Profile


def load_library(path: Path, machine: Machine | None = None) -> LoadedNetwork:
    """Loads a library of :meth:`CompiledNetwork.export` on a machine, by default this machine.

    Raises:
        WorkError: TVM cannot load it.
    """
    on = machine or ThisMachine()
    # TVM's loader raises errors of any type.
    try:
        with without_stderr():  # TVM prints an empty warning for each constant.
            return LoadedNetwork(relax.VirtualMachine(on.load(str(path)), on.device()), on.device())
    except Exception as error:
        raise WorkError(f"TVM cannot load {path}: {last_line(error)}") from error


class LoadedNetwork:
    """A network on Relax's virtual machine.

    Args:
        executor: The virtual machine.
        device: Its device.
    """

    def __init__(self, executor: relax.VirtualMachine, device: Any) -> None:
        self.executor, self.device = executor, device

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs."""
        self.bind(inputs)()
        return tuple(tensor.numpy() for tensor in _flat(self.executor.get_outputs("main")))

    def bind(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Callable[[], Any]:
        """A function that runs the network on a copy of these inputs."""
        self.executor.set_input("main", *(tvm.runtime.tensor(array, self.device) for array in inputs.values()))
        return partial(self.executor.invoke_stateful, "main")

    def seconds(self, inputs: Mapping[str, npt.NDArray[Any]], runs: int) -> list[float]:
        """Seconds of each of so many runs, after one that does not count."""
        self.bind(inputs)
        timed = self.executor.time_evaluator("invoke_stateful", self.device, number=1, repeat=runs)("main")
        return [float(second) for second in timed.results]

    def profile(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Profile:
        """The time of a run by kernel."""
        return profile(self.executor, self.bind(inputs))


def _flat(outputs: Any) -> Iterator[Any]:
    """The tensors of outputs that may be tuples in tuples."""
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        if isinstance(output, tuple):
            yield from _flat(output)
        else:
            yield output


def task_keys(mod: tvm.IRModule) -> dict[str, str]:
    """Name of each TensorIR function of a module -> the key of its task."""
    functions = ((var, function) for var, function in mod.functions_items() if isinstance(function, tvm.tirx.PrimFunc))
    return {str(var.name_hint): task_key(function) for var, function in functions}


class CompiledNetwork:
    """A network that was just compiled.

    Args:
        mod: The network, legalized.
        target: The target of the machine that will run it.
        schedules: A database of the records to compile with; tasks without a record get TVM's default schedule.
    """

    def __init__(self, mod: tvm.IRModule, target: tvm.target.Target, schedules: ms.Database | None) -> None:
        keys = task_keys(mod)
        if schedules is not None:
            with target, schedules:
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
            mod = prepack(mod, target)
        if target.kind.name == "llvm":
            mod = outline_small_kernels(mod)
        # A function whose weights are packed has another name.
        names = {var.name_hint: var.name_hint.removesuffix("_prepacked") for var in mod.get_global_vars()}
        #: Name of each kernel -> key of its task; of a sequence of kernels, the keys of all.
        self.tasks = {name: [keys[original]] for name, original in names.items() if original in keys}
        for var, function in mod.functions_items():
            inner = called(function) if isinstance(function, tvm.tirx.PrimFunc) else []
            if inner:
                self.tasks[var.name_hint] = [key for name in inner for key in self.tasks.get(name, [])]
        self.executable = build(mod, target)

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """The network's outputs, on this machine."""
        return LoadedNetwork(relax.VirtualMachine(self.executable, tvm.cpu()), tvm.cpu()).run(inputs)

    def export(self, path: Path) -> None:
        """Writes a library with the weights."""
        with without_stderr():
            self.executable.export_library(str(path))


def build(mod: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """The result of ``tvm.compile``, but with code generation on all cores, and only once.

    ``tvm.compile`` optimizes a single LLVM module on one core, and generates its code again each time the network is
    exported or run, which took half of the time of ``tune`` without trials.
    """
    with target:
        mod = relax.get_pipeline("default")(mod)
    attributes = dict(mod.attrs or {})
    used = {
        var for function in mod.functions.values() if isinstance(function, relax.Function) for var in _called(function)
    }
    builder = relax.ExecBuilder()
    left = _vmcodegen(builder, mod, "bytecode")
    functions = {var.name_hint: left[var] for var in used if isinstance(left.functions.get(var), tvm.tirx.PrimFunc)}
    calls = {name: called(function) for name, function in functions.items()}
    callers = {name: function for name, function in functions.items() if calls[name]}
    kernels = [(name, function) for name, function in functions.items() if not calls[name]]
    inner = {name for names in calls.values() for name in names}
    kernels += [(f"{name} of pointers", of_pointers(left[name])) for name in inner]
    kernels.sort()
    count = min(2 * usable_cores(), len(kernels))
    parts = [dict(kernels[first::count]) for first in range(count)] + [callers] * bool(callers)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(usable_cores()) as pool:
        paths = [Path(folder) / f"{number}.o" for number in range(len(parts))]
        objects = list(pool.map(partial(_object, attrs=left.attrs, target=target), parts, paths))
    # TVM takes the target of the library from the first LLVM module.
    frame = tvm.tirx.build(tvm.IRModule({}, attrs=left.attrs), target=target)
    libraries = [frame, *objects, *attributes.get("external_mods", [])]
    constants = dict(attributes.get("const_name_to_constant", {}))
    return _vmlink(builder, target, ext_libs=libraries, params=constants)


def _object(functions: Mapping[str, tvm.tirx.PrimFunc], path: Path, attrs: Any, target: tvm.target.Target) -> Any:
    """An object file of functions, to be linked into the network's library."""
    code_generation.build(tvm.IRModule(functions, attrs=attrs), target).write_to_file(str(path))
    public = [name for name, function in functions.items() if TAKES_POINTERS not in function.attrs]
    return tvm.runtime.load_static_library(str(path), public)


def _called(function: relax.Function) -> set[tvm.ir.GlobalVar]:
    """The functions that a function of Relax refers to."""
    variables: set[tvm.ir.GlobalVar] = set()
    relax.analysis.post_order_visit(
        function.body, lambda each: variables.add(each) if isinstance(each, tvm.ir.GlobalVar) else None
    )
    return variables
