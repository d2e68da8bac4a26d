"""Networks of random sizes of ``benchmarks/families.py``, those that need torch alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tvm_gnn_cost.importing.source import call_function

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("family", ["gru", "lstm", "quartznet", "unet"])
def test_a_name_is_a_network_of_a_fixed_size(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    sizes = set()
    for number in (0, 1, 2, 0):
        network, inputs = call_function(f"families:{family}_{number}")
        with torch.no_grad():
            outputs = network(*inputs)
        assert all(one.isfinite().all() for one in (outputs if isinstance(outputs, tuple) else (outputs,)))
        sizes.add((number, *(tuple(one.shape) for one in (*inputs, *network.parameters()))))
    assert len(sizes) == 3
