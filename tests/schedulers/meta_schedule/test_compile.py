from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.schedulers.meta_schedule.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import fastest, open_database
from tvm_gnn_cost.schedulers.scheduler import Network, Task


def test_the_network_computes_what_pytorch_does(network: Network, target: Any) -> None:
    compiled = CompiledNetwork(network, target, None)
    np.testing.assert_allclose(compiled.run(network.example), network.expected, atol=1e-5)
    assert 0 < compiled.latency() < 1


def test_records_change_the_programs_and_not_the_output(
    searched: tuple[Path, Listener], network: Network, tasks: list[Task], target: Any
) -> None:
    before = network.mod.script()
    compiled = CompiledNetwork(network, target, fastest(tasks[:2], open_database(searched[0])))
    np.testing.assert_allclose(compiled.run(network.example), network.expected, atol=1e-5)
    assert network.mod.script() == before
