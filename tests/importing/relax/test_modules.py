from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.relax import modules as relax_modules
from tvm_gnn_cost.importing.source import load_model


def adding(value: float = 1.0, dtype: str = "int64") -> tvm.IRModule:
    """x + z, of an open number of rows; nothing reads y."""
    builder, rows = relax.BlockBuilder(), tvm.tirx.Var("rows", "int64")
    shapes = {"x": ([rows, 3], dtype), "y": ([2], "float32"), "z": ([rows, 1], dtype)}
    x, y, z = (relax.Var(name, relax.TensorType(*shape)) for name, shape in shapes.items())
    with builder.function("main", [x, y, z]):
        with builder.dataflow():
            total = builder.emit(relax.op.add(x, z))
            output = builder.emit_output(relax.op.add(total, relax.const(value, dtype)))
        builder.emit_func_output(output)
    return builder.get()


def test_parameters_are_the_inputs_and_open_sizes_are_fixed() -> None:
    mod = adding()
    assert relax_modules.accepts(mod)
    assert relax_modules.open_shapes(mod, "net") == {"x": ("rows", 3), "y": (2,), "z": ("rows", 1)}
    assert relax_modules.input_types(mod, "net") == {"x": np.int64, "y": np.float32, "z": np.int64}
    model = load_model(mod, shapes={"z": (4, 1)}, frameworks=(relax_modules,))
    assert model.name == "IRModule"
    assert model.expected is None
    assert {name: array.shape for name, array in model.inputs.items()} == {"x": (4, 3), "y": (2,), "z": (4, 1)}
    assert relax_modules.open_shapes(model.program, "net") == {"x": (4, 3), "y": (2,), "z": (4, 1)}
    assert relax_modules.with_shapes(model.program, {"x": (4, 3), "y": (2,), "z": (4, 1)}, "net") is model.program


def test_the_digest_is_of_the_module_and_its_constants() -> None:
    assert relax_modules.digest(adding()) == relax_modules.digest(adding())
    assert relax_modules.digest(adding()) != relax_modules.digest(adding(2.0))


def test_what_is_no_module_of_a_network() -> None:
    for other in (tvm.IRModule(), object(), (adding(), {})):
        assert not relax_modules.accepts(other)


def test_an_input_of_no_known_shape_is_named() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(None, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    with pytest.raises(InputError, match="input 'x' of net is not a tensor of known rank"):
        relax_modules.open_shapes(builder.get(), "net")
