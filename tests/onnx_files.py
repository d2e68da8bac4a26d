"""ONNX files made by hand, which need no exporter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx


def perceptron(seed: int = 0) -> list[npt.NDArray[np.float32]]:
    """The weights of two layers."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) / 20 for shape in ((784, 256), (256, 10))]


def write_perceptron(path: Path, weights: list[npt.NDArray[np.float32]]) -> Path:
    """max(x @ first, 0) @ second, for any number of rows."""
    first, second = (onnx.numpy_helper.from_array(one, f"w{number}") for number, one in enumerate(weights))
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w0"], ["hidden"]),
        onnx.helper.make_node("Relu", ["hidden"], ["positive"]),
        onnx.helper.make_node("MatMul", ["positive", "w1"], ["y"]),
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", size])
        for name, size in (("x", len(weights[0])), ("y", weights[1].shape[1]))
    )
    graph = onnx.helper.make_graph(nodes, "graph", [x], [y], [first, second])
    opset = [onnx.helper.make_opsetid("", 13)]
    path.parent.mkdir(exist_ok=True)
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def run_perceptron(x: npt.NDArray[np.float32], weights: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Its output."""
    output: npt.NDArray[np.float32] = np.maximum(x @ weights[0], 0) @ weights[1]
    return output
