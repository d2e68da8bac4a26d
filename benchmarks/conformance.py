"""ONNX's own operator tests: imported, compiled with default schedules, and compared with the outputs that ONNX ships.

The verdict on a test is correct, refused (an InputError before anything is compiled), wrong, error or timeout. Tests of
strings, sequences, complex numbers and types with less than 8 bits are left out. Operands that exporters write as
constants, such as the shape of a Reshape, are constants.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from rich.table import Table

from common import console, parser, write_result
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import write_text

#: Timeout of a test.
_LIMIT_S = 120.0

#: Operator -> positions of the operands that exporters write as constants.
PARAMETERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "Unsqueeze", "Squeeze", "Split", "CumSum", "Trilu"), (1,)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), (1,)),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "CenterCropPad", "CumProd"), (1,)),
    **dict.fromkeys(("Slice", "Pad", "Resize", "Upsample"), (1, 2, 3, 4)),
    **dict.fromkeys(("ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow"), (0,)),
    **dict.fromkeys(("Range", "MelWeightMatrix"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 4, 7)),
    **dict.fromkeys(("Dropout", "AffineGrid", "Col2Im"), (1, 2)),
    **dict.fromkeys(("DFT",), (1, 2)),
    **dict.fromkeys(("STFT",), (1, 2, 3)),
    **dict.fromkeys(("OneHot", "Compress"), (1,)),
    **dict.fromkeys(("NonMaxSuppression",), (2, 3, 4)),
    **dict.fromkeys(("MaxUnpool", "ReverseSequence"), (2,)),
    **dict.fromkeys(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization"), (1, 2, 3, 4)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("Loop",), (0, 1)),
    **dict.fromkeys(("If",), (0,)),
}

_SKIPPED_TYPES = {
    getattr(TensorProto, name)
    for name in (
        *("STRING", "COMPLEX64", "COMPLEX128", "UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2"),
        *("FLOAT6E2M3", "FLOAT6E3M2"),
    )
    if hasattr(TensorProto, name)
}


def tests() -> dict[str, Any]:
    """Name -> ONNX test, without those of types that are left out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [
            case
            for kind in ("node", "simple", "pytorch-converted", "pytorch-operator")
            for case in load_model_tests(kind=kind)
        ]
    return {case.name: case for case in found if _is_counted(case)}


def model_of(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]], float, float]:
    """The model of a test with constant parameters, its pairs of inputs and outputs, and its tolerances."""
    model, sets = case.model, case.data_sets
    if model is None:
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        sets = [(_tensors(one, "input"), _tensors(one, "output")) for one in sorted(folder.glob("test_data_set_*"))]
    sets = [([_array(one) for one in inputs], [_array(one) for one in outputs]) for inputs, outputs in sets]
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    weights = {one.name for one in copied.graph.initializer}
    inputs = [one for one in copied.graph.input if one.name not in weights]
    constants = {
        node.input[place]
        for node in copied.graph.node
        for place in PARAMETERS.get(node.op_type, ())
        if place < len(node.input)
    }
    if "expanded" in case.name:
        constants |= _expanded_constants(case.name, inputs)
    # The main operand of an operator is constant only if all operands are.
    fixed = [i for i, one in enumerate(inputs) if one.name in constants]
    if fixed and len(sets) == 1:
        for i in fixed:
            copied.graph.initializer.append(numpy_helper.from_array(np.asarray(sets[0][0][i]), inputs[i].name))
        kept = [one for one in copied.graph.input if one.name not in constants]
        del copied.graph.input[:]
        copied.graph.input.extend(kept)
        sets = [([one for i, one in enumerate(values) if i not in fixed], outs) for values, outs in sets]
    return copied, sets, case.rtol, case.atol


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _expanded_constants(name: str, inputs: list[Any]) -> set[str]:
    """The parameters of a test of an operator's definition, which is named after the test of the operator."""
    base = re.sub(r"_expanded(_ver\d+)?(_function)?$", "", name)
    for operator, places in PARAMETERS.items():
        flat = re.sub(r"(?<!^)(?=[A-Z])", "_", operator).lower()
        if base.startswith((f"test_{flat}", f"test_{operator.lower()}")):
            return {inputs[place].name for place in places if place < len(inputs)}
    return set()


def _is_counted(case: Any) -> bool:
    try:
        model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    except Exception:
        return False
    values = [*model.graph.input, *model.graph.output]
    if not all(one.type.HasField("tensor_type") for one in values):
        return False
    types = {one.type.tensor_type.elem_type for one in values}
    domains = {node.domain for node in model.graph.node}
    casts = {
        attribute.i
        for node in model.graph.node
        if node.op_type == "Cast"
        for attribute in node.attribute
        if attribute.name == "to"
    }
    return not (types | casts) & _SKIPPED_TYPES and not any("training" in one for one in domains)


def _tensors(folder: Path, kind: str) -> list[Any]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda one: int(one.stem.rsplit("_", 1)[1]))
    return [numpy_helper.to_array(onnx.load_tensor(one)) for one in files]


def check(case: Any) -> tuple[str, str]:
    """The verdict on a test, and its reason."""
    import tvm
    from tvm import relax

    from tvm_gnn_cost.importing import onnx_graphs
    from tvm_gnn_cost.importing.relax.importer import import_onnx
    from tvm_gnn_cost.lowering.layouts import legalize
    from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

    model, sets, rtol, atol = model_of(case)
    weights = {one.name for one in model.graph.initializer}
    names = [one.name for one in model.graph.input if one.name not in weights]
    for inputs, expected in sets:
        try:
            shapes = {name: np.asarray(one).shape for name, one in zip(names, inputs, strict=False)}
            fixed = onnx_graphs.with_shapes(model, shapes, case.name)
            mod = import_onnx(fixed, case.name)
        except InputError as error:
            return "refused", str(error)
        machine = relax.VirtualMachine(tvm.compile(legalize(mod)[0], target=local_target()), tvm.cpu())
        found = machine["main"](*(tvm.runtime.tensor(np.array(one, order="C")) for one in inputs))
        outputs = [one.numpy() for one in (found if not hasattr(found, "numpy") else [found])]
        for own, wanted in zip(outputs, expected, strict=True):
            reason = _difference(own, np.asarray(wanted), rtol, atol)
            if reason:
                return "wrong", reason
    return "correct", ""


def _difference(own: Any, wanted: Any, rtol: float, atol: float) -> str:
    if own.shape != wanted.shape or own.dtype != wanted.dtype:
        return f"{own.dtype}{list(own.shape)} for {wanted.dtype}{list(wanted.shape)}"
    # Roundings of the type, and of the largest value where others cancel.
    finite = np.abs(wanted.astype(np.float64))
    atol = max(atol, 1e-6 * float(finite[np.isfinite(finite)].max(initial=0.0)))
    rtol = max(rtol, {"float16": 4e-3, "bfloat16": 3e-2}.get(str(own.dtype), 0.0))
    try:
        np.testing.assert_allclose(own.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def serve() -> None:
    """Checks the tests whose names are on stdin, one per line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = tests()
        print("ready", flush=True)
        for line in sys.stdin:
            name = line.strip()
            try:
                verdict, said = check(cases[name])
            except Exception as error:
                verdict, said = "error", f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"
            print(json.dumps({"test": name, "verdict": verdict, "reason": said}), flush=True)


class Worker:
    """A process that checks tests and is replaced if it crashes or hangs."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def check(self, name: str) -> dict[str, str]:
        """The verdict on a test."""
        if self.process is None:
            self._start()
        process = self.process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        try:
            while True:
                line = self.lines.get(timeout=_LIMIT_S)
                if line is None:
                    self.process = None
                    return {"test": name, "verdict": "error", "reason": f"the process died ({process.wait()})"}
                if line.startswith('{"test"'):
                    found: dict[str, str] = json.loads(line)
                    return found
        except queue.Empty:
            process.kill()
            self.process = None
            return {"test": name, "verdict": "timeout", "reason": f"not done within {_LIMIT_S:.0f} s"}

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()
        while self.lines.get() != "ready\n":
            pass

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)


def check_all(names: list[str], jobs: int) -> Iterator[dict[str, str]]:
    """The verdict on each test, in order of completion."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    done: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()

    def work() -> None:
        worker = Worker()
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                break
            done.put(worker.check(name))
        if worker.process is not None:
            worker.process.kill()

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    for _ in names:
        yield done.get()


def markdown_of(by_operator: Mapping[str, Counter[str]], found: Sequence[Mapping[str, str]]) -> str:
    """The operators with tests that are not correct, and their reasons."""
    lines = ["| operator | correct | refused | wrong or error | reason |", "|---|---|---|---|---|"]
    for operator, counts in sorted(by_operator.items()):
        if counts["correct"] == counts.total():
            continue
        reasons = {
            _reason(one["reason"]) for one in found if one["verdict"] != "correct" and one["operator"] == operator
        }
        failed = counts["wrong"] + counts["error"] + counts["timeout"]
        lines.append(
            f"| {operator} | {counts['right']} | {counts['refused']} | {failed} | {'; '.join(sorted(reasons)[:3])} |"
        )
    return "\n".join(lines) + "\n"


def _reason(said: str) -> str:
    """The reason of a verdict, without names of networks and nodes."""
    return re.sub(r"^.*?\('[^']*'[^)]*\): ", "", said).split("; export the network")[0].split("; operator")[0]


def main() -> None:
    """Checks the tests and prints a table."""
    options = parser(__doc__)
    options.add_argument("--only", default="", help="regular expression of the names of tests")
    options.add_argument("--jobs", type=int, default=2, help="number of processes")
    options.add_argument(
        "--markdown", type=Path, metavar="PATH", help="write a table of the other verdicts to this file"
    )
    arguments = options.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = tests()
    names = [name for name in cases if re.search(arguments.only, name)]
    if arguments.quick:
        names = names[:: max(1, len(names) // 180)]
    found = []
    for number, one in enumerate(check_all(names, arguments.jobs), start=1):
        found.append(one)
        if one["verdict"] != "correct":
            console.print(f"{number}/{len(names)} {one['test']}: {one['verdict']}: {one['reason'][:240]}", markup=False)
    verdicts = Counter(one["verdict"] for one in found)
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        model = cases[one["test"]].model
        first = model.graph.node[0].op_type if model is not None and model.graph.node else "models"
        one["operator"] = "definitions of operators" if "expanded" in one["test"] else first
        by_operator[one["operator"]][one["verdict"]] += 1
    table = Table("operator", "correct", "refused", "wrong", "error", "timeout")
    kinds = ("correct", "refused", "wrong", "error", "timeout")
    for operator, counts in sorted(by_operator.items()):
        table.add_row(operator, *(str(counts[kind] or "") for kind in kinds))
    table.add_row("all", *(str(verdicts[kind]) for kind in kinds))
    console.print(table)
    if arguments.markdown:
        write_text(arguments.markdown, markdown_of(by_operator, found))
    settings = {"onnx": onnx.__version__, "only": arguments.only, "limit": _LIMIT_S, "jobs": arguments.jobs}
    metrics = {
        "verdicts": {kind: verdicts[kind] for kind in kinds},
        "by_operator": {name: dict(counts) for name, counts in sorted(by_operator.items())},
        "not_correct": sorted((one for one in found if one["verdict"] != "correct"), key=lambda one: one["test"]),
    }
    write_result(arguments.json, "conformance", settings, metrics)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
