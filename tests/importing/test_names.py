from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.names import check_network, is_function, name_of


@pytest.mark.parametrize("name", ["resnet-18", "a/b.onnx", "dense/0", ":f", "a:", "a.b", "C:\\x.onnx"])
def test_what_is_no_function(name: str) -> None:
    assert not is_function(name)


def test_a_missing_file_of_a_network_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "b.PT2").mkdir()
    for passes in (tmp_path / "a.onnx", "resnet-18", "dense/0", "models.mine:small", object(), None):
        check_network(passes)
    with pytest.raises(InputError, match=r"^there is no file .*c\.onnx$"):
        check_network(str(tmp_path / "c.onnx"))
    with pytest.raises(InputError, match=r"b\.PT2 is a folder; expected a file"):
        check_network(tmp_path / "b.PT2")
    with pytest.raises(InputError, match=r"'a\\udcff.onnx' is not Unicode; rename the file"):
        check_network("a\udcff.onnx")


@pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.pkl", "net.PT", "net.safetensors", "net.ts"])
def test_files_of_weights_and_pickles_are_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name} holds weights or a pickled object.* torch.onnx.export or"):
        check_network(name)


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_text("")
    with pytest.raises(InputError, match=r"net.tflite is not a network; expected a file that ends in .onnx or .pt2"):
        check_network(tmp_path / "net.tflite")


def test_names() -> None:
    assert name_of(Path("a/b.c.onnx")) == "b.c"
    assert name_of("squeezenet-v1.1") == "squeezenet-v1.1"
    assert name_of("dense/0") == "dense/0"
    assert name_of(nn.ReLU()) == "ReLU"
