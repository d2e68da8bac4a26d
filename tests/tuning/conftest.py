from __future__ import annotations

from dataclasses import replace

import pytest

from tests import synthetic
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.training.fit import new_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model that has learned nothing yet."""
    config = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))
    path = tmp_path_factory.mktemp("checkpoint") / "small.safetensors"
    new_checkpoint(config, synthetic.vectors(), synthetic.programs(4, 8), seed=0).save(path)
    return str(path)
