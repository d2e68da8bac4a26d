"""Every peer computes what the network does, however its inputs and outputs are nested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.importing.onnx_graphs import accepts as is_onnx
from tvm_gnn_cost.tuning.peers import peers_of, save_program


class Nested(nn.Module):
    """Takes a pair and a keyword argument, and returns a dictionary with a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, pair: tuple[Tensor, Tensor], shift: Tensor) -> dict[str, Any]:
        left, ids = pair
        return {"sum": self.layer(left) + shift, "others": (ids + 1, left * 2)}


INPUTS = [np.ones((2, 4), np.float32), np.array([3, 5], np.int64), np.full((3,), 0.5, np.float32)]


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    left, ids, shift = (torch.zeros_like(torch.from_numpy(one)) for one in INPUTS)
    return torch.export.export(Nested().eval(), ((left, ids),), {"shift": shift})


@pytest.fixture(scope="module")
def expected(exported: torch.export.ExportedProgram) -> list[Any]:
    left, ids, shift = map(torch.from_numpy, INPUTS)
    outputs = exported.module()((left, ids), shift=shift)
    return [one.detach().numpy() for one in (outputs["sum"], *outputs["others"])]


PACKAGES = {
    "PyTorch": "torch",
    "torch.compile": "torch",
    "torch.compile, max-autotune": "torch",
    "ExecuTorch": "executorch",
    "ONNX Runtime": "onnxruntime",
    "OpenVINO": "openvino",
    "MNN": "MNN",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_computes_what_the_network_does(
    name: str, exported: torch.export.ExportedProgram, expected: list[Any], tmp_path: Path
) -> None:
    pytest.importorskip(PACKAGES[name])
    program = save_program(exported, tmp_path)
    run = peers_of(program)[name](program, INPUTS, torch.get_num_threads())
    for outputs in (run(), run()):
        found = outputs if isinstance(outputs, list) else [outputs["sum"], *outputs["others"]]
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(left), right, atol=1e-6)
    assert not getattr(found[0], "requires_grad", False)


def test_the_peers_are_those_that_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_gnn_cost.tuning.peers.find_spec", lambda package: package if package != "MNN" else None)
    assert list(peers_of(tmp_path / "program.pt2")) == [name for name in PACKAGES if name != "MNN"]
    monkeypatch.setattr("tvm_gnn_cost.tuning.peers.find_spec", lambda _package: None)
    # Its error says what to install.
    assert list(peers_of(tmp_path / "program.onnx")) == ["ONNX Runtime"]


def test_an_onnx_model_has_its_peers(
    exported: torch.export.ExportedProgram, expected: list[Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    program = torch.onnx.export(exported, dynamo=True, verbose=False)
    assert program is not None
    assert is_onnx(program.model_proto)
    assert not is_onnx(exported)
    assert not is_onnx(None)
    path = save_program(program.model_proto, tmp_path)
    peers = peers_of(path)
    assert set(peers) <= {"ONNX Runtime", "OpenVINO", "MNN"}
    for peer in peers.values():
        np.testing.assert_allclose(peer(path, INPUTS, 1)()[0], expected[0], atol=1e-6)
    # MNN's own format is not left behind.
    assert [one.name for one in tmp_path.iterdir()] == ["program.onnx"]


@pytest.mark.parametrize(("name", "says"), [("MNN", "cannot convert"), ("OpenVINO", "cannot compile .*: .*Unknown")])
def test_an_engine_says_that_it_refuses_a_network(name: str, says: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[name])
    onnx = pytest.importorskip("onnx")
    graph = onnx.parser.parse_graph("g (float[2] x) => (float[2] y) { y = Unknown(x) }")
    path = save_program(onnx.helper.make_model(graph), tmp_path)
    with pytest.raises(WorkError, match=f"{name} {says}"):
        peers_of(path)[name](path, [np.ones(2, np.float32)], 1)
