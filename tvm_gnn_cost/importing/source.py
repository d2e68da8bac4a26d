"""Loads the network that a user names: from the catalogue, a file, a function or an object."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing import exported, onnx_graphs
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.inputs import OpenShape, example_inputs, fixed_shapes, index_limits
from tvm_gnn_cost.importing.names import NETWORK_FILES, check_network, is_function, name_of
from tvm_gnn_cost.networks.catalogue import drawn_workload


@dataclass(frozen=True)
class Model:
    """A network in its framework.

    Attributes:
        name: Its name in a catalogue, or of its file, function or class.
        program: A ``torch.export.ExportedProgram``, an ``onnx.ModelProto`` or a TVM module, with static shapes.
        inputs: An example of each input by name, in the program's order.
        expected: The framework's outputs for ``inputs``; None where no framework can run the program.
        digest: SHA-256 of the program with its weights; empty for a network of the catalogue.
        graph: The program in primitive operators; None for a TVM module, or if not requested.
        noise: Largest difference between two runs of the framework, relative to an output's largest value.
    """

    name: str
    program: Any
    inputs: dict[str, npt.NDArray[Any]]
    expected: tuple[npt.NDArray[Any], ...] | None
    digest: str
    graph: Graph | None = None
    noise: float = 0.0


class Framework(Protocol):
    """Functions on the programs of a framework, such as the module :mod:`~tvm_gnn_cost.importing.exported`."""

    def accepts(self, program: Any) -> bool:
        """Whether a program is of this framework."""

    def open_shapes(self, program: Any, name: str) -> dict[str, OpenShape]:
        """The shape of each input, in order.

        Raises:
            InputError: an input is not a tensor.
        """

    def with_shapes(self, program: Any, shapes: Mapping[str, tuple[int, ...]], name: str) -> Any:
        """The program with static input shapes; the argument is not modified.

        Raises:
            WorkError: the framework cannot do that.
        """

    def input_types(self, program: Any, name: str) -> dict[str, np.dtype[Any]]:
        """The type of each input.

        Raises:
            InputError: NumPy lacks it.
        """

    def run(self, program: Any, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...] | None:
        """The program's outputs; None if the framework cannot run it."""

    def digest(self, program: Any) -> str:
        """SHA-256 of the program and its weights."""

    def to_onnx(self, program: Any, name: str) -> Any:
        """The program as an ``onnx.ModelProto`` with inputs and outputs in the same order; None if that is impossible.

        Raises:
            InputError: a package is missing.
            WorkError: the framework cannot export it to ONNX.
        """


#: Simplifies an ONNX model; arguments are the model and the network's name.
Simplify = Callable[[Any, str], Graph]

#: The frameworks that do not need TVM.
FRAMEWORKS: tuple[Framework, ...] = (onnx_graphs, exported)


def load_model(
    source: Any,
    inputs: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    trusted: bool = False,
    *,
    catalogue: Callable[[str], Any] = drawn_workload,
    frameworks: Sequence[Framework] = FRAMEWORKS,
    simplified: Simplify | None = None,
) -> Model:
    """The network that a user names.

    Args:
        source: A name of the catalogue, the path of an ``.onnx`` or ``.pt2`` file, ``package.module:function``, an
            ``nn.Module``, or a program of one of the frameworks.
        inputs: Examples of its inputs: a dict of arrays or tensors by name, or a tuple of them in order. An
            ``nn.Module`` needs them; otherwise missing ones are random.
        shapes: The shapes of inputs with dynamic dimensions, by name.
        trusted: Whether a file may run code while it is read.
        catalogue: Resolves a name to another ``source``, or to a module with its example inputs.
        frameworks: The frameworks that a program may be of.
        simplified: Simplifies an ONNX model; None to skip.

    Raises:
        InputError: there is no such network, a file is not a network or not trusted, the inputs do not fit, or it has
            operators that cannot be imported.
        WorkError: torch cannot export it.
        FileNotFoundError: there is no such file.
    """
    name = name_of(source)
    program, example = _with_inputs(
        _named(source, trusted, catalogue) if isinstance(source, str | os.PathLike) else source
    )
    given: dict[str, npt.NDArray[Any]] = {}
    if isinstance(program, nn.Module):
        if example is None:
            example, inputs = inputs, None
        if example is None:
            raise InputError(f"{name} is an nn.Module: pass its example inputs too, a tuple or a dict of tensors")
        program = exported.export(program, example, name)
        given = exported.examples(program, name)
    framework = next((framework for framework in frameworks if framework.accepts(program)), None)
    if framework is None:
        raise InputError(
            f"{name} is {type(program).__name__}, not a network: use an nn.Module with example inputs, a "
            "torch.export.ExportedProgram, an onnx.ModelProto or a TVM module"
        )
    declared = framework.open_shapes(program, name)
    given |= _by_name(name, inputs, list(declared))
    known = {key: array.shape for key, array in given.items()} | dict(shapes or {})
    fixed = fixed_shapes(name, declared, known)
    program = framework.with_shapes(program, fixed, name)
    types = framework.input_types(program, name)
    model = framework.to_onnx(program, name) if simplified is not None else None
    graph = None if simplified is None or model is None else simplified(model, name)
    if graph is not None:
        _check_types(graph, name)
    limits = {} if graph is None else _by_position(index_limits(graph), graph, list(fixed))
    examples = example_inputs(name, fixed, types, given, limits)
    expected = framework.run(program, examples)
    noise = 0.0
    if expected is not None and model is not None:
        again = onnx_graphs.run_again(model, list(examples.values()))
        noise = 0.0 if again is None else _noise(again, expected)
    is_catalogues = isinstance(source, str) and name == source
    digest = "" if is_catalogues else framework.digest(program)
    return Model(name, program, examples, expected, digest, graph, noise)


def _check_types(graph: Graph, name: str) -> None:
    """Refuses inputs and outputs whose type NumPy lacks."""
    for kind, values in (("input", [(operand.name, operand) for operand in graph.inputs]), ("output", graph.outputs)):
        for key, value in values:
            if value.dtype.kind not in "biuf" or value.dtype.type.__module__ != "numpy":
                raise InputError(
                    f"{kind} '{key}' of {name} is {value.dtype}, a type that NumPy lacks; cast it to or from float32 "
                    "inside of the network"
                )


def _by_position(limits: Mapping[str, int], graph: Graph, names: Sequence[str]) -> dict[str, int]:
    """The index limits of a graph's inputs by the framework's names."""
    places = zip((operand.name for operand in graph.inputs), names, strict=False)
    return {key: limits[name] for name, key in places if name in limits}


def _noise(again: Sequence[npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]]) -> float:
    """The largest difference of two runs, relative to an output's largest value; 0 if not comparable."""
    result = 0.0
    for item, other in zip(again, expected, strict=False):
        if item.shape != other.shape or item.size == 0 or item.dtype.kind not in "fV":
            continue
        left, right = item.astype(np.float64), other.astype(np.float64)
        known = np.isfinite(left) & np.isfinite(right)
        if known.any():
            result = max(result, float(np.abs(left - right)[known].max() / (np.abs(right[known]).max() or 1.0)))
    return result


def _named(source: str | os.PathLike[str], trusted: bool, catalogue: Callable[[str], Any]) -> Any:
    """Resolves a string or path."""
    check_network(source)
    text, path = str(source), Path(source)
    if is_function(text):
        return call_function(text)
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return onnx_graphs.read_onnx(path)
    if suffix == ".pt2":
        return exported.read_exported(path, trusted)
    try:
        return catalogue(text)
    except InputError as error:
        raise InputError(f"{error}; a path of an .onnx or .pt2 file; or package.module:function") from error


def _with_inputs(program: Any) -> tuple[Any, Any]:
    """Splits a pair of a module and its example inputs."""
    if isinstance(program, tuple) and len(program) == 2 and isinstance(program[0], nn.Module):
        return program
    return program, None


def _by_name(name: str, inputs: Any, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Inputs as arrays by name."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        leaves = [leaf for leaf in pytree.tree_leaves(inputs) if leaf is not None]
        if len(leaves) > len(names):
            raise InputError(f"{name} has {len(names)} inputs ({', '.join(names)}), not {len(leaves)}")
        inputs = dict(zip(names, leaves, strict=False))
    return {
        key: value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        for key, value in inputs.items()
    }


def check_source(source: str, catalogue: Callable[[str], Any] = drawn_workload) -> None:
    """Checks that there is a file, a function or a network of the catalogue, without loading a file's network.

    Raises:
        InputError: there is none; see :func:`find_function` for functions.
        FileNotFoundError: there is no such file.
    """
    check_network(source)
    if is_function(source):
        find_function(source)
    elif Path(source).suffix.lower() not in NETWORK_FILES:
        _named(source, False, catalogue)


def call_function(source: str) -> Any:
    """Calls the user's function with torch seeded, so that each call returns the same.

    Raises:
        InputError: the function raises an error; see also :func:`find_function`.
    """
    function = find_function(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return function()
        except Exception as error:
            raise _raised(source, error) from error


def find_function(source: str) -> Callable[[], Any]:
    """The user's function ``package.module:function``.

    Modules are searched in the current directory first, as with ``python -m``.

    Raises:
        InputError: there is no such module or function, it takes arguments, or the module raises an error.
    """
    module_name, _, function_name = source.partition(":")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"there is no module '{error.name}' for {source}, neither in {folder} nor installed"
            ) from error
        raise InputError(f"{source} needs the module '{error.name}', which is not installed") from error
    except Exception as error:
        raise _raised(f"module '{module_name}'", error) from error
    finally:
        sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"module '{module_name}' ({module.__file__}) has no function '{function_name}'")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{source} must be a function that takes no arguments: {error}") from error
    found: Callable[[], Any] = function
    return found


def _raised(what: str, error: Exception) -> InputError:
    """The error message for an exception of the user's code, with its location."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = last_line(error)
    return InputError(f"{what} raises {type(error).__name__} ({said}) at line {place.lineno} of {place.filename}")
