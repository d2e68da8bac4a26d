"""The front door: ``import tvm_gnn_cost`` and its public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tvm_gnn_cost
from tvm_gnn_cost.errors import WrongTVMError

#: Needs a TVM, see ``test_without_tvm_a_scheduler_is_refused_in_one_sentence``.
OF_A_SCHEDULER = ("GNNCostModel", "XGBBaseline")


def run(script: str) -> str:
    """What a new process without TVM prints."""
    script = f"import sys; sys.modules['tvm'] = None\n{script}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    found = run(
        "before = set(sys.modules); import tvm_gnn_cost; new = {name.partition('.')[0] for name in sys.modules};"
        "print(sorted(new & {'torch', 'numpy', 'tvm_ffi', 'pyarrow', 'xgboost', 'lightning', 'rich', 'typer'}))"
    )
    assert found == "[]"


@pytest.mark.parametrize("name", [name for name in tvm_gnn_cost.__all__ if name not in OF_A_SCHEDULER])
def test_a_public_name_is_there(name: str) -> None:
    found = getattr(tvm_gnn_cost, name)
    assert found.__name__.rpartition(".")[2] == name
    assert found.__doc__


def test_every_public_name_resolves_without_tvm() -> None:
    names = [name for name in tvm_gnn_cost.__all__ if name not in OF_A_SCHEDULER]
    assert run(f"from tvm_gnn_cost import {', '.join(names)}; print('done')") == "done"


def test_the_public_names_are_listed() -> None:
    assert set(dir(tvm_gnn_cost)) == {*tvm_gnn_cost.__all__, "__version__"}
    assert tvm_gnn_cost.__all__ == sorted(tvm_gnn_cost.__all__)
    assert tvm_gnn_cost.__version__[0].isdigit()


@pytest.mark.parametrize("name", OF_A_SCHEDULER)
def test_without_tvm_a_scheduler_is_refused_in_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(WrongTVMError, match=r"^this needs .*; found no TVM at all$") as error:
        exec(f"from tvm_gnn_cost import {name}")
    assert isinstance(error.value, ImportError)
    assert "\n" not in str(error.value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tvm_gnn_cost' has no attribute 'GNNCostModell'"):
        _ = tvm_gnn_cost.GNNCostModell
    assert not hasattr(tvm_gnn_cost, "__wrapped__")
    with pytest.raises(ImportError, match="cannot import name 'GNNCostModell'"):
        exec("from tvm_gnn_cost import GNNCostModell")
