from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.datasets.programs import RaggedFeatures
from tvm_gnn_cost.datasets.store import GraphStore


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with six tasks, half of them of the network net1, and features that say what the graphs say."""
    programs = synthetic.programs(6, 12)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2 * len(programs), 164)).astype(np.float32)
    rows[:, 0] = np.repeat(np.log(programs.latency), 2)
    features = RaggedFeatures(rows, np.arange(0, 2 * len(programs) + 1, 2, dtype=np.int64))
    folder = tmp_path_factory.mktemp("store")
    object.__setattr__(programs, "per_store_features", features)
    GraphStore(folder).append(programs)
    return folder
