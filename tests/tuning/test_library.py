from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.library import TunedNetwork, file_name, write_library


class Gather(nn.Module):
    """Two inputs of different types, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, ids: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(self.table(ids) * scale), scale + 1


IDS, SCALE = torch.tensor([1, 7, 3]), torch.tensor([[2.0]])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A library of two inputs, and its module."""
    module = Gather().eval()
    network = scheduler().network(module, (IDS, SCALE))
    folder = tmp_path_factory.mktemp("library")
    compiled = scheduler().compile(network, scheduler().target())
    about = {"tuned": {"trials": 3}}
    return write_library(compiled, network, scheduler(), str(scheduler().target()), folder, about), module


@pytest.mark.needs("s_tir")
def test_the_file_beside_it_says_what_it_takes_and_gives(library: tuple[Path, Any]) -> None:
    path, _ = library
    assert sorted(one.name for one in path.parent.iterdir()) == [path.stem + ".json", path.name, "run.py"]
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["inputs"] == [
        {"name": "ids", "shape": [3], "dtype": "int64"},
        {"name": "scale", "shape": [1, 1], "dtype": "float32"},
    ]
    assert about["outputs"] == [
        {"name": "output_0", "shape": [3, 4], "dtype": "float32"},
        {"name": "output_1", "shape": [1, 1], "dtype": "float32"},
    ]
    assert about["tuned"] == {"trials": 3}
    assert about["scheduler"] == "meta-schedule"
    assert about["threads"] > 0
    assert path.stem in (path.parent / "run.py").read_text()


@pytest.mark.needs("s_tir")
def test_it_runs_on_arrays_and_tensors_in_order_or_by_name(library: tuple[Path, Any]) -> None:
    path, module = library
    network = TunedNetwork(path)
    expected = [one.detach().numpy() for one in module(IDS, SCALE)]
    for inputs in (
        (IDS, SCALE),
        [IDS.numpy(), SCALE.numpy()],
        {"scale": SCALE.requires_grad_(), "ids": IDS},
        # Numbers in Python and in wider types of the same kind are taken too.
        ([1, 7, 3], np.array([[2.0]])),
    ):
        found = network.run(inputs)
        assert isinstance(found, tuple)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.needs("s_tir")
@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (IDS, "expected 2 inputs .ids, scale., got 1"),
        ((IDS, SCALE, SCALE), "expected 2 inputs .ids, scale., got 3"),
        ({"ids": IDS, "factor": SCALE}, "expected inputs ids, scale, got ids, factor"),
        ((IDS[:2], SCALE), r"input ids: expected int64\[3\], got int64\[2\]"),
        ((IDS.float(), SCALE), r"input ids: expected int64\[3\], got float32\[3\]"),
    ],
)
def test_other_inputs_are_refused(library: tuple[Path, Any], inputs: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TunedNetwork(library[0]).run(inputs)


@pytest.mark.needs("s_tir")
def test_without_a_compiler_no_library_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = scheduler().network(nn.ReLU(), (SCALE,))
    compiled = scheduler().compile(network, scheduler().target())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "")
    with pytest.raises(WorkError, match=r"TVM cannot write .*\.so, which needs a C\+\+ compiler: "):
        write_library(compiled, network, scheduler(), "", tmp_path, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("s_tir")
def test_a_library_of_another_machine_and_a_damaged_one_are_refused(library: tuple[Path, Any], tmp_path: Path) -> None:
    path, about = tmp_path / "net.so", json.loads(library[0].with_suffix(".json").read_text())
    path.write_text("no library")
    path.with_suffix(".json").write_text(json.dumps(about | {"target": "elsewhere"}))
    with pytest.raises(InputError, match=r"net\.so was compiled for elsewhere, and this machine is "):
        TunedNetwork(path)
    path.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(WorkError, match=r"TVM cannot load .*net\.so"):
        TunedNetwork(path)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    with pytest.raises(InputError, match=r"net\.so does not exist; tune in "):
        TunedNetwork(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"net\.json does not exist; tune in "):
        TunedNetwork(path)
    for damaged in ("{", "[]", "{}", '{"inputs": [{"name": "x"}]}'):
        path.with_suffix(".json").write_text(damaged)
        with pytest.raises(InputError, match=r"net\.json does not describe a library .*; remove it and tune in "):
            TunedNetwork(path)


def test_names_of_files() -> None:
    assert [file_name(name) for name in ("resnet-18", "dense/0", "package.module:net", "tuning", "database_x")] == [
        *("resnet-18", "dense-0", "package.module-net", "tuning-network", "database_x-network"),
    ]
