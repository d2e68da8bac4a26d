"""Runs a network with the peers of TVM: PyTorch, torch.compile and ONNX Runtime.

Each reads it from a file, ``program.pt2`` (torch.export) or ``program.onnx``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from tvm_gnn_cost.importing import exported, onnx_graphs

#: Runs a network and returns its outputs in the framework's form.
Run = Callable[[], Any]

#: Prepares the network in a file, with inputs and a number of threads.
Peer = Callable[[Path, Sequence[npt.NDArray[Any]], int], Run]


def save_program(program: Any, folder: Path) -> Path:
    """Writes a ``torch.export.ExportedProgram`` or an ``onnx.ModelProto`` into a folder and returns its path."""
    if onnx_graphs.accepts(program):
        path = folder / "program.onnx"
        path.write_bytes(program.SerializeToString())
        return path
    path = folder / "program.pt2"
    torch.export.save(program, path)
    return path


def peers_of(program: Path) -> dict[str, Peer]:
    """The peers that can run a file: name -> peer."""
    from_torch: dict[str, Peer] = {"PyTorch": eager, "torch.compile": compiled} if program.suffix == ".pt2" else {}
    return from_torch | {"ONNX Runtime": onnx_runtime}


def eager(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """PyTorch, operator by operator."""
    return _in_torch(path, inputs, threads, lambda module: module)


def compiled(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """PyTorch with ``torch.compile``, in its default mode; the first run compiles."""
    return _in_torch(path, inputs, threads, torch.compile)


def onnx_runtime(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """ONNX Runtime; a PyTorch program is exported to ONNX beside its file.

    Raises:
        ModuleNotFoundError: ONNX Runtime, or a package for the export to ONNX, is missing.
    """
    import onnxruntime

    if path.suffix == ".pt2":
        path = _to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {parameter.name: array for parameter, array in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feed)


def _to_onnx(path: Path) -> Path:
    program = torch.onnx.export(torch.export.load(path), dynamo=True, verbose=False)
    assert program is not None
    written = path.with_suffix(".onnx")
    program.save(written)
    return written


def _in_torch(
    path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int, prepare: Callable[[Any], Callable[..., Any]]
) -> Run:
    torch.set_num_threads(threads)
    program = torch.export.load(path)
    args, kwargs = exported.arguments(program, [torch.from_numpy(array) for array in inputs])
    module = prepare(program.module())

    def run() -> Any:
        with torch.inference_mode():
            return module(*args, **kwargs)

    return run
