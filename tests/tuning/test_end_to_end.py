from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.progress import Event, Stage, ignore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Compiled, Network
from tvm_gnn_cost.tuning.end_to_end import (
    MATRIX_PRODUCT,
    compare_end_to_end,
    line_up,
    operations_per_second,
    peer_programs,
)
from tvm_gnn_cost.tuning.result import EndToEnd

NETWORKS = {"meta-schedule": "dense/0", "auto-scheduler": "mlp"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, Compiled, Path]:
    """A network, compiled and as a library."""
    network = scheduler().network(NETWORKS[scheduler().name])
    found, library = scheduler().compile(network, scheduler().target()), tmp_path_factory.mktemp("library") / "net.so"
    found.export(library)
    return network, found, library


def compare(
    network: Network,
    untuned: Compiled,
    library: Path,
    folder: Path,
    *,
    peers: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
    **options: Any,
) -> EndToEnd:
    settings = {"progress": ignore, "repeats": 2, "allowed": 3e-4} | options
    return compare_end_to_end(
        network, scheduler().name, library, untuned, folder, peers=peers, interrupted=interrupted, **settings
    )


@pytest.mark.needs("s_tir")
def test_every_peer_is_timed(compiled: tuple[Network, Compiled, Path], tmp_path: Path) -> None:
    events: list[Event] = []
    found = compare(*compiled, tmp_path / "logs", peers=True, progress=events.append)
    names = [one.name for one in found.networks]
    assert names[:3] == ["tuned", "PyTorch", "torch.compile"]
    assert set(names[3:-1]) - {"ExecuTorch"} == {"ONNX Runtime", "OpenVINO", "MNN"}
    assert names[-1] == "untuned"
    for one in found.networks:
        assert (len(one.seconds), one.failure) == (2, ""), one
        assert min(one.seconds) > 0
        assert one.difference is not None
        assert one.difference < 1e-5
    assert (found.reference, found.peers) == ("PyTorch", True)
    assert found.matrix_product is not None
    assert found.matrix_product > 1e9
    assert any(isinstance(one, Stage) and "torch.compile takes up to a minute" in one.text for one in events)
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.needs("s_tir")
def test_a_peer_that_fails_says_why(compiled: tuple[Network, Compiled, Path], tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    network, *others = compiled
    program = torch.export.export(Two(), (torch.zeros(1), torch.zeros(1)))
    found = compare(replace(network, program=program), *others, tmp_path, peers=True)
    tuned, *failures, untuned = found.networks
    assert (len(tuned.seconds), len(untuned.seconds)) == (2, 2)
    assert all(one.failure and not one.seconds for one in failures)
    failed = failures[1]
    assert (failed.difference, failed.latency) == (None, math.inf)
    assert "ValueError: the network takes 2 tensors, and 1 were given" in failed.failure
    assert failed.failure.endswith(f"its output is in {tmp_path / 'torch.compile.log'}")


@pytest.mark.needs("s_tir")
def test_a_peer_that_computes_something_else_has_no_time(
    compiled: tuple[Network, Compiled, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Near(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return 1.03 * self.layer(x)

    network, *others = compiled
    x = torch.from_numpy(next(iter(network.inputs.values())))
    program = torch.export.export(Near(network.program.module()), (x,))
    monkeypatch.setattr("tvm_gnn_cost.tuning.end_to_end.peers_of", lambda _path: ["PyTorch"])
    found = compare(replace(network, program=program), *others, tmp_path, peers=True)
    tuned, wrong, _ = found.networks
    assert (wrong.failure, wrong.seconds) == ("an output differs from PyTorch by 3% of its largest value", [])
    assert wrong.difference == pytest.approx(0.03, rel=1e-3)
    assert tuned.seconds


@pytest.mark.needs("tvm")
def test_without_peers_the_tuned_and_the_untuned_network_are_compared(
    compiled: tuple[Network, Compiled, Path], tmp_path: Path
) -> None:
    network, *others = compiled
    # A reference that is twice as large shows that it is compared with the framework's output.
    expected = scheduler().load(others[1]).run(network.inputs)
    found = compare(replace(network, expected=tuple(2 * one for one in expected)), *others, tmp_path)
    assert [(one.name, len(one.seconds), one.difference) for one in found.networks] == [
        ("tuned", 2, pytest.approx(0.5)),
        ("untuned", 2, pytest.approx(0.5)),
    ]
    assert not found.peers
    alone = compare(replace(network, expected=None), *others, tmp_path)
    assert [one.difference for one in alone.networks] == [0.0, 0.0]
    assert alone.reference == "the untuned network"


@pytest.mark.needs("tvm")
def test_a_library_that_cannot_be_run_is_an_error(compiled: tuple[Network, Compiled, Path], tmp_path: Path) -> None:
    network, untuned, _ = compiled
    (tmp_path / "net.so").write_text("no library")
    with pytest.raises(WorkError, match="the tuned network cannot be run: WorkError: TVM cannot load"):
        compare(network, untuned, tmp_path / "net.so", tmp_path)


@pytest.mark.needs("tvm")
def test_ctrl_c_ends_the_comparison(compiled: tuple[Network, Compiled, Path], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(*compiled, tmp_path, interrupted=lambda: True)


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
    assert set(peer_programs(network, tmp_path, slow=True)) - set(found) == {"torch.compile, max-autotune"}
    assert len({path for _, path in found.values()}) == 1
    assert next(path for _, path in found.values()).is_file()


def test_the_fastest_turn_counts() -> None:
    assert operations_per_second([0.2, 0.1]) == pytest.approx(2 * 1536**3 / 0.1)
