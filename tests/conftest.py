"""Chooses the tests that the installed TVM can run.

``@pytest.mark.needs("s_tir")`` is for today's TVM, ``@pytest.mark.needs("auto_scheduler")`` for a TVM up to 0.19,
``@pytest.mark.needs("tvm")`` for either. Tests of the other environment are left out. With ``--no-tvm`` no test can
import TVM.
"""

from __future__ import annotations

import sys

import pytest

from tvm_gnn_cost.schedulers.installed import has


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-tvm", action="store_true", help="block every import of TVM")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(part): run only with a TVM that has this part, or with any ('tvm')")
    if config.getoption("--no-tvm"):
        sys.modules["tvm"] = None  # type: ignore[assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def runs(item: pytest.Item) -> bool:
        needed = [str(mark.args[0]) for mark in item.iter_markers("needs")]
        return all(has(part) or (part == "tvm" and (has("s_tir") or has("auto_scheduler"))) for part in needed)

    others = [item for item in items if not runs(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if runs(item)]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model that has learned nothing yet."""
    from dataclasses import replace

    from tests import synthetic
    from tvm_gnn_cost.models.topk_gnn import PRESETS
    from tvm_gnn_cost.training.fit import new_checkpoint

    config = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))
    path = tmp_path_factory.mktemp("checkpoint") / "small.safetensors"
    new_checkpoint(config, synthetic.vectors(), synthetic.programs(4, 8), seed=0).save(path)
    return str(path)
