"""Chooses layouts that tiles can be vectorized in: NHWC activations, and weights packed as each schedule reads them."""

from __future__ import annotations

import tvm
from tvm import relax


def legalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Lowers a Relax module to fused TensorIR functions, with convolutions in NHWC and weights in a free layout.

    Args:
        mod: A module whose weights are constants.
    """
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        # TVM cannot lower a transposed convolution in NHWC, and would take that over from its neighbours.
        relax.transform.ConvertLayout(
            {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv2d_transpose": ["NCHW", "IOHW"]}
        ),
        relax.get_pipeline("zero"),
        relax.transform.AttachAttrLayoutFreeBuffers(),
    ]
    for one in passes:
        mod = one(mod)
    return mod


def prepack(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Packs the weights of scheduled functions now, so that no run packs them again.

    Args:
        mod: What :func:`legalize` gave, with schedules applied.
        target: Where the packing runs: this machine.
    """
    with target:
        for one in (relax.transform.SplitLayoutRewritePreproc(), relax.transform.FoldConstant()):
            mod = one(mod)
    return mod
