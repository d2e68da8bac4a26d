from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.schedulers.auto_scheduler.compile import CompiledNetwork, load_library
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import schedules
from tvm_gnn_cost.schedulers.scheduler import Network, Task


def test_the_output_is_a_distribution_over_the_classes(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network, target, None)
    (output,) = compiled.run(network.inputs)
    assert (output.shape, output.dtype) == ((1, 10), np.float32)
    assert output.sum() == np.float32(1).item() or abs(output.sum() - 1) < 1e-5


def test_records_change_the_programs_and_not_the_output(
    searched: tuple[Path, Listener], network: Network, tasks: list[Task], target: Any
) -> None:
    plain = CompiledNetwork(network, target, None)
    tuned = CompiledNetwork(network, target, schedules(tasks[:2], searched[0]))
    np.testing.assert_allclose(tuned.run(network.inputs)[0], plain.run(network.inputs)[0], atol=1e-6)


def test_no_record_is_as_good_as_none(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network, target, [])
    plain = CompiledNetwork(network, target, None)
    np.testing.assert_allclose(compiled.run(network.inputs)[0], plain.run(network.inputs)[0], atol=1e-6)


def test_a_library_is_written_and_loaded(network: Network, target: Any, tmp_path: Path) -> None:
    compiled = CompiledNetwork(network, target, None)
    compiled.export(tmp_path / "net.so")
    loaded = load_library(tmp_path / "net.so")
    np.testing.assert_array_equal(loaded.run(network.inputs)[0], compiled.run(network.inputs)[0])
