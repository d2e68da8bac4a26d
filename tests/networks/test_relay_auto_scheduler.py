from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_gnn_cost.networks.relay import load_relay_network, local_target


@pytest.mark.parametrize("name", ["mlp", "mobilenet"])
def test_the_output_says_something_of_the_network(name: str):
    network = load_relay_network(name)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(network.mod, target=local_target(), params=network.params)
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    outputs = []
    for scale in (1.0, 1.01):
        module.set_input("data", scale * network.example)
        module.run()
        outputs.append(module.get_output(0).numpy())
    assert np.isfinite(outputs[0]).all()
    assert outputs[0].std() > 0.01 * outputs[0].mean()
    assert outputs[0].max() < 0.9
    assert np.abs(outputs[1] - outputs[0]).max() > 1e-5 * outputs[0].max()
