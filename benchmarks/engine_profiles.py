"""Where the time of ONNX Runtime and OpenVINO goes: milliseconds by type of operator, from their own profiles."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

#: Runs that warm up, and runs whose mean counts.
_FIRST, _RUNS = 5, 20

#: Operator -> ms.
Profile = dict[str, float]

Arrays = Sequence[npt.NDArray[Any]]


def onnx_runtime(path: Path, inputs: Arrays, threads: int) -> Profile:
    """Time by operator of the graph that ONNX Runtime fused.

    Args:
        path: An ONNX file.
        inputs: In the file's order.
        threads: Number of threads.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = threads, True
    options.profile_file_prefix = str(path.with_suffix(""))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {parameter.name: array for parameter, array in zip(session.get_inputs(), inputs, strict=True)}
    for _ in range(_FIRST + _RUNS):
        session.run(None, feed)
    return by_operator(json.loads(Path(session.end_profiling()).read_text()))


def by_operator(events: Sequence[dict[str, Any]]) -> Profile:
    """The mean ms of each operator in a run, from the events of ONNX Runtime's trace, without the first runs.

    >>> kernel = {"cat": "Node", "name": "a_kernel_time", "dur": 2000, "args": {"op_name": "Conv"}}
    >>> run = {"cat": "Session", "name": "model_run", "dur": 3000, "args": {}}
    >>> by_operator([kernel, run] * 25)
    {'Conv': 2.0}
    """
    spent: Counter[str] = Counter()
    runs = 0
    for event in events:
        if event["name"] == "model_run":
            runs += 1
        # The kernels of a run come before it.
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time") and runs >= _FIRST:
            spent[event["args"]["op_name"]] += event["dur"]
    return _largest_first({name: micros / 1e3 / (runs - _FIRST) for name, micros in spent.items()})


def openvino(path: Path, inputs: Arrays, threads: int) -> Profile:
    """Time by operator of the graph that OpenVINO fused; see :func:`onnx_runtime`."""
    from openvino import Core

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERF_COUNT": True,
    }
    request = Core().compile_model(path, "CPU", settings).create_infer_request()
    spent: Counter[str] = Counter()
    for run in range(_FIRST + _RUNS):
        request.infer(dict(enumerate(inputs)))
        if run >= _FIRST:
            for one in request.get_profiling_info():
                spent[one.node_type] += one.real_time.total_seconds()
    return _largest_first({name: 1e3 * seconds / _RUNS for name, seconds in spent.items() if seconds})


def _largest_first(spent: Profile) -> Profile:
    return dict(sorted(((name, round(ms, 4)) for name, ms in spent.items()), key=lambda one: -one[1]))
