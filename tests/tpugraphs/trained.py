"""A small collection as published, prepared, with a model trained on it; made once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.tpugraphs.published import layout_fields, write
from tvm_gnn_cost import tpugraphs
from tvm_gnn_cost.tpugraphs.ranking.training import TrainResult
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings

COLLECTION = "layout:xla:random"


@dataclass(frozen=True)
class Example:
    """The folders; ``models`` was trained on train and valid, and one of these graphs validated it."""

    root: Path
    prepared: Path
    models: Path
    trained: TrainResult


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer than these tensors."""
    with _one_thread():
        yield


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    folder = tmp_path_factory.mktemp("tpugraphs")
    root = folder / "data"
    for seed in range(3):
        write(root / f"npz/layout/xla/random/train/g{seed}.npz", layout_fields(seed=seed))
    write(root / "npz/layout/xla/random/valid/v.npz", layout_fields(seed=3))
    write(root / "npz/layout/xla/random/test/t.npz", layout_fields(configs=4, seed=4), config_runtime=None)
    tpugraphs.prepare(root, folder / "prepared")
    ensemble = EnsembleSettings(folds=4, trained=2, kept=1)
    options = {"epochs": 2, "changes": {"channels": 16}, "ensemble": ensemble}
    with _one_thread():
        trained = tpugraphs.train(folder / "prepared", COLLECTION, folder / "models", **options)
    return Example(root, folder / "prepared", folder / "models", trained)
