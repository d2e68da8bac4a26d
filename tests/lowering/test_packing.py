from __future__ import annotations

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.packing import prepack
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.sampling import sample_random
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import commit
from tvm_gnn_cost.schedulers.scheduler import Outcome


def network() -> tuple[tvm.IRModule, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU6(), nn.Conv2d(16, 32, 1), nn.Hardtanh(-1.0, 0.5))
    image = torch.randn(1, 3, 10, 10)
    exported = torch.export.export(module.eval(), (image,))
    mod = correct(from_exported_program(exported, unwrap_unit_return_tuple=True))
    return mod, image, module(image).detach()


def output(mod: tvm.IRModule, image: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    machine = relax.VirtualMachine(tvm.compile(mod, target=local_target()), tvm.cpu())
    found: np.ndarray = machine["main"](tvm.runtime.tensor(image.numpy())).numpy()  # type: ignore[type-arg]
    return found


def test_weights_are_packed_when_the_network_is_compiled() -> None:
    import_tensor_intrin()
    mod, image, expected = network()
    legal, target = legalize(mod), local_target()
    schedules = ms.database.MemoryDatabase()
    for task in extract_tasks(legal, target):
        if "conv2d" in task.name:
            commit(schedules, task, sample_random(task, target, 1, seed=0), [Outcome((1.0,))], target)
    with target, schedules:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(legal)
    assert "layout_rewrite_preproc" in scheduled.script()
    packed = prepack(scheduled, target)
    assert "layout_rewrite_preproc" not in packed.script()
    np.testing.assert_allclose(output(packed, image), expected, atol=1e-5)


def test_a_weight_that_is_reshaped_alone_keeps_its_layout() -> None:
    # TVM's RewriteLayout ends the sampling of such a function with an error.
    import_tensor_intrin()
    exported = torch.export.export(nn.GroupNorm(8, 32).eval(), (torch.randn(1, 32, 7, 7),))
    mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
    (task,) = [task for task in extract_tasks(legalize(mod), local_target()) if "group_norm" in task.name]
    assert "layout_free_buffers" not in task.workload.dispatched[0].script()
    assert len(sample_random(task, local_target(), 4, seed=0)) == 4
