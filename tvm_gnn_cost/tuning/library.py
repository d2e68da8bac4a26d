"""The tuned network as a library in its work directory: ``NETWORK.so``, ``NETWORK.json`` and ``run.py``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import parse_json, replacing, write_json, write_text
from tvm_gnn_cost.importing import onnx_graphs
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers import scheduler as scheduler_named
from tvm_gnn_cost.schedulers.scheduler import Compiled, Machine, Network, Networks

#: Prefixes of other JSON files in a work directory.
_TAKEN = ("tuning", "database_", "records", "untuned")


def write_library(
    compiled: Compiled,
    network: Network,
    scheduler: Networks,
    target: str,
    work_dir: Path,
    about: Mapping[str, Any],
    machine: Machine | None = None,
) -> Path:
    """Writes the library, a JSON file with its inputs and outputs, and a script that runs it.

    For this machine it is a shared library, for another machine an archive of object files that is linked on loading.

    Args:
        compiled: The tuned network.
        network: The network, for its inputs and the names of its outputs.
        scheduler: The scheduler that compiled it.
        target: The target that it was compiled for.
        work_dir: The folder of the files.
        about: More fields of the JSON file: how the network was tuned.
        machine: The machine that it was compiled for; this machine if None.

    Returns:
        The library's path.

    Raises:
        WorkError: the library cannot be written, loaded or run.
    """
    path = work_dir / f"{file_name(network.name)}.{'so' if machine is None else 'tar'}"
    # TVM derives the format from the suffix. The name is constant, so that the next run removes what a killed run left.
    scratch = work_dir / ".library.unfinished"
    scratch.mkdir(exist_ok=True)
    with replacing(path) as unfinished:
        exported = scratch / path.name
        # TVM calls the compiler, and raises errors of any type where it fails or is missing.
        try:
            compiled.export(exported)
            exported.replace(unfinished)
        except Exception as error:
            raise WorkError(f"TVM cannot write {path}, which needs a C++ compiler: {last_line(error)}") from error
        finally:
            shutil.rmtree(scratch)
    outputs = scheduler.load(path, machine).run(network.inputs)
    names = _output_names(network, len(outputs))
    describe = {
        "network": network.name,
        "inputs": [_described(name, array) for name, array in network.inputs.items()],
        "outputs": [_described(name, array) for name, array in zip(names, outputs, strict=True)],
        "scheduler": scheduler.name,
        "threads": usable_cores() if machine is None else None,
        "target": target,
        **about,
    }
    write_json(path.with_suffix(".json"), describe)
    script = scheduler.run_script.read_text(encoding="utf-8").replace("NETWORK.so", path.name)
    write_text(work_dir / "run.py", script.replace("NETWORK", path.stem))
    return path


def file_name(network: str) -> str:
    """A file name for a network, distinct from the other files of a work directory.

    >>> file_name("dense/0"), file_name("tuning")
    ('dense-0', 'tuning-network')
    """
    name = re.sub(r"[^\w.-]+", "-", network)
    return f"{name}-network" if name.startswith(_TAKEN) else name


def _output_names(network: Network, count: int) -> list[str]:
    """The names of the outputs, which only an ONNX model has."""
    if onnx_graphs.accepts(network.program):
        return [output.name for output in network.program.graph.output]
    return [f"output_{number}" for number in range(count)]


def _described(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}


class TunedNetwork:
    """A library of a work directory, loaded to be run.

    Args:
        path: The library, with the JSON file of its inputs and outputs beside it.

    Raises:
        InputError: a file is missing, or the library was compiled for another machine.
        WorkError: the library cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        beside = path.with_suffix(".json")
        for file in (path, beside):
            if not file.is_file():
                raise InputError(f"{file} does not exist; tune in {path.parent} again to write it")
        try:
            about = parse_json(beside.read_text(encoding="utf-8"))
            self.inputs = {
                described["name"]: (tuple(described["shape"]), np.dtype(described["dtype"]))
                for described in about["inputs"]
            }
            name, target = about["scheduler"], about["target"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{beside} does not describe a library ({error!r}); remove it and tune in {path.parent} again"
            ) from error
        scheduler = scheduler_named(name)
        here = str(scheduler.target())
        if target != here:
            raise InputError(f"{path} was compiled for {target}, and this machine is {here}; tune on this machine")
        self.loaded = scheduler.load(path)

    def run(self, inputs: Any) -> Any:
        """Runs the network; see :meth:`tvm_gnn_cost.tuning.result.TuneResult.run`.

        Raises:
            InputError: the inputs do not fit the network.
        """
        outputs = self.loaded.run(self._named(inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def _named(self, inputs: Any) -> dict[str, npt.NDArray[Any]]:
        if not isinstance(inputs, Mapping):
            inputs = inputs if isinstance(inputs, Sequence) else (inputs,)
            if len(inputs) != len(self.inputs):
                raise InputError(f"expected {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(inputs)}")
            inputs = dict(zip(self.inputs, inputs, strict=True))
        if set(inputs) != set(self.inputs):
            raise InputError(f"expected inputs {', '.join(self.inputs)}, got {', '.join(map(str, inputs))}")
        return {name: _array(name, inputs[name], *wanted) for name, wanted in self.inputs.items()}


def _array(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A value of any framework as an array of the given shape and dtype."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InputError(f"input {name}: expected {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}")
    return array.astype(dtype, copy=False)
