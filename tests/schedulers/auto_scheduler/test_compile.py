from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.schedulers.auto_scheduler.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import schedules
from tvm_gnn_cost.schedulers.scheduler import Network, Task


def test_the_output_is_a_distribution_over_the_classes(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network, target, None)
    output = compiled.run(network.example)
    assert (output.shape, output.dtype) == ((1, 10), np.float32)
    assert output.sum() == np.float32(1).item() or abs(output.sum() - 1) < 1e-5
    assert 0 < compiled.latency() < 1


def test_records_change_the_programs_and_not_the_output(
    searched: tuple[Path, Listener], network: Network, tasks: list[Task], target: Any
) -> None:
    plain = CompiledNetwork(network, target, None)
    tuned = CompiledNetwork(network, target, schedules(tasks[:2], searched[0]))
    np.testing.assert_allclose(tuned.run(network.example), plain.run(network.example), atol=1e-6)


def test_no_record_is_as_good_as_none(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network, target, [])
    np.testing.assert_allclose(
        compiled.run(network.example), CompiledNetwork(network, target, None).run(network.example), atol=1e-6
    )
