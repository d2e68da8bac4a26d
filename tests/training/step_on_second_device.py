"""A training and a validation step of each preset on a second device; prints what happened as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests import synthetic
from tests.second_device import DEVICE, SecondDevice
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import FitModule, FitSettings, TaskBatches, new_checkpoint


def run(preset: str) -> dict[str, Any]:
    # Every loss at once. Dropout would draw other numbers on either device.
    settings = FitSettings(loss="huber+mse+hinge+list-mle+top1")
    config = replace(PRESETS[preset], hidden=16, head=(16,), dropout=0.0)
    programs = synthetic.programs(4, 8, failed=1)
    programs = replace(programs, graphs=replace(programs.graphs, detail=config.detail))
    scorer = Scorer(new_checkpoint(config, synthetic.vectors(config.type_dim), programs, seed=0))
    step = TaskBatches(programs, scorer, settings, shuffle=False).step(np.arange(32))

    module = FitModule(scorer.model, settings)
    logged: dict[str, Tensor] = {}
    module.log = lambda name, value, **_options: logged.update({name: value})  # type: ignore[method-assign]

    def steps(inputs: Any) -> tuple[float, list[Tensor], float]:
        module.zero_grad()
        loss = module.training_step(inputs, 0)
        loss.backward()  # type: ignore[no-untyped-call]
        module.validation_step(inputs, 0)
        gradients = [parameter.grad.cpu() for parameter in module.parameters() if parameter.grad is not None]
        return loss.item(), gradients, float(logged["validation_error"])

    def error_of(inputs: Any) -> str:
        try:
            module.training_step(inputs, 0)
        except RuntimeError as error:
            return str(error)
        return ""

    here = steps(step)
    with SecondDevice():
        moved = module.transfer_batch_to_device(step, DEVICE, 0)
        left_behind = error_of(moved)
        module.to(DEVICE)
        there = steps(moved)
        tensors = [tensor for tensor in vars(moved.batch).values() if isinstance(tensor, Tensor)]
        return {
            "batch": devices([*tensors, *moved[1:]]),
            "module": devices(module.state_dict().values()),
            "gradients": devices(parameter.grad for parameter in module.parameters()),
            "same loss": here[0] == there[0],
            "same gradients": all(torch.equal(a, b) for a, b in zip(here[1], there[1], strict=True)),
            "same validation": here[2] == there[2],
            "vectors left behind": error_of(
                moved._replace(batch=replace(moved.batch, type_vectors=step.batch.type_vectors))
            ),
            "weights left behind": left_behind.endswith("reads tensors of two devices"),
        }


def devices(tensors: Any) -> list[str]:
    return sorted({str(tensor.device) for tensor in tensors})


if __name__ == "__main__":
    print(json.dumps({preset: run(preset) for preset in PRESETS}))
