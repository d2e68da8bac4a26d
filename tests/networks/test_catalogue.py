from __future__ import annotations

import pytest
import torch

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.networks.catalogue import TRAINING, TUNED, workload
from tvm_gnn_cost.networks.operators import KINDS


def test_the_networks_by_their_names() -> None:
    assert list(TUNED) == ["resnet-18", "mobilenet-v1", "mobilenet-v2", "inception-v3"]
    assert len(TRAINING) == 15
    assert set(TUNED) & set(TRAINING) == {"mobilenet-v1"}


@pytest.mark.parametrize("name", ["resnet-18", "perceptron", "dense/3", "conv2d/12"])
def test_a_workload_is_a_module_and_the_shape_of_its_input(name: str) -> None:
    module, shape = workload(name)
    with torch.inference_mode():
        out = module.eval()(torch.zeros(shape))
    assert out.numel()
    again, same = workload(name)
    assert again is not module
    assert same == shape


@pytest.mark.parametrize("name", ["resnet", "", "dense", "dense/", "dense/-1", "dense/x", "dence/1", "resnet-18/1"])
def test_an_unknown_workload_is_named_with_those_that_there_are(name: str) -> None:
    with pytest.raises(InputError) as error:
        workload(name)
    text = str(error.value)
    assert text.startswith(f"unknown workload '{name}'; one of: resnet-18, mobilenet-v1, mobilenet-v2, inception-v3, ")
    listed = text.partition("one of: ")[2].split(", ")
    assert listed == [*dict.fromkeys([*TUNED, *TRAINING]), *(f"{kind}/N" for kind in KINDS)]
