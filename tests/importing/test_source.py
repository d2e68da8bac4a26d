from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from tests.torch_networks import Convolutional, Transformer, assert_close, export_onnx, export_pt2, make
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing import exported
from tvm_gnn_cost.importing.control_flow import EXPANSIONS
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.simplify import simplify
from tvm_gnn_cost.importing.source import Model, call_function, load_model
from tvm_gnn_cost.networks.catalogue import drawn_workload

FUNCTIONS = """
import torch
from tests.torch_networks import Transformer, example, make

def small():
    module = make(Transformer)
    return module, tuple(example(module).values())

def program():
    return torch.export.export(*small())

def alone():
    return make(Transformer)

def number():
    return 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with networks in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_functions.py").write_text(FUNCTIONS)
    return tmp_path


def assert_right(model: Model, module: nn.Module) -> None:
    """The model's outputs are PyTorch's."""
    assert_close(model.expected, module, {name: torch.from_numpy(array) for name, array in model.inputs.items()})


def test_a_name_of_the_catalogue_needs_no_digest() -> None:
    model = load_model("perceptron")
    module, (drawn,) = drawn_workload("perceptron")
    np.testing.assert_array_equal(model.inputs["input"], drawn.numpy())
    assert_right(model, module)
    assert (model.name, model.digest) == ("perceptron", "")
    assert isinstance(model.program, torch.export.ExportedProgram)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_file_is_a_network_of_its_stems_name(suffix: str, folder: Path) -> None:
    module = make(Transformer)
    path = (export_onnx if suffix == ".onnx" else export_pt2)(module, folder / f"my.net{suffix}")
    for source in (path, str(path), path.name):
        model = load_model(source, trusted=True)
        assert model.name == "my.net"
        assert {name: (operand.shape, operand.dtype) for name, operand in model.inputs.items()} == {
            "ids": ((1, 5), np.int64),
            "mask": ((1, 5), np.int64),
        }
        assert len(model.digest) == 64
        if suffix == ".pt2":
            assert_right(model, module)
    given = {"ids": np.array([[3, 1, 4, 1, 5]]), "mask": np.array([[1, 1, 1, 1, 0]])}
    for inputs in (given, tuple(given.values()), {"mask": torch.from_numpy(given["mask"])}):
        model = load_model(path, inputs, trusted=True)
        np.testing.assert_array_equal(model.inputs["mask"], given["mask"])
        assert (list(model.inputs["ids"][0]) == [3, 1, 4, 1, 5]) == (len(inputs) == 2)


@pytest.mark.usefixtures("folder")
def test_a_function_gives_a_module_or_a_program() -> None:
    module, exported = load_model("my_functions:small"), load_model("my_functions:program")
    assert (module.name, exported.name) == ("small", "program")
    assert_right(module, make(Transformer))
    assert_right(exported, make(Transformer))
    # The values that it returns are used; those of the user come before them.
    assert module.inputs["mask"].tolist() == [[1, 1, 1, 0, 0]]
    ids = np.array([[3, 1, 4, 1, 5]])
    mine = load_model("my_functions:small", {"ids": ids})
    assert mine.inputs["ids"].tolist() == ids.tolist()
    assert mine.inputs["mask"].tolist() == [[1, 1, 1, 0, 0]]
    assert mine.digest == module.digest


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("my_functions:alone", "alone is an nn.Module: pass its example inputs too"),
        ("my_functions:number", "number is int, not a network: use an nn.Module with example inputs"),
        ("my_functions", r"unknown workload 'my_functions'; one of: resnet-18.*; or package.module:function"),
    ],
)
def test_a_function_that_gives_no_network_is_named(source: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_model(source)


def test_objects_are_networks_of_their_classes_names(tmp_path: Path) -> None:
    module = make(Convolutional)
    image = torch.randn(2, 3, 8, 8)
    of_module = load_model(module, (image,))
    by_name = load_model(module, {"image": image.numpy()})
    of_program = load_model(exported.export(module, image, "net"), (image,))
    for model in (of_module, by_name, of_program):
        np.testing.assert_array_equal(model.inputs["image"], image.numpy())
        assert_right(model, module)
    assert of_module.digest == by_name.digest == of_program.digest
    proto = onnx.load(export_onnx(module, tmp_path / "net.onnx", dynamo=False))
    assert [item.name for item in (of_module, of_program, load_model(proto))] == [
        "Convolutional",
        "ExportedProgram",
        "ModelProto",
    ]
    with pytest.raises(InputError, match=r"Convolutional is an nn.Module: pass its example inputs too"):
        load_model(module)


def test_open_sizes_are_fixed_by_shapes_or_inputs(tmp_path: Path) -> None:
    sizes: Any = {"image": {0: torch.export.Dim("batch"), 2: torch.export.Dim("height", max=64)}}
    module, image = make(Convolutional), torch.randn(2, 3, 12, 12)
    pt2 = export_pt2(module, tmp_path / "net.pt2", (image,), dynamic_shapes=sizes)
    file = export_onnx(module, tmp_path / "net.onnx", dynamic_axes={"image": [0, 2]}, dynamo=False)
    for path in (pt2, file):
        with pytest.raises(InputError, match=r"dimension 0 .* of input 'image' .* dynamic.*--shape image=1,3,1,12"):
            load_model(path, trusted=True)
        for inputs, shapes in ((None, {"image": (3, 3, 8, 12)}), ((torch.ones(3, 3, 8, 12),), None)):
            model = load_model(path, inputs, shapes, trusted=True)
            assert model.inputs["image"].shape == (3, 3, 8, 12)
            if path is pt2:
                assert_right(model, module)


def test_inputs_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = export_onnx(make(Transformer), tmp_path / "net.onnx", dynamo=False)
    ids = np.zeros((1, 5), np.int64)
    for inputs, sentence in (
        ({"tokens": ids}, "net has no input 'tokens'; it has: ids, mask"),
        ({"ids": ids[:, :4]}, "the shape 1,4 does not fit input 'ids' of net, which is 1,5"),
        ({"ids": ids.astype(np.int32)}, r"the example of input 'ids' is int32\[1,5\]; net wants int64"),
        ((ids, ids, ids), r"net has 2 inputs \(ids, mask\), not 3"),
    ):
        with pytest.raises(InputError, match=sentence):
            load_model(path, inputs)


def test_a_pt2_file_is_read_only_if_it_is_trusted(tmp_path: Path) -> None:
    path = export_pt2(make(Convolutional), tmp_path / "net.pt2")
    with pytest.raises(InputError, match=r"can run any code in it: .*--trusted"):
        load_model(path)


def simplified(made: onnx.ModelProto, name: str) -> Graph:
    return simplify(made, name, ("Gather", "Mul", "Add", "MatMul", "Cast"), EXPANSIONS)


def embedding(dtype: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    """Rows of a table, scaled."""
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["rows"]),
        onnx.helper.make_node("Cast", ["rows"], ["cast"], to=dtype),
        onnx.helper.make_node("Mul", ["cast", "scale"], ["y"]),
    ]
    table = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    scale = onnx.helper.make_tensor("scale", dtype, [], [2.0])
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [2, 16])],
        [onnx.helper.make_tensor_value_info("y", dtype, [2, 16, 3])],
        [onnx.numpy_helper.from_array(table, "table"), scale],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def test_indices_are_drawn_from_all_that_are_valid() -> None:
    model = load_model(embedding(), simplified=simplified)
    assert model.graph is not None
    assert 30 < model.inputs["ids"].max() < 40
    assert load_model(embedding()).inputs["ids"].max() == 1


def test_a_second_run_tells_how_far_frameworks_differ() -> None:
    pytest.importorskip("onnxruntime")
    module = make(Convolutional)
    pytest.importorskip("onnxscript")
    model = load_model(module, (torch.randn(1, 3, 12, 12),), simplified=lambda *_: Graph((), (), ()))
    assert 0 <= model.noise < 1e-5


def test_a_type_that_numpy_lacks_is_refused_at_the_border_alone() -> None:
    with pytest.raises(InputError, match="output 'y' of ModelProto is bfloat16, a type that NumPy lacks; cast it"):
        load_model(embedding(onnx.TensorProto.BFLOAT16), simplified=simplified)


MODULE = """
import torch

def drawn():
    return torch.rand(3)

def takes(size):
    return torch.rand(size)

def raises():
    return torch.rand(3) @ torch.rand(4)

number = 3
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with modules in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_networks").mkdir()
    for name in ("my_networks/small.py", "my_module.py"):
        (tmp_path / name).write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import nosuch_dependency")
    (tmp_path / "my_raising.py").write_text("\nnumbers = [1, 2]\nnumbers[2]\n")
    (tmp_path / "my_syntax.py").write_text("def f(:\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    for name in [module for module in sys.modules if module.startswith("my_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", ["my_module:drawn", "my_networks.small:drawn"])
def test_a_function_of_the_current_directory_draws_the_same_weights_every_time(name: str) -> None:
    path = list(sys.path)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, second = call_function(name), call_function(name)
    assert torch.equal(first, second)
    assert sys.path == path
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_nosuch:f", "there is no module 'my_nosuch' for my_nosuch:f, neither in .* nor installed"),
        ("my_networks.nosuch:f", "there is no module 'my_networks.nosuch' for"),
        ("my_module.inner:f", "there is no module 'my_module.inner' for"),
        ("my_broken:f", "my_broken:f needs the module 'nosuch_dependency', which is not installed"),
        ("my_module:nosuch", r"module 'my_module' \(.*my_module.py\) has no function 'nosuch'"),
        ("my_module:takes", "my_module:takes must be a function that takes no arguments: missing .* 'size'"),
        ("my_module:number", "has no function 'number'"),
        ("my_module:raises", r"^my_module:raises raises RuntimeError \(.*\) at line 11 of .*my_module.py$"),
        ("my_raising:f", r"module 'my_raising' raises IndexError \(.*out of range\) at line 3 of .*my_raising.py$"),
        ("my_syntax:f", r"module 'my_syntax' raises SyntaxError \(.*my_syntax.py, line 1\)"),
    ],
)
def test_what_is_missing_is_named(name: str, sentence: str) -> None:
    path = list(sys.path)
    with pytest.raises(InputError, match=sentence):
        call_function(name)
    assert sys.path == path
