from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn

from tests.torch_networks import (
    Convolutional,
    Recurrent,
    Transformer,
    assert_close,
    example,
    export_onnx,
    export_pt2,
    make,
)
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.importing.relax.importer import simplified
from tvm_gnn_cost.importing.source import load_model
from tvm_gnn_cost.networks import operators
from tvm_gnn_cost.schedulers.meta_schedule.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.meta_schedule.networks import (
    extract_tasks,
    import_network,
    load_network,
    tasks_of,
)
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.scheduler import Network

#: Files as a user exports them: today's exporter, and the one before it.
FILES = {
    "net.onnx": lambda module, path: export_onnx(module, path),
    "old.onnx": lambda module, path: export_onnx(module, path, dynamo=False, opset_version=14),
    "net.pt2": export_pt2,
}


def run(network: Network) -> tuple[Any, ...]:
    return CompiledNetwork(network.mod, local_target(), None).run(network.inputs)


def assert_right(network: Network, module: nn.Module) -> None:
    """The compiled network's outputs are PyTorch's, and so are those that it is compared with."""
    inputs = {name: torch.from_numpy(array) for name, array in network.inputs.items()}
    for outputs in (run(network), network.expected):
        assert_close(outputs, module, inputs)
    assert [str(one.name) for one in network.mod["main"].params] == list(network.inputs)


@pytest.mark.parametrize("kind", [Convolutional, Transformer, Recurrent])
@pytest.mark.parametrize("file", FILES)
def test_a_file_of_pytorch_computes_what_pytorch_does(
    kind: Any, file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    module = make(kind)
    path = FILES[file](module, tmp_path / file)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        network = load_network(path, trusted=True)
    assert capfd.readouterr() == ("", "")
    assert network.name == path.stem
    assert_right(network, module)


def test_a_gru_and_real_inputs(tmp_path: Path) -> None:
    module = make(Recurrent, cell=nn.GRU)
    ids = np.array([[7, 0, 49, 3, 3]])
    network = load_network(export_onnx(module, tmp_path / "net.onnx"), {"ids": ids})
    assert network.inputs["ids"].tolist() == ids.tolist()
    assert_right(network, module)


@pytest.mark.parametrize("kind", [Transformer, Recurrent])
def test_open_sizes_are_fixed(kind: Any, tmp_path: Path) -> None:
    module = make(kind)
    open_sizes = tuple({0: "batch", 1: "length"} for _ in example(module))
    # A size of 1 is taken for a fixed one.
    path = export_onnx(module, tmp_path / "net.onnx", batch=2, dynamic_shapes=open_sizes)
    with pytest.raises(InputError, match=r"dimension 0 \(batch\) of input 'ids' of net is dynamic.*--shape ids=1,1"):
        load_network(path)
    network = load_network(path, shapes={"ids": (3, 6)})
    assert {array.shape for array in network.inputs.values()} == {(3, 6)}
    assert_right(network, module)


def test_a_module_and_a_relax_module_are_networks() -> None:
    module = make(Convolutional)
    network = load_network(module, (torch.randn(1, 3, 12, 12),))
    assert_right(network, module)
    plain = import_network(load_model(module, (torch.randn(1, 3, 12, 12),), simplified=simplified))
    assert "batch_norm" not in str(plain.mod)
    relax_network = load_network(plain.mod, dict(network.inputs))
    assert relax_network.program is relax_network.expected is None
    np.testing.assert_allclose(run(relax_network)[0], run(network)[0], atol=1e-6)
    assert extract_tasks(relax_network.mod, local_target()) == extract_tasks(network.mod, local_target())


class Several(nn.Module):
    """Inputs that nothing reads, of several types; outputs in a dict, one of them an input's own values."""

    def forward(self, x: torch.Tensor, _unused: torch.Tensor, keep: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"last": x[:, -1] * 2, "kept": torch.where(keep, x, -x), "largest": x.argmax(1)}


def test_several_inputs_and_outputs_of_several_types() -> None:
    inputs = (torch.randn(2, 3), torch.ones(4, dtype=torch.int32), torch.tensor([[True, False, True]]))
    network = load_network(Several(), inputs)
    assert [array.dtype for array in network.inputs.values()] == [np.float32, np.int32, np.bool_]
    assert network.expected is not None
    for output, expected in zip(run(network), network.expected, strict=True):
        assert output.dtype == expected.dtype
        np.testing.assert_array_equal(output, expected)
    assert [str(one.name) for one in network.mod["main"].params] == list(network.inputs)


@pytest.mark.parametrize(
    "layer", [nn.ConvTranspose2d(4, 4, 2, stride=2), nn.LayerNorm([4, 6, 6]), nn.GroupNorm(2, 4), nn.PixelShuffle(1)]
)
def test_what_lies_between_convolutions_stays_right(layer: nn.Module) -> None:
    """There the layouts of values are not those of PyTorch."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.Conv2d(4, 2, 1)).eval()
    assert_right(load_network(module, (torch.randn(1, 3, 6, 6),)), module)


def test_resnet_18_has_its_tasks() -> None:
    network = load_network("resnet-18")
    tasks = extract_tasks(network.mod, local_target())
    assert 18 < len(tasks) < 22
    assert sum(int(task.weight) for task in tasks) > 22
    assert network.digest == ""
    # Winograd's convolutions come after them; each can stand for one.
    found = tasks_of(network, local_target())
    assert found[: len(tasks)] == tasks
    weights = {task.key: task.weight for task in tasks}
    assert [weights[task.instead_of] for task in found[len(tasks) :]] == [task.weight for task in found[len(tasks) :]]
    assert sum(task.weight for task in found[len(tasks) :]) == 10
    assert all("winograd" in task.name for task in found[len(tasks) :])
    assert not any(task.instead_of for task in tasks)
    # A network without such convolutions has no alternative.
    dense = load_network("dense/0")
    assert dense.alternative is None
    extracted = extract_tasks(dense.mod, local_target())
    assert [task.key for task in tasks_of(dense, local_target())] == [task.key for task in extracted]


@pytest.mark.parametrize("kind", operators.KINDS)
def test_every_operator_has_a_task_and_is_the_same_every_time(kind: str) -> None:
    one, two = load_network(f"{kind}/1"), load_network(f"{kind}/1")
    assert extract_tasks(one.mod, local_target())
    assert one.expected is not None
    assert two.expected is not None
    np.testing.assert_array_equal(one.expected[0], two.expected[0])


def test_operators_that_cannot_be_imported_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Unwritten(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

    with pytest.raises(WorkError, match=r"PyTorch cannot export Unwritten to ONNX: .*eigh") as error:
        load_network(Unwritten(), (torch.randn(4, 4),))
    assert error.value.__cause__ is not None

    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.nonzero(), x[x > 0]

    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Sized(), (torch.randn(4),), path, dynamo=False)
    capfd.readouterr()
    with pytest.raises(InputError, match=r"net cannot be imported: .*NonZero .*depends on values"):
        load_network(path)
    assert capfd.readouterr().out == ""


def test_a_network_may_have_no_task() -> None:
    assert extract_tasks(tvm.IRModule(), local_target()) == []


class Steps(nn.Module):
    """A recurrent layer and a classifier."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layer, self.last = nn.GRU(64, hidden, num_layers=2), nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x)[0][-1])


def test_weights_of_a_small_network_stay_in_the_caches() -> None:
    network = load_network(Steps(64), (torch.randn(5, 1, 64),))
    assert all(task.is_warm for task in tasks_of(network, local_target()))


def test_weights_of_a_large_network_stay_in_the_caches_if_its_steps_share_them() -> None:
    tasks = tasks_of(load_network(Steps(512), (torch.randn(5, 1, 64),)), local_target())
    products = [task for task in tasks if "matmul" in task.name]
    # That of the state, in four steps of two layers; the first state is zero. The others are those of all inputs and of
    # the classifier.
    assert [task.weight for task in products if task.is_warm] == [8]
    assert {task.weight for task in products if not task.is_warm} == {1}


def test_layers_with_weights_of_their_own_are_measured_with_cold_weights() -> None:
    module = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)))
    tasks = tasks_of(load_network(module, (torch.randn(1, 512),)), local_target())
    assert [task.is_warm for task in tasks] == [False] * len(tasks)
    assert sum(task.weight for task in tasks) == 3
