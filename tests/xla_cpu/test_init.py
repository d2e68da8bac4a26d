from __future__ import annotations

import subprocess
import sys

import pytest

from tvm_gnn_cost import xla_cpu


def test_names_are_loaded_when_they_are_used():
    script = """
import sys
from tvm_gnn_cost import xla_cpu
xla_cpu.measure
assert not [name for name in ("numpy", "torch", "jax", "tvm") if name in sys.modules]
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", xla_cpu.__all__)
def test_each_name_is_documented(name: str):
    found = getattr(xla_cpu, name)
    assert found.__name__ == name
    assert found.__doc__
    assert name in dir(xla_cpu)
    with pytest.raises(AttributeError, match="has no attribute 'measure_all'"):
        _ = xla_cpu.measure_all
