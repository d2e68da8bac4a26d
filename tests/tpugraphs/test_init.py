from __future__ import annotations

import subprocess
import sys

import pytest

from tvm_gnn_cost import tpugraphs


def test_names_are_loaded_when_they_are_used():
    script = """
import sys
from tvm_gnn_cost import tpugraphs
def loaded(): return [name for name in ("numpy", "torch", "jax", "tvm") if name in sys.modules]
assert not loaded(), loaded()
tpugraphs.prepare
assert loaded() == ["numpy"], loaded()
tpugraphs.train
assert loaded() == ["numpy", "torch"], loaded()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", tpugraphs.__all__)
def test_each_name_is_documented(name: str):
    found = getattr(tpugraphs, name)
    assert found.__name__ == name
    assert found.__doc__
    assert name in dir(tpugraphs)


def test_there_is_nothing_else():
    with pytest.raises(AttributeError, match="has no attribute 'fit_all'"):
        _ = tpugraphs.fit_all
