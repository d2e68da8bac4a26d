"""Imports an ONNX model with static shapes into Relax: it is simplified, then converted operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Importing them registers their rules.
from tvm_gnn_cost.importing import (
    batch_norm,
    control_flow,
    einsum,
    fourier,
    interpolation,
    machine_learning,
    microsoft,
    ngrams,
    quantized,
    recurrent,
    selections,
)
from tvm_gnn_cost.importing.relax import (  # noqa: F401
    elementwise,
    indexing,
    movement,
    normalization,
    ordering,
    pooling,
    products,
    reductions,
    resizing,
    sampling,
    scattering,
)
from tvm_gnn_cost.importing.relax.convert import to_relax
from tvm_gnn_cost.importing.relax.rules import RULES
from tvm_gnn_cost.importing.simplify import simplify

if TYPE_CHECKING:
    import onnx
    import tvm

    from tvm_gnn_cost.importing.graph import Graph

#: Operator -> its expansion to other ONNX operators.
EXPANSIONS = {
    **batch_norm.EXPANSIONS,
    **control_flow.EXPANSIONS,
    **einsum.EXPANSIONS,
    **fourier.EXPANSIONS,
    **quantized.EXPANSIONS,
    **recurrent.EXPANSIONS,
    **selections.EXPANSIONS,
    **interpolation.EXPANSIONS,
    **machine_learning.EXPANSIONS,
    **microsoft.EXPANSIONS,
    **ngrams.EXPANSIONS,
}


def simplified(model: onnx.ModelProto, name: str) -> Graph:
    """The primitive operators of a model; there is a rule for each.

    Raises:
        InputError: it has operators that cannot be imported.
    """
    return batch_norm.fold(simplify(model, name, RULES, EXPANSIONS))


def import_onnx(model: onnx.ModelProto, name: str) -> tvm.IRModule:
    """A model as a Relax module whose weights are constants.

    Raises:
        InputError: it has operators that cannot be imported, or unsupported uses of operators.
    """
    return to_relax(simplified(model, name), name)
