"""What a user without the extras gets: the core works, and everything else names the extra that it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import synthetic
from tvm_gnn_cost.extras import missing_packages_named

#: What only extras bring.
OPTIONAL = ("fasttext", "google", "joblib", "lightning", "matplotlib", "onnx", "onnxscript", "pyarrow", "rich", "typer")

BLOCK = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, timeout=120)


def test_a_checkpoint_scores_graphs_with_the_core_alone(checkpoint: str) -> None:
    done = run(
        "from tests import synthetic; from tvm_gnn_cost import CostModel;"
        f"print(CostModel.load({checkpoint!r}).predict(synthetic.programs(1, 3).graphs).shape)"
    )
    assert done.stdout.strip() == "(3,)", done.stderr
    assert len(synthetic.programs(1, 3).graphs) == 3


@pytest.mark.needs("tvm")
def test_the_drop_in_needs_the_core_alone() -> None:
    done = run("from tvm_gnn_cost import GNNCostModel; GNNCostModel(); print('done')")
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize(("name", "extra"), [("train", "train"), ("extract", "train")])
def test_a_function_names_the_extra_that_it_needs(name: str, extra: str) -> None:
    done = run(f"from tvm_gnn_cost import {name}")
    assert done.stderr.strip().endswith(f"pip install 'tvm-gnn-cost[{extra}]'")


def test_the_command_line_says_so_in_one_sentence() -> None:
    done = run("from tvm_gnn_cost.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr == "error: this needs the package typer; pip install 'tvm-gnn-cost[tune]'\n"


def test_another_missing_module_is_no_matter_of_extras() -> None:
    with pytest.raises(ModuleNotFoundError, match="nosuch") as error, missing_packages_named():
        import nosuch  # noqa: F401
    assert type(error.value) is ModuleNotFoundError


def test_importing_the_package_changes_no_environment_variable() -> None:
    code = "import os; before = dict(os.environ)\n{}\nassert dict(os.environ) == before, set(os.environ) - set(before)"
    imports = "import tvm_gnn_cost, tvm_gnn_cost.schedulers, tvm_gnn_cost.tuning.tune, tvm_gnn_cost.tpugraphs"
    done = subprocess.run([sys.executable, "-c", code.format(imports)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
