"""Times a tuned library by kernel, in a separate process, as :mod:`tvm_gnn_cost.tuning.contestant` times it whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.files import parse_json, write_json
from tvm_gnn_cost.measuring.machine import machine_to_itself, use_all_cores
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.schedulers.scheduler import Profile
from tvm_gnn_cost.typed_json import from_json


def profile_library(scheduler: str, library: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> Profile | None:
    """The time of a library by kernel; None if the scheduler's runtime has no profiler.

    Args:
        scheduler: Name of the scheduler that compiled it.
        library: The library.
        inputs: The network's inputs, in its order.

    Raises:
        WorkError: the process failed.
    """
    with TemporaryDirectory() as temporary, machine_to_itself():
        arrays, written = Path(temporary) / "inputs.npz", Path(temporary) / "profile.json"
        np.savez(arrays, *inputs.values())
        command = [sys.executable, "-P", "-m", __name__, scheduler, str(library), str(arrays), str(written)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2] or f"its process ended with exit code {done.returncode}"
            raise WorkError(f"{library} cannot be profiled: {last}")
        found = parse_json(written.read_bytes())
    return None if found is None else from_json(Profile, found)


def main(scheduler: str, library: str, inputs: str, written: str) -> None:
    """Profiles a library and writes the profile as JSON.

    Args:
        scheduler: Name of the scheduler that compiled it.
        library: The library.
        inputs: An npz file with the inputs in order.
        written: The file to write; it holds ``null`` if the runtime has no profiler.
    """
    use_all_cores()
    # tvm_ffi imports torch where it is installed, which takes a second and which a library does not need.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    with np.load(inputs) as file:
        profile = package(scheduler).load_library(Path(library)).profile(dict(file))
    write_json(Path(written), None if profile is None else asdict(profile))


if __name__ == "__main__":
    main(*sys.argv[1:])
