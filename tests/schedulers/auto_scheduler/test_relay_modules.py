from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.source import load_model
from tvm_gnn_cost.schedulers.auto_scheduler import relay_modules


def adding(value: float = 1.0, rows: int | tvm.tir.Any = 2) -> tvm.IRModule:
    """x + w + value."""
    x, w = relay.var("x", shape=(rows, 3), dtype="int64"), relay.var("w", shape=(3,), dtype="int64")
    return tvm.IRModule.from_expr(relay.Function([x, w], x + w + relay.const(value, "int64")))


WEIGHTS = {"w": tvm.nd.array(np.arange(3))}


def test_parameters_without_weights_are_the_inputs() -> None:
    assert relay_modules.accepts(adding())
    assert relay_modules.accepts((adding(), WEIGHTS))
    assert relay_modules.open_shapes(adding(), "net") == {"x": (2, 3), "w": (3,)}
    assert relay_modules.input_types((adding(), WEIGHTS), "net") == {"x": np.int64}
    model = load_model((adding(), WEIGHTS), frameworks=(relay_modules,))
    assert {name: array.shape for name, array in model.inputs.items()} == {"x": (2, 3)}
    assert model.expected is None
    mod, params = relay_modules.with_weights(model.program)
    assert list(params) == ["w"]
    assert mod["main"] is not None


def test_the_digest_is_of_the_module_its_constants_and_weights() -> None:
    programs = [adding(), adding(2.0), (adding(), WEIGHTS), (adding(), {"w": tvm.nd.array(np.arange(3) + 1)})]
    digests = [relay_modules.digest(program) for program in programs]
    assert len(set(digests)) == 4
    assert digests[0] == relay_modules.digest(adding())


def test_open_sizes_are_named() -> None:
    with pytest.raises(
        InputError, match=r"input 'x' of net is .*; from Relay, only tensors of static shape can be tuned"
    ):
        relay_modules.open_shapes(adding(rows=relay.Any()), "net")


def test_what_is_no_module_of_a_network() -> None:
    for other in (tvm.IRModule(), object(), (adding(), 3), (3, {})):
        assert not relay_modules.accepts(other)
