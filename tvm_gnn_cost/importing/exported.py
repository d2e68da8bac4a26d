"""PyTorch networks as ``torch.export`` programs: exporting, reading, fixing shapes, and running them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.importing.decompositions import decompose
from tvm_gnn_cost.importing.inputs import OpenShape

if TYPE_CHECKING:
    import onnx


def export(module: nn.Module, example: Any, name: str) -> torch.export.ExportedProgram:
    """Exports a module in evaluation mode.

    Args:
        module: The module; its mode is restored. ``config.use_cache`` of transformers is turned off: to export a cache,
            wrap the module in one that takes and returns it as tensors.
        example: Its arguments: a tuple, a dict of keyword arguments, or a single tensor; tensors or arrays.
        name: Its name, for the error.

    Raises:
        WorkError: torch cannot export it.
    """
    example = pytree.tree_map_only(np.ndarray, torch.from_numpy, example)
    kwargs = example if isinstance(example, dict) else {}
    args = () if kwargs else tuple(example) if isinstance(example, tuple | list) else (example,)
    with _inference(module):
        return _export(module, args, kwargs, name)


def read_exported(path: Path, trusted: bool) -> torch.export.ExportedProgram:
    """Reads a file of ``torch.export.save``.

    ``torch.export.load`` unpickles objects and evaluates symbolic sizes as Python, so a file can run any code.

    Raises:
        InputError: the file is not trusted, or was not written by ``torch.export.save``.
        FileNotFoundError: there is no such file.
    """
    if not trusted:
        raise InputError(
            f"reading {path} can run any code in it: if you trust its origin, pass trusted=True (--trusted in a "
            "shell), else use the network as an ONNX file, which runs none (torch.onnx.export)"
        )
    with path.open("rb") as file, _quiet():
        # Other files raise errors of any type.
        try:
            return torch.export.load(file)
        except Exception as error:
            # Some messages point to the log.
            first = (str(error).strip().splitlines() or [type(error).__name__])[0].partition(" Please check the")[0]
            raise InputError(f"{path} cannot be read as a file of torch.export.save: {first}") from error


def accepts(program: Any) -> bool:
    """Whether a program is an ``ExportedProgram``."""
    return isinstance(program, torch.export.ExportedProgram)


def open_shapes(program: torch.export.ExportedProgram, name: str) -> dict[str, OpenShape]:
    """The shape of each input, in the order of the program's arguments.

    Raises:
        InputError: an argument is not a tensor.
    """
    return {
        key: tuple(size if isinstance(size, int) else str(size) for size in tensor.shape)
        for key, tensor in _inputs(program, name).items()
    }


def with_shapes(
    program: torch.export.ExportedProgram, shapes: Mapping[str, tuple[int, ...]], name: str
) -> torch.export.ExportedProgram:
    """The program with the given input shapes; the program itself if they are the same.

    Raises:
        WorkError: torch cannot export it with these sizes.
    """
    if open_shapes(program, name) == shapes:
        return program
    # Zeros are valid indices; only their shapes matter.
    zeros = [torch.zeros(shapes[key], dtype=tensor.dtype) for key, tensor in _inputs(program, name).items()]
    args, kwargs = arguments(program, zeros)
    return _export(program.module(), args, kwargs, f"{name} with these shapes")


def input_types(program: torch.export.ExportedProgram, name: str) -> dict[str, np.dtype[Any]]:
    """The type of each input.

    Raises:
        InputError: NumPy lacks it.
    """
    result = {}
    for key, tensor in _inputs(program, name).items():
        try:
            result[key] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        except TypeError as error:
            raise InputError(f"input '{key}' of {name} is {tensor.dtype}, a type that NumPy lacks") from error
    return result


def examples(program: torch.export.ExportedProgram, name: str) -> dict[str, npt.NDArray[Any]]:
    """The inputs that the program was exported with, by name.

    Raises:
        InputError: an argument is not a tensor.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(program.example_inputs) if isinstance(leaf, torch.Tensor)]
    return {key: leaf.detach().numpy() for key, leaf in zip(_inputs(program, name), leaves, strict=True)}


def run(program: torch.export.ExportedProgram, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
    """PyTorch's outputs, with tuples and dicts flattened."""
    args, kwargs = arguments(program, [torch.from_numpy(array.copy()) for array in inputs.values()])
    with torch.no_grad():
        outputs = pytree.tree_leaves(program.module()(*args, **kwargs))
    return tuple(output.detach().numpy() for output in outputs if isinstance(output, torch.Tensor))


def to_onnx(program: torch.export.ExportedProgram, name: str) -> onnx.ModelProto:
    """Exports the program to ONNX with PyTorch's exporter; inputs and outputs keep their order.

    Raises:
        InputError: the exporter's packages are not installed.
        WorkError: PyTorch cannot export it to ONNX.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"PyTorch networks need a package that is missing: pip install 'tvm-gnn-cost[onnx]' ({error})"
        ) from error
    if any(isinstance(output.arg, ConstantArgument) and output.arg.value is not None for output in _outputs(program)):
        program = _tensors_alone(program, name)
    with torch.no_grad(), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        # The exporter raises errors of any type, with long messages for its developers.
        try:
            exported = torch.onnx.export(decompose(program), dynamo=True, verbose=False, optimize=True)
            assert exported is not None
            return exported.model_proto
        except Exception as error:
            cause = _root_cause(error)
            raise WorkError(f"PyTorch cannot export {name} to ONNX: {cause}") from error


def _outputs(program: torch.export.ExportedProgram) -> list[Any]:
    return [spec for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]


class _Tensors(nn.Module):
    """A network without its outputs that are not tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        outputs = pytree.tree_leaves(self.module(*args, **kwargs))
        return tuple(output for output in outputs if isinstance(output, torch.Tensor))


def _tensors_alone(program: torch.export.ExportedProgram, name: str) -> torch.export.ExportedProgram:
    zeros = [torch.zeros(operand.shape, dtype=operand.dtype) for operand in _inputs(program, name).values()]
    args, kwargs = arguments(program, zeros)
    return _export(_Tensors(program.module()), args, kwargs, name)


def _root_cause(error: BaseException) -> str:
    """The first line of an error's root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the logs of torch's exporters; errors are raised anyway."""
    loggers = [
        logging.getLogger(name)
        for name in ("torch.onnx", "torch.export", "torch.onnx._internal", "onnxscript", "onnx_ir")
    ]
    levels = [logger.level for logger in loggers]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for item in loggers:
            item.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for entry, level in zip(loggers, levels, strict=True):
                entry.setLevel(level)


def digest(program: torch.export.ExportedProgram) -> str:
    """SHA-256 of the program's text, the types of its inputs, and its weights."""
    digest = hashlib.sha256(program.graph_module.code.encode())
    for node in program.graph.nodes:
        if node.op == "placeholder":
            digest.update(f"{node.name} {node.meta['val']}".encode())
    for weight in (*program.state_dict.values(), *program.constants.values()):
        if isinstance(weight, torch.Tensor):
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def arguments(program: torch.export.ExportedProgram, tensors: list[torch.Tensor]) -> tuple[Any, Any]:
    """Arguments and keyword arguments of a call, in the structure that the network was exported with.

    Arguments that are not tensors keep the values that it was exported with.

    Raises:
        ValueError: the number of tensors is wrong.
    """
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    wanted = sum(isinstance(spec, TensorArgument) for spec in specs)
    if wanted != len(tensors):
        raise ValueError(f"the network takes {wanted} tensors, and {len(tensors)} were given")
    given = iter(tensors)
    leaves = [next(given) if isinstance(spec, TensorArgument) else getattr(spec, "value", None) for spec in specs]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def _inputs(program: torch.export.ExportedProgram, name: str) -> dict[str, torch.Tensor]:
    """The user inputs as fake tensors; arguments that are not tensors are left out."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    specs = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        # Numbers, booleans and None are constants of the exported network.
        if isinstance(spec.arg, ConstantArgument):
            continue
        if not isinstance(spec.arg, TensorArgument):
            raise InputError(
                f"argument '{spec.arg.name}' of {name} is not a tensor; wrap the network in a module that passes it"
            )
        specs[spec.arg.name] = values[spec.arg.name]
    return specs


def _export(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> torch.export.ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings():
        # torch warns about its own layers.
        warnings.simplefilter("ignore")
        # Tracing runs the network's code, which can raise errors of any type.
        try:
            return torch.export.export(module, args, kwargs)
        except Exception as error:
            first = next(filter(None, str(error).splitlines()), type(error).__name__)
            raise WorkError(f"torch.export cannot export {name}: {first}") from error


@contextmanager
def _inference(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; restores the mode of each layer.

    Decoders of transformers also return their cache, which torch.export does not support, unless it is turned off.
    """
    modes = {layer: layer.training for layer in module.modules()}
    configs: list[Any] = [getattr(layer, "config", None) for layer in module.modules()]
    caching = [config for config in configs if getattr(config, "use_cache", None) is True]
    module.eval()
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True
        for layer, training in modes.items():
            layer.training = training
