"""Folds batch norms into the convolutions before them, as a pass over Relax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_const, is_op, rewrite_call, wildcard

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose")


def fold_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """Folds each batch norm into the convolution before it, if nothing else reads the convolution's output.

    Weights and statistics must be constants; other batch norms are left unchanged. TVM's pass,
    ``FoldBatchnormToConv2D``, does not fold convolutions with a bias, and duplicates a convolution that has other
    users.
    """
    main = mod["main"]
    for convolution in _CONVOLUTIONS:
        for with_bias in (False, True):
            main = _fold(main, f"relax.nn.{convolution}", with_bias)
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), main)
    return relax.transform.DeadCodeElimination()(mod)


def _fold(function: relax.Function, convolution: str, with_bias: bool) -> relax.Function:
    """Folds the batch norms after one kind of convolution, either those with a bias in between or those without."""
    weight, bias, parameters = is_const(), is_const(), [is_const() for _ in range(4)]
    convolved = is_op(convolution)(wildcard(), weight)
    biased = is_op("relax.add")(convolved, is_op("relax.reshape")(bias, wildcard())) if with_bias else convolved
    norm = is_op("relax.nn.batch_norm")(biased, *parameters)
    single = _read_once(function)

    def folded(item: relax.Expr, matched: Mapping[Any, Any]) -> relax.Expr:
        call, normed = matched[convolved], matched[norm]
        inner = (normed.args[0], matched[biased].args[0]) if with_bias else (normed.args[0],)
        if not all(variable in single for variable in inner) or normed.attrs.training:
            return item
        gamma, beta, mean, variance = (_values(matched[parameter]) for parameter in parameters)
        scale = gamma / np.sqrt(variance + float(normed.attrs.epsilon))
        offset = beta + scale * ((_values(matched[bias]).reshape(-1) if with_bias else 0.0) - mean)
        dtype = str(item.ty.dtype)
        scaled = _scaled(_values(matched[weight]), scale, str(call.attrs.kernel_layout), int(call.attrs.groups))
        shape = [len(offset) if axis == "C" else 1 for axis in str(call.attrs.out_layout)]
        convolved_again = relax.Call(call.op, [call.args[0], relax.const(scaled.astype(dtype))], call.attrs)
        return relax.op.add(convolved_again, relax.const(offset.reshape(shape).astype(dtype)))

    return rewrite_call(TupleGetItemPattern(norm, 0), folded, function)


def _read_once(function: relax.Function) -> set[relax.Var]:
    """The variables with exactly one user, without the outputs of dataflow blocks."""
    return {
        variable
        for block in function.body.blocks
        if isinstance(block, relax.DataflowBlock)
        for variable, readers in relax.analysis.udchain(block).items()
        if isinstance(variable, relax.DataflowVar) and len(readers) == 1
    }


def _values(constant: Any) -> npt.NDArray[np.float64]:
    return np.asarray(constant.value.numpy(), dtype=np.float64)


def _scaled(
    weights: npt.NDArray[np.float64], scale: npt.NDArray[np.float64], layout: str, groups: int
) -> npt.NDArray[np.float64]:
    """A convolution's weights with each output channel scaled.

    Where the weights of a transposed convolution (IOHW) are in groups, each group of inputs has its own outputs.
    """
    outputs, inputs = layout.index("O"), layout.index("I")
    if weights.shape[outputs] == len(scale):
        return weights * scale.reshape([-1 if axis == outputs else 1 for axis in range(weights.ndim)])
    parts = zip(np.split(weights, groups, inputs), np.split(scale, groups), strict=True)
    return np.concatenate([_scaled(part, factors, layout, 1) for part, factors in parts], inputs)
