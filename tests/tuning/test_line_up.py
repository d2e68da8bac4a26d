from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning.line_up import MATRIX_PRODUCT, line_up, operations_per_second, peer_programs


def test_inputs_are_saved_with_their_names_and_the_matrix_product_comes_last(tmp_path: Path) -> None:
    programs = {"ours, 5 minutes": ("meta-schedule", tmp_path / "net.so"), "PyTorch": ("PyTorch", tmp_path / "net.pt2")}
    contestants, outputs = line_up(programs, {"ids": np.array([7]), "x": np.ones((2, 3), np.float32)}, tmp_path)
    assert [one.name for one in contestants] == ["ours, 5 minutes", "PyTorch", MATRIX_PRODUCT]
    runner, program, inputs, written = contestants[0].arguments
    assert (runner, program, written) == ("meta-schedule", str(tmp_path / "net.so"), str(outputs["ours, 5 minutes"]))
    with np.load(inputs) as file:
        assert file["names"].tolist() == ["ids", "x"]
        assert file["arr_0"].tolist() == [7]
        assert file["arr_1"].shape == (2, 3)
    assert contestants[-1].arguments == ()
    assert len(set(outputs.values())) == 2


def test_a_network_that_came_without_a_program_has_no_peers(tmp_path: Path) -> None:
    network = Network("softmax", None, {}, {"x": np.ones((2, 4), np.float32)}, None, None, "")
    assert peer_programs(network, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_peers_read_the_network_as_its_framework_saves_it(tmp_path: Path) -> None:
    program = torch.export.export(nn.Softmax(-1), (torch.zeros(2, 4),))
    network = Network("softmax", None, {}, {"x": np.ones((2, 4), np.float32)}, None, program, "")
    found = peer_programs(network, tmp_path)
    assert {name: runner for name, (runner, _) in found.items()} == {name: name for name in found}
    assert {"PyTorch", "torch.compile"} <= set(found)
    assert len({path for _, path in found.values()}) == 1
    assert next(path for _, path in found.values()).is_file()


def test_the_fastest_turn_counts() -> None:
    assert operations_per_second([0.2, 0.1]) == pytest.approx(2 * 1536**3 / 0.1)
