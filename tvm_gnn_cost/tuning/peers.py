"""Runs a network with the engines that a user could install instead of TVM.

Each reads it from a file, ``program.pt2`` (torch.export) or ``program.onnx``, and computes with float32 precision on a
given number of threads.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.importing import exported, onnx_graphs

#: Runs a network and returns its outputs in the framework's form.
Run = Callable[[], Any]

#: Prepares the network in a file, with inputs and a number of threads.
Peer = Callable[[Path, Sequence[npt.NDArray[Any]], int], Run]

#: Peers that take minutes to compile a network; :func:`~tvm_gnn_cost.tune` does not run them.
SLOW = ("torch.compile, max-autotune",)


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
    """The peers that can run a file: name -> peer.

    Those whose package is not installed are left out, except ONNX Runtime, whose error says how to install them all.
    """
    return {
        name: peer
        for name, (package, suffixes, peer) in PEERS.items()
        if program.suffix in suffixes and (package == "onnxruntime" or find_spec(package) is not None)
    }


def eager(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """PyTorch, operator by operator."""
    return _in_torch(path, inputs, threads, lambda module: module)


def compiled(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """PyTorch with ``torch.compile`` and frozen weights; the first run compiles."""
    return _in_torch(path, inputs, threads, _freezing("default"))


def compiled_after_measuring(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """The same in the mode that measures several implementations of each product; the first run takes minutes."""
    return _in_torch(path, inputs, threads, _freezing("max-autotune"))


def executorch(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """ExecuTorch; XNNPACK runs what it can of the network, ExecuTorch's portable operators the rest."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    program = torch.export.load(path)
    written = path.with_suffix(".pte")
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    written.write_bytes(lowered.buffer)
    portable_lib._unsafe_reset_threadpool(threads)
    module = portable_lib._load_for_executorch(str(written))
    given = tuple(torch.from_numpy(array) for array in inputs)
    return lambda: module.forward(given)


def onnx_runtime(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """ONNX Runtime.

    Raises:
        ModuleNotFoundError: ONNX Runtime, or a package for the export to ONNX, is missing.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(as_onnx(path), options, providers=["CPUExecutionProvider"])
    feed = {parameter.name: array for parameter, array in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feed)


def openvino(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """OpenVINO, for latency; without the hint of a precision it computes with bfloat16 where the processor can.

    Raises:
        WorkError: OpenVINO cannot compile the network.
    """
    from openvino import Core

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    source = as_onnx(path)
    try:
        request = Core().compile_model(source, "CPU", settings).create_infer_request()
    except RuntimeError as error:
        # The first lines are places in its source.
        lines = [line for line in str(error).splitlines() if line and not line.startswith("Exception from")]
        raise WorkError(f"OpenVINO cannot compile the network: {' '.join(lines)}") from error
    given = dict(enumerate(inputs))
    return lambda: list(request.infer(given, share_inputs=True, share_outputs=True).values())


def mnn(path: Path, inputs: Sequence[npt.NDArray[Any]], threads: int) -> Run:
    """MNN, with the precision of float32.

    Raises:
        WorkError: MNN cannot convert or run the network.
    """
    # MNN.tools.mnnconvert calls this too, but its import installs a package and sends statistics over the network.
    from _tools import mnnconvert
    from MNN import expr, nn

    source = as_onnx(path)
    model = onnx_graphs.read_onnx(source)
    names, outputs = list(onnx_graphs.input_types(model, "")), [output.name for output in model.graph.output]
    # Each process converts the network for itself.
    written = source.with_suffix(f".{os.getpid()}.mnn")
    options = {"-f": "ONNX", "--modelFile": source, "--MNNModel": written, "--bizCode": "none"}
    mnnconvert(["mnnconvert", *(str(word) for pair in options.items() for word in pair)])
    if not written.exists():
        raise WorkError("MNN cannot convert the network")
    manager = nn.create_runtime_manager(({"backend": 0, "precision": "high", "numThread": threads},))
    module = nn.load_module_from_file(str(written), names, outputs, runtime_manager=manager)
    written.unlink()
    given = []
    for array in inputs:
        # It has no other integers.
        array, dtype = (array, expr.float) if array.dtype.kind == "f" else (array.astype(np.int32), expr.int)
        given.append(expr.const(array, list(array.shape), expr.NCHW, dtype))

    def run() -> list[npt.NDArray[Any]]:
        computed = module.forward(given)
        if len(computed) != len(outputs):
            raise WorkError("MNN cannot run the network")
        return [output.read() for output in computed]

    return run


def as_onnx(path: Path) -> Path:
    """A file as ONNX; a PyTorch program is exported beside its file, once for all processes."""
    if path.suffix != ".pt2":
        return path
    written = path.with_suffix(".onnx")
    with path.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if not written.exists():
            program = torch.onnx.export(torch.export.load(path), dynamo=True, verbose=False)
            assert program is not None
            program.save(unfinished := written.with_suffix(".unfinished"))
            unfinished.rename(written)
    return written


def _freezing(mode: str) -> Callable[[Any], Callable[..., Any]]:
    """``torch.compile`` that treats weights as constants, which it packs."""

    def prepare(module: Any) -> Callable[..., Any]:
        from torch._inductor import config

        # An option of torch.compile is not seen by the tracing before it.
        config.freezing = True
        return torch.compile(module, mode=mode)

    return prepare


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


#: Name of a peer -> the package that it needs, the suffixes of the files that it runs, and the peer.
PEERS: dict[str, tuple[str, tuple[str, ...], Peer]] = {
    "PyTorch": ("torch", (".pt2",), eager),
    "torch.compile": ("torch", (".pt2",), compiled),
    "torch.compile, max-autotune": ("torch", (".pt2",), compiled_after_measuring),
    "ExecuTorch": ("executorch", (".pt2",), executorch),
    "ONNX Runtime": ("onnxruntime", (".pt2", ".onnx"), onnx_runtime),
    "OpenVINO": ("openvino", (".pt2", ".onnx"), openvino),
    "MNN": ("MNN", (".pt2", ".onnx"), mnn),
}
