"""Chooses layouts that tiles can be vectorized in: NHWC activations, and weights packed as each schedule reads them."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from tvm_gnn_cost.lowering.constants import rearrange_constants
from tvm_gnn_cost.lowering.packing import free_weights
from tvm_gnn_cost.lowering.winograd import use_winograd


def legalize(mod: tvm.IRModule, *, winograd: bool = False) -> tvm.IRModule:
    """Lowers a Relax module to fused TensorIR functions, with convolutions in NHWC and weights in a free layout.

    Args:
        mod: A module whose weights are constants.
        winograd: Whether to compute convolutions with Winograd's filtering where it may pay.
    """
    passes: list[Callable[[tvm.IRModule], tvm.IRModule]] = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        # TVM cannot lower a transposed convolution in NHWC, and would take that over from its neighbours.
        relax.transform.ConvertLayout(
            {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv2d_transpose": ["NCHW", "IOHW"]}
        ),
        rearrange_constants,
        *([use_winograd] if winograd else []),
        relax.get_pipeline("zero"),
        free_weights,
    ]
    for one in passes:
        mod = one(mod)
    return mod
