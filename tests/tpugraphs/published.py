"""Small files as the data set publishes them, with random contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Fields = dict[str, Any]


def layout_fields(nodes: int = 12, configs: int = 20, seed: int = 0) -> Fields:
    """A chain of nodes, every third of them configurable; the later a configuration, the slower it is."""
    rng = np.random.default_rng(seed)
    config_ids = np.arange(0, nodes, 3)
    feat = rng.random((nodes, 140), np.float32)
    feat[:, 134:] = rng.permuted(np.tile(np.arange(6), (nodes, 1)), axis=1)
    return {
        "node_feat": feat,
        "node_opcode": rng.integers(1, 121, nodes).astype(np.uint8),
        "edge_index": np.stack([np.arange(1, nodes), np.arange(nodes - 1)], 1),
        "node_config_ids": config_ids.astype(np.int32),
        "node_config_feat": rng.integers(-1, 6, (configs, len(config_ids), 18)).astype(np.float32),
        "config_runtime": np.arange(1, configs + 1) * 1000,
        "node_splits": np.array([[0, nodes // 2]], np.int32),
    }


def tile_fields(nodes: int = 5, configs: int = 7, seed: int = 0) -> Fields:
    rng = np.random.default_rng(seed)
    return {
        "node_feat": rng.random((nodes, 140), np.float32),
        "node_opcode": rng.integers(1, 121, nodes).astype(np.uint8),
        "edge_index": np.stack([np.arange(1, nodes), np.arange(nodes - 1)], 1),
        "config_feat": rng.integers(0, 5000, (configs, 24)).astype(np.float32),
        "config_runtime": np.arange(1, configs + 1) * 10,
        "config_runtime_normalizers": np.full(configs, 20),
    }


def write(path: Path, fields: Fields, **changes: Any) -> Path:
    """The fields with some changed; None leaves one out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{name: value for name, value in (fields | changes).items() if value is not None})
    return path
