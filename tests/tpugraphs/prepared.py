"""Small prepared graphs, models and settings that train in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph, read_prepared
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS
from tvm_gnn_cost.tpugraphs.settings import RankerSettings
from tvm_gnn_cost.xla_cpu import find_kernels

SETTINGS = RankerSettings(epochs=30, patience=30, configs_per_step=32, learning_rate=3e-3)


def prepared(folder: Path, kind: str, count: int, *, prunes: bool = True) -> list[PreparedGraph]:
    """Graphs whose configurations cost what one of their values says."""
    files = []
    for seed in range(count):
        if kind == "layout":
            fields = layout_fields(nodes=9, configs=60, seed=seed)
            runtime = 2 + fields["node_config_feat"][:, :, 0].sum(axis=1) / 10
        else:
            fields = tile_fields(configs=60, seed=seed) | {"config_runtime_normalizers": np.ones(60)}
            runtime = 1 + fields["config_feat"][:, 2] / 1000
        files.append(write(folder / "npz" / f"{kind}{seed}.npz", fields, config_runtime=runtime))
    finder = find_kernels if kind == "layout" else None
    assert len(list(prepare_files(files, folder / "prepared", [], prunes=prunes, find_kernels=finder))) == count
    return [read_prepared(folder / "prepared", file.stem) for file in files]


def small(model: str, kind: str) -> Any:
    """A model's settings with few channels."""
    return MODELS[model][1](kind=kind, channels=32)
