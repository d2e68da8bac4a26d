from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tpugraphs.models.configured import graph
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.tpugraphs.models.configured_graph import KernelInput
from tvm_gnn_cost.tpugraphs.models.kernel_costs import KernelCosts, KernelCostsConfig
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import read_prepared
from tvm_gnn_cost.tpugraphs.ranking.fit import fit
from tvm_gnn_cost.tpugraphs.ranking.ranker import Ranker, score_with_all
from tvm_gnn_cost.tpugraphs.settings import recipe
from tvm_gnn_cost.xla_cpu import find_kernels

LAYOUTS = Path(__file__).parents[3] / "benchmarks/data/xla-cpu/npz/layout/xla/random"


def model(**changes) -> KernelCosts:
    torch.manual_seed(0)
    return KernelCosts(KernelCostsConfig(channels=8, **changes)).eval()


def test_the_cost_is_the_sum_of_the_kernels_costs():
    net, given = model(), graph()
    kernels = given.kernels
    # The work stands as a tenth of its logarithm to the base 2.
    cost = net.cost(kernels.features).squeeze(-1).exp() * 2 ** (10 * kernels.features[:, 0])
    total = cost[kernels.of].view(5, 3).sum(dim=1)
    expected = -net.weight * (total.log() - cost.max().log())
    torch.testing.assert_close(net(given), expected)
    assert not net.compares


def test_configurations_and_kernels_may_stand_in_any_order():
    net, given = model(), graph()
    order = torch.tensor([4, 0, 3, 1, 2])
    slots = (3 * order[:, None] + torch.tensor([2, 0, 1])).flatten()
    moved = KernelInput(given.kernels.features, given.kernels.of[slots], given.kernels.config)
    torch.testing.assert_close(net(replace(given, kernels=moved)), net(given)[order])


def test_a_configuration_without_kernels_costs_least():
    net, given = model(), graph()
    first = given.kernels.config > 0
    some = KernelInput(given.kernels.features, given.kernels.of[first], given.kernels.config[first])
    scores = net(replace(given, kernels=some))
    assert scores.argmax() == 0
    none = KernelInput(given.kernels.features[:0], given.kernels.of[:0], given.kernels.config[:0])
    assert torch.isfinite(net(replace(given, kernels=none))).all()


def test_training_leaves_channels_out():
    net, given = model(dropout=0.5), graph()
    torch.testing.assert_close(net(given), net(given))
    net.train()
    assert not torch.equal(net(given), net(given))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 0}, "channels is 0; expected 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0; expected a share below 1"),
        ({"dropout": -0.1}, "dropout is -0.1; expected a share below 1"),
        ({"kind": "tile"}, "the model kernel-costs ranks only layouts"),
    ],
)
def test_wrong_settings(changes, message: str):
    with pytest.raises(InputError, match=message):
        KernelCostsConfig(**changes)


def test_it_ranks_the_layouts_of_a_network_that_it_never_saw(tmp_path: Path):
    names = ["lstm-b", "gru-b", "mixer-b", "gmlp-a", "lstm-a"]
    files = [LAYOUTS / "train" / f"{name}.npz" for name in names]
    assert len(list(prepare_files(files, tmp_path, [], find_kernels=find_kernels))) == len(names)
    *train, test = [read_prepared(tmp_path, name) for name in names]
    settings = replace(recipe("layout:xla:random", "kernel-costs"), epochs=60, patience=60)
    ranker = fit("kernel-costs", KernelCostsConfig(), train, train[:1], settings, tmp_path / "fit")
    assert test.runtime is not None
    scores = score_with_all([ranker], test)
    assert kendall_tau(scores, -test.runtime) > 0.55
    ranker.save(tmp_path / "ranker.safetensors")
    again = Ranker.load(tmp_path / "ranker.safetensors")
    np.testing.assert_array_equal(score_with_all([again], test), scores)
    # Without kernels there is nothing that it could rank, or learn from.
    for call in (
        lambda: score_with_all([ranker], replace(test, kernels=None)),
        lambda: fit("kernel-costs", KernelCostsConfig(), [replace(test, kernels=None)], train, settings, tmp_path),
    ):
        with pytest.raises(InputError, match=r"^lstm-a: it was prepared without kernels; prepare it in another folder"):
            call()
