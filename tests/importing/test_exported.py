from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.torch_networks import Convolutional, Recurrent, example, export_pt2, make
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.importing import exported


class Nested(nn.Module):
    """Takes a tensor and a pair, by keyword, and returns a dict."""

    def forward(self, x: torch.Tensor, *, pair: tuple[torch.Tensor, torch.Tensor], scale: int = 2) -> dict[str, object]:
        first, second = pair
        return {"sum": x + scale * first, "parts": (second, x)}


def test_nested_inputs_and_outputs_are_in_order() -> None:
    inputs = {"x": torch.zeros(2), "pair": (torch.ones(2), torch.full((1,), 5.0))}
    program = exported.export(Nested(), inputs, "net")
    assert exported.accepts(program)
    assert exported.open_shapes(program, "net") == {"x": (2,), "pair_0": (2,), "pair_1": (1,)}
    result = exported.examples(program, "net")
    assert {name: array.tolist() for name, array in result.items()} == {"x": [0, 0], "pair_0": [1, 1], "pair_1": [5]}
    assert [output.tolist() for output in exported.run(program, result)] == [[2, 2], [5], [0, 0]]


def test_arrays_are_tensors_and_one_is_a_tuple_of_one() -> None:
    for given in (torch.ones(3), np.ones(3, np.float32), (np.ones(3, np.float32),), [torch.ones(3)]):
        program = exported.export(nn.ReLU(), given, "net")
        assert exported.input_types(program, "net") == {"input": np.float32}


def test_a_module_is_exported_as_in_inference_and_left_as_it_was() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout()).train()
    module[1].eval()
    image = torch.randn(1, 1, 2, 2)
    program = exported.export(module, image, "net")
    assert [layer.training for layer in module.modules()] == [True, True, False, True]
    (results,) = exported.run(program, exported.examples(program, "net"))
    np.testing.assert_allclose(results, module.eval()(image).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("scale", [3, 0.5, None])
def test_arguments_that_are_no_tensors_are_part_of_the_network(scale: float | None) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, scale: float | None, y: torch.Tensor) -> torch.Tensor:
            return x * y if scale is None else x * scale + y

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    program = exported.export(Scaled(), (x, scale, y), "net")
    assert list(exported.open_shapes(program, "net")) == ["x", "y"]
    (result,) = exported.run(program, exported.examples(program, "net"))
    np.testing.assert_allclose(result, Scaled()(x, scale, y).numpy())
    pytest.importorskip("onnxscript")
    assert len(exported.to_onnx(program, "net").graph.input) == 2


def test_a_decoder_of_transformers_leaves_its_cache_out() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(use_cache=True)

        def forward(self, x: torch.Tensor) -> Any:
            return (2 * x, object()) if self.config.use_cache else (2 * x,)

    decoder = Decoder()
    program = exported.export(decoder, torch.ones(2), "net")
    np.testing.assert_array_equal(exported.run(program, {"x": np.ones(2, np.float32)}), [[2, 2]])
    assert decoder.config.use_cache


def test_what_cannot_be_exported_is_named() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(WorkError, match=r"torch.export cannot export net: ") as error:
        exported.export(Branching(), torch.ones(2), "net")
    assert error.value.__cause__ is not None
    assert "\n" not in str(error.value)


def test_a_type_that_numpy_lacks_is_named() -> None:
    program = exported.export(nn.ReLU(), torch.ones(2, dtype=torch.bfloat16), "net")
    with pytest.raises(InputError, match=r"input 'input' of net is torch.bfloat16, a type that NumPy lacks"):
        exported.input_types(program, "net")


def dynamic(path: Path) -> torch.export.ExportedProgram:
    """Of an open batch and height."""
    sizes = {"image": {0: torch.export.Dim("batch", max=64), 2: torch.export.Dim("height", max=64)}}
    export_pt2(make(Convolutional), path, (torch.randn(2, 3, 12, 12),), dynamic_shapes=sizes)
    return exported.read_exported(path, trusted=True)


def test_open_sizes_are_fixed_and_the_outputs_stay(tmp_path: Path) -> None:
    program = dynamic(tmp_path / "net.pt2")
    batch, three, height, width = exported.open_shapes(program, "net")["image"]
    assert isinstance(batch, str)
    assert isinstance(height, str)
    assert (three, width) == (3, 12)
    fixed = exported.with_shapes(program, {"image": (2, 3, 8, 12)}, "net")
    assert exported.open_shapes(fixed, "net") == {"image": (2, 3, 8, 12)}
    assert exported.with_shapes(fixed, {"image": (2, 3, 8, 12)}, "net") is fixed
    image = torch.randn(2, 3, 8, 12)
    (result,) = exported.run(fixed, {"image": image.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(result, make(Convolutional)(image).numpy(), atol=1e-5)
    with pytest.raises(WorkError, match=r"torch.export cannot export net with these shapes: "):
        exported.with_shapes(program, {"image": (2, 3, 128, 12)}, "net")


def test_the_digest_is_of_the_program_its_sizes_and_weights(tmp_path: Path) -> None:
    program = dynamic(tmp_path / "net.pt2")
    shapes = [{"image": (1, 3, 8, 12)}, {"image": (2, 3, 8, 12)}]
    digests = [exported.digest(exported.with_shapes(program, shape, "net")) for shape in (*shapes, shapes[0])]
    assert digests[0] == digests[2] != digests[1]
    other = make(Convolutional)
    with torch.no_grad():
        other.classify.bias[0] += 1
    before, after = (exported.export(item, example(item), "net") for item in (make(Convolutional), other))
    assert exported.digest(before) != exported.digest(after)


def test_a_file_that_nobody_trusts_is_not_read(tmp_path: Path) -> None:
    path = export_pt2(make(Recurrent), tmp_path / "net.pt2")
    with pytest.raises(InputError, match=r"net.pt2 can run any code.*--trusted.*ONNX"):
        exported.read_exported(path, trusted=False)
    assert exported.open_shapes(exported.read_exported(path, trusted=True), "net") == {"ids": (1, 5)}


def test_what_is_no_file_of_torch_export_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("torch.export"), "handle", logged.append)
    for content in (b"", b"text", b"PK\x05\x06" + bytes(18)):
        (tmp_path / "bad.pt2").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.pt2 cannot be read as a file of torch.export.save: [^\n]+$"):
            exported.read_exported(tmp_path / "bad.pt2", trusted=True)
    assert not logged
    with pytest.raises(FileNotFoundError):
        exported.read_exported(tmp_path / "nosuch.pt2", trusted=True)
    assert "Traceback" not in capfd.readouterr().err


class Mixed(nn.Module):
    """Outputs of which some are no tensors, an input that nothing reads, and one that is an output."""

    def forward(self, x: torch.Tensor, _unread: torch.Tensor) -> tuple[object, ...]:
        return {"twice": 2 * x}, None, 3, x, torch.ones(2)


def test_a_program_is_written_in_onnxs_operators_with_its_tensors_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    inputs = {"x": np.array([1.0, 2.0], np.float32), "_unread": np.zeros(3, np.float32)}
    program = exported.export(Mixed(), tuple(inputs.values()), "mixed")
    capfd.readouterr()
    model = exported.to_onnx(program, "mixed")
    assert capfd.readouterr() == ("", "")
    assert [value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.input] == [2, 3]
    names = [value.name for value in model.graph.input]
    result = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs.values(), strict=True)))
    for output, expected in zip(result, exported.run(program, inputs), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_what_pytorch_cannot_write_in_onnxs_operators_is_named_in_one_sentence() -> None:
    pytest.importorskip("onnxscript")

    class Eigenvalues(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

    program = exported.export(Eigenvalues(), (torch.randn(3, 3),), "eigen")
    with pytest.raises(WorkError, match="PyTorch cannot export eigen to ONNX: ") as error:
        exported.to_onnx(program, "eigen")
    assert "\n" not in str(error.value)


def test_an_output_may_be_a_weight() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.layer(x), self.layer.weight

    module = Tied()
    program = exported.export(module, (torch.ones(1, 2),), "net")
    np.testing.assert_array_equal(
        exported.run(program, {"x": np.ones((1, 2), np.float32)})[1], module.layer.weight.detach().numpy()
    )
