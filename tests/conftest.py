"""Chooses the tests that the installed TVM can run.

``@pytest.mark.needs("s_tir")`` is for today's TVM, ``@pytest.mark.needs("auto_scheduler")`` for a TVM up to 0.19,
``@pytest.mark.needs("tvm")`` for either. Tests of the other environment are left out. With ``--tvm none`` no test can
import TVM; ``--tvm only`` leaves out what runs without it.

``@pytest.mark.slow`` is for tests of what faster tests cover in part: they run before a release.
``@pytest.mark.slow_with("auto_scheduler")`` is for tests of what does not depend on the scheduler: they are slow
in this environment alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

# Each worker has its own lock of the machine: no test waits until the tests of the other worker have measured.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    _OWN = tempfile.TemporaryDirectory(prefix=f"{worker}-", ignore_cleanup_errors=True)  # removed when the worker ends
    tempfile.tempdir = os.environ["TMPDIR"] = _OWN.name

from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.installed import has
from tvm_gnn_cost.measuring.contest import contest
from tvm_gnn_cost.tuning.end_to_end import compare_end_to_end

#: Folders whose tests all need a TVM; elsewhere only those marked "needs" do.
TVM_FOLDERS = [Path(__file__).parent / name for name in ("extraction", "importing/relax", "lowering", "schedulers")]

#: The files that take longest run first: at the end no process is to wait for another one's last file.
LONGEST = (
    "test_tune.py",
    "test_snippets.py",
    "test_quick.py",
    "test_full_disk.py",
    "test_collect.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tvm", choices=["none", "only"], help="block every import of TVM, or run what needs it alone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(part): run only with a TVM that has this part, or with any ('tvm')")
    config.addinivalue_line("markers", "slow: runs before a release alone (make test-all)")
    config.addinivalue_line("markers", "slow_with(part): slow with a TVM that has this part")
    if config.getoption("--tvm") == "none":
        sys.modules["tvm"] = None  # type: ignore[assignment]
    # What is timed on a busy machine means nothing, however long that takes.
    contest.__kwdefaults__["seconds"] = 0.01
    compare_end_to_end.__kwdefaults__["repeats"] = 2
    # Nine tenths of a short training would be FastText's.
    train_vectors.__kwdefaults__ |= {"walks": 2_000, "epochs": 1}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    tvm = config.getoption("--tvm")
    if tvm == "none":
        return collection_path in TVM_FOLDERS or None
    # Importing every file would take longer than some of its tests.
    is_test = tvm == "only" and collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (is_test and not in_tvm_folder(collection_path) and ".needs(" not in collection_path.read_text()) or None


def in_tvm_folder(path: Path) -> bool:
    return not set(TVM_FOLDERS).isdisjoint(path.parents)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def runs(item: pytest.Item) -> bool:
        needed = [str(mark.args[0]) for mark in item.iter_markers("needs")]
        if config.getoption("--tvm") == "only" and not needed and not in_tvm_folder(item.path):
            return False
        return all(has(part) or (part == "tvm" and (has("s_tir") or has("auto_scheduler"))) for part in needed)

    others = [item for item in items if not runs(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if runs(item)]
    items.sort(key=lambda item: item.path.name not in LONGEST)
    for item in items:
        if any(has(str(mark.args[0])) for mark in item.iter_markers("slow_with")):
            item.add_marker("slow")
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three programs of each of two operators, as ``collect`` leaves them; a test that changes the folder copies it."""
    from tvm_gnn_cost import collect

    folder = tmp_path_factory.mktemp("measured") / "data"
    collect(["softmax/0", "dense/0"], folder, random=3, guided=0, turns=1, patience_s=0)
    return folder


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
