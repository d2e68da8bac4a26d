"""Tunes one network of the zoo with 0 trials and checks its library; ``zoo.py`` runs it in its own process.

The result is a JSON file that is written after every step, so that it also has the last stage of a killed run.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

import tvm_gnn_cost
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.lowering.fast_math import libm_calls
from tvm_gnn_cost.measuring.contest import contest
from tvm_gnn_cost.progress import Event, Stage
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.end_to_end import line_up
from zoo_files import FILES, exported
from zoo_modules import MODULES
from zoo_networks import Arrays, Zoo

#: All networks of the zoo, by name.
NETWORKS: dict[str, Zoo] = {one.name: one for one in (*FILES, *MODULES)}

Outputs = Sequence[npt.NDArray[Any]]

#: Number of turns of the library and of ONNX Runtime.
_TURNS = 10

_ONNX_RUNTIME = "ONNX Runtime"


def run(name: str, folder: Path, latency: bool) -> None:
    """Tunes a network, checks and times its library; the result is ``NAME.json`` in the folder."""
    network, saved, work_dir = NETWORKS[name], folder / f"{name}.json", folder / name
    work_dir.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"stage": "making the network"}
    write_json(saved, found)
    program, inputs = network.make(work_dir)
    reference, own = framework_outputs(program, inputs)
    found |= {"own_difference": own, "constant_output": all(map(_is_constant, reference))}
    given = inputs if isinstance(program, Path) else tuple(map(_tensor, inputs.values()))
    clock = _Clock(saved, found)
    try:
        tuned = tvm_gnn_cost.tune(
            copy.deepcopy(program), given, trials=0, work_dir=work_dir, compare=False, progress=clock
        )
        library = work_dir / tuned.library
        found |= {"tasks": len(tuned.tasks), "seconds": library.stat().st_mtime - clock.began, "stage": "checking it"}
        found["libm"] = sorted(libm_calls(library))
        write_json(saved, found)
        outputs = tuned.run(given)
        found |= judged(outputs if isinstance(outputs, tuple) else (outputs,), reference, max(network.limit, 3 * own))
    except (InputError, WorkError) as error:
        # The library is written before tune checks its outputs.
        verdict = "wrong" if list(work_dir.glob("*.so")) else "refused"
        found |= {"verdict": verdict, "reason": str(error)}
    except Exception as error:
        found |= {"verdict": "traceback", "reason": f"{type(error).__name__}: {error}"[:500]}
        traceback.print_exc()
    write_json(saved, found)
    if latency and found["verdict"] == "correct":
        found["milliseconds"] = milliseconds(library, program, inputs, work_dir)
        write_json(saved, found)


def framework_outputs(program: Any, inputs: Arrays) -> tuple[Outputs, float]:
    """The outputs of ONNX Runtime or PyTorch, and the difference of two ways of computing them.

    These are ONNX Runtime with and without its optimisations, and PyTorch in the network's type and the next larger.
    """
    if isinstance(program, Path):
        import onnxruntime

        outputs = []
        levels = onnxruntime.GraphOptimizationLevel
        for level in (levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level, options.log_severity_level = level, 3
            session = onnxruntime.InferenceSession(program, options, providers=["CPUExecutionProvider"])
            outputs.append(session.run(None, inputs))
    else:
        import torch

        exact = torch.float32 if next(program.parameters()).dtype is torch.float16 else torch.float64
        larger = copy.deepcopy(program).to(exact)
        outputs = []
        with torch.inference_mode():
            for module in (program, larger):
                args = [_tensor(one) for one in inputs.values()]
                if module is larger:
                    args = [one.to(exact) if one.is_floating_point() else one for one in args]
                computed = module(*args)
                outputs.append([one.numpy() for one in (computed if isinstance(computed, tuple) else (computed,))])
    usual, other = outputs
    return usual, difference(other, usual)


def _tensor(array: npt.NDArray[Any]) -> Any:
    import torch

    return torch.from_numpy(array)


def _is_constant(output: npt.NDArray[Any]) -> bool:
    """Whether an output is constant or nowhere finite, so that a comparison says nothing."""
    return bool(output.size > 1 and (output == output.flat[0]).all()) or not np.isfinite(output.astype(float)).any()


def difference(outputs: Outputs, reference: Outputs) -> float:
    """The maximum difference relative to the largest value of its output; infinite if only one value is finite."""
    largest = 0.0
    for one, other in zip(outputs, reference, strict=True):
        ours, theirs = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(theirs)
        if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
            return float("inf")
        if finite.any():
            scale = np.abs(theirs[finite]).max() or 1.0
            largest = max(largest, float(np.abs(ours[finite] - theirs[finite]).max() / scale))
    return largest


def judged(outputs: Outputs, reference: Outputs, limit: float) -> dict[str, Any]:
    """The verdict on a library's outputs, by their types and shapes and the limit of their difference."""
    if _kinds(outputs) != _kinds(reference):
        said = f"its outputs are {', '.join(_kinds(outputs))}; the framework's {', '.join(_kinds(reference))}"
        return {"verdict": "wrong", "reason": said}
    found = difference(outputs, reference)
    return {"verdict": "correct" if found <= limit else "wrong", "difference": found, "limit": limit}


def _kinds(outputs: Outputs) -> list[str]:
    return [f"{one.dtype}{list(one.shape)}" for one in outputs]


def milliseconds(library: Path, program: Any, inputs: Arrays, work_dir: Path) -> dict[str, float]:
    """Latencies of the library and of ONNX Runtime, interleaved; networks of PyTorch are exported for the latter."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "program.onnx"
        if isinstance(program, Path):
            path = program
        else:
            inputs = exported(program, inputs, path)
        programs = {"library": (scheduler().name, library), _ONNX_RUNTIME: (_ONNX_RUNTIME, path)}
        contestants, _ = line_up(programs, inputs, Path(temporary))
        timed = contest(
            *(contestants[: len(programs)], work_dir / "logs"),
            repeats=_TURNS,
            progress=lambda _event: None,
            interrupted=lambda: False,
        )
    return {one.name: 1e3 * median(one.seconds) for one in timed if one.seconds}


class _Clock:
    """Records the start of each stage of a tuning."""

    def __init__(self, saved: Path, found: dict[str, Any]) -> None:
        self.saved, self.found, self.began = saved, found, time.time()
        found["stages"] = []

    def __call__(self, event: Event) -> None:
        """Records a stage."""
        if isinstance(event, Stage):
            self.found["stage"] = event.text
            self.found["stages"].append([time.time() - self.began, event.text])
            write_json(self.saved, self.found)


def loading_seconds(stages: Sequence[tuple[float, str]]) -> float | None:
    """The time of loading the network, from the stages of its tuning; None if it did not end.

    >>> loading_seconds([(0.5, "loading the network"), (4.0, "loading the cost model")])
    3.5
    """
    for (began, text), (ended, _) in pairwise(stages):
        if text == "loading the network":
            return ended - began
    return None


def command(name: str, folder: Path, latency: bool) -> list[str]:
    """The command that runs this script for a network."""
    return [sys.executable, __file__, name, str(folder), *(["--latency"] if latency else [])]


def environment() -> Mapping[str, str]:
    """The environment of its process, without access to a model hub."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), "--latency" in sys.argv)
