from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.schedulers.meta_schedule.compile import CompiledNetwork, build, load_library
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import fastest, open_database
from tvm_gnn_cost.schedulers.scheduler import Network, Task


def assert_right(outputs: tuple[Any, ...], network: Network) -> None:
    assert network.expected is not None
    for output, expected in zip(outputs, network.expected, strict=True):
        np.testing.assert_allclose(output, expected, atol=1e-5)


def test_the_network_computes_what_pytorch_does(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network.mod, target, None)
    assert_right(compiled.run(network.inputs), network)


def test_records_change_the_programs_and_not_the_output(
    searched: tuple[Path, Listener], network: Network, tasks: list[Task], target: Any
) -> None:
    before = network.mod.script()
    compiled = CompiledNetwork(network.mod, target, fastest(tasks[:2], open_database(searched[0])))
    assert_right(compiled.run(network.inputs), network)
    assert network.mod.script() == before


def test_a_library_is_written_and_loaded_without_a_word(
    network: Network, target: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    CompiledNetwork(network.mod, target, None).export(tmp_path / "net.so")
    assert_right(load_library(tmp_path / "net.so").run(network.inputs), network)
    assert capfd.readouterr().err == ""


def test_all_cores_build_what_one_builds(network: Network, target: Any) -> None:
    machines = [relax.VirtualMachine(one(network.mod, target), tvm.cpu()) for one in (build, tvm.compile)]
    arrays = [tvm.runtime.tensor(one) for one in network.inputs.values()]
    ours, theirs = (machine["main"](*arrays) for machine in machines)
    # TVM takes the functions of the C library.
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_network_without_functions_is_built(target: Any) -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    mod = tvm.IRModule({"main": relax.Function([x], x).with_attr("global_symbol", "main")})
    machine = relax.VirtualMachine(build(mod, target), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(np.ones(2, np.float32))).numpy(), [1, 1])
