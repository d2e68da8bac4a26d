"""Networks of random sizes of ``benchmarks/families.py``; those that need torch alone are in the short tests."""

from __future__ import annotations

import pytest
import torch

import tests.benchmarks.test_quick  # noqa: F401  (puts the scripts on the path)
from tvm_gnn_cost.importing.source import call_function

families = pytest.importorskip("families")

#: Others need a package of the extra ``zoo``.
PLAIN = {"gru", "lstm", "quartznet", "unet"}
OF_DIFFUSERS = {"diffusion_unet", "image_autoencoder"}


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=() if one in PLAIN else pytest.mark.slow) for one in families.FAMILIES]
)
def test_a_name_is_a_network_of_a_fixed_size(family: str) -> None:
    if family not in PLAIN:
        pytest.importorskip("diffusers" if family in OF_DIFFUSERS else "transformers")
    sizes = set()
    for number in (0, 1, 2, 0):
        network, inputs = call_function(f"families:{family}_{number}")
        with torch.no_grad():
            outputs = network(*inputs)
        assert all(one.isfinite().all() for one in (outputs if isinstance(outputs, tuple) else (outputs,)))
        sizes.add((number, *(tuple(one.shape) for one in (*inputs, *network.parameters()))))
    assert len(sizes) == 3
