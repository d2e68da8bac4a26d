"""Trains a small model on so many devices and saves it: a command of its own, which DDP runs again for each device."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lightning.fabric.utilities.rank_zero import rank_zero_only

from tests import synthetic
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.training.fit import FitSettings, fit, new_checkpoint

# Each device would draw its own dropout.
CONFIG = replace(PRESETS["gnn"], hidden=16, head=(16,), dropout=0.0)


def main() -> None:
    """Trains with every loss at once; of each epoch's three steps the last has one task, too few for two devices."""
    devices, folder = int(sys.argv[1]), Path(sys.argv[2])
    settings = FitSettings(loss="huber+mse+hinge+list-mle+top1", epochs=3, trees=5, tasks_per_batch=4, devices=devices)
    programs = synthetic.programs(9, 40, seed=1, failed=3)
    start = new_checkpoint(CONFIG, synthetic.vectors(), programs, seed=0)
    trained = fit(start, programs, synthetic.programs(5, 16, seed=2), settings, folder / "unfinished")
    rank_zero_only(trained.save)(folder / "model.safetensors")


if __name__ == "__main__":
    main()
