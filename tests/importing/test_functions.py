from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.functions import call_function

MODULE = """
import torch

def drawn():
    return torch.rand(3)

def takes(size):
    return torch.rand(size)

def raises():
    return torch.rand(3) @ torch.rand(4)

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with modules in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_networks").mkdir()
    for name in ("my_networks/small.py", "my_module.py"):
        (tmp_path / name).write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import nosuch_dependency")
    (tmp_path / "my_raising.py").write_text("\nnumbers = [1, 2]\nnumbers[2]\n")
    (tmp_path / "my_syntax.py").write_text("def f(:\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    for name in [one for one in sys.modules if one.startswith("my_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["my_module:drawn", "my_networks.small:drawn"])
def test_a_function_of_the_current_directory_draws_the_same_weights_every_time(name: str) -> None:
    path = list(sys.path)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one, two = call_function(name), call_function(name)
    assert torch.equal(one, two)
    assert sys.path == path
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_nosuch:f", "there is no module 'my_nosuch' for my_nosuch:f, neither in .* nor installed"),
        ("my_networks.nosuch:f", "there is no module 'my_networks.nosuch' for"),
        ("my_module.inner:f", "there is no module 'my_module.inner' for"),
        ("my_broken:f", "my_broken:f needs the module 'nosuch_dependency', which is not installed"),
        ("my_module:nosuch", r"module 'my_module' \(.*my_module.py\) has no function 'nosuch'"),
        ("my_module:takes", "my_module:takes must be a function that takes no arguments: missing .* 'size'"),
        ("my_module:number", "has no function 'number'"),
        ("my_module:raises", r"^my_module:raises raises RuntimeError \(.*\) at line 11 of .*my_module.py$"),
        ("my_raising:f", r"module 'my_raising' raises IndexError \(.*out of range\) at line 3 of .*my_raising.py$"),
        ("my_syntax:f", r"module 'my_syntax' raises SyntaxError \(.*my_syntax.py, line 1\)"),
    ],
)
def test_what_is_missing_is_named(name: str, sentence: str) -> None:
    path = list(sys.path)
    with pytest.raises(InputError, match=sentence):
        call_function(name)
    assert sys.path == path
