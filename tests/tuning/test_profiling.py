from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.profiling import profile_library

pytestmark = pytest.mark.needs("tvm")

NETWORKS = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}


def test_every_kernel_of_a_library_is_timed_and_has_its_task(tmp_path: Path) -> None:
    chosen = scheduler()
    network = chosen.network(NETWORKS[chosen.name])
    compiled = chosen.compile(network, chosen.target())
    compiled.export(tmp_path / "net.so")
    found = profile_library(chosen.name, tmp_path / "net.so", network.inputs)
    if chosen.name == "auto-scheduler":
        assert (found, compiled.tasks) == (None, {})
        return
    assert found is not None
    kernels = [kernel for kernel in found.kernels if not kernel.name.startswith("vm.builtin.")]
    tasks = {task.key: task.weight for task in chosen.tasks(network, chosen.target())}
    assert Counter(key for kernel in kernels for key in compiled.tasks[kernel.name] * kernel.calls) == tasks
    assert 0 < sum(kernel.seconds for kernel in kernels) < 2 * found.profiled
    assert found.seconds > 0


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.so").write_text("no library")
    with pytest.raises(WorkError, match=r"net\.so cannot be profiled: .*TVM cannot load"):
        profile_library(scheduler().name, tmp_path / "net.so", {})
