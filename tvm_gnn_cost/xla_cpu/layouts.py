"""Constrains the layouts of the dots, convolutions and reshapes of a JAX function.

A configuration is TpuGraphs': int8[nc, 18], for each configurable operation the layouts of its output, input and
weight, 6 values each, minor to major, padded with -1. XLA chooses the layout of a tensor whose 6 values are all -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import LAYOUT_RANK, LAYOUT_VALUES, NO_DIMENSION
from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto

Config = npt.NDArray[np.int8]
# Marks the configurable instructions in the HLO, to which JAX adds further reshapes.
_TAG = "configured"
_CONFIGURABLE = ("convolution", "dot", "reshape")


class Operations:
    """The operations that a network is written with; each dot, convolution and reshape is a configurable node.

    Args:
        arrays: The network's parameters in the order in which :meth:`parameter` is called; by default zeros.
        config: int8[nc, 18], the layouts of the configurable nodes in the order of their calls; None leaves all of
            them to the compiler.

    Attributes:
        shapes: The parameters' shapes so far.
        ranks: For each configurable node so far the ranks of its output, its input and, except for a reshape, its
            weight.
    """

    def __init__(self, arrays: Sequence[Array] | None = None, config: Config | None = None) -> None:
        self._arrays, self._config = arrays, config
        self.shapes: list[tuple[int, ...]] = []
        self.ranks: list[tuple[int, ...]] = []

    def parameter(self, *shape: int) -> Array:
        """The next input or weight, float32 of the given shape."""
        self.shapes.append(shape)
        return jax.numpy.zeros(shape) if self._arrays is None else self._arrays[len(self.shapes) - 1]

    def dot(self, x: Array, weight: Array, batch: int = 0) -> Array:
        """A product over the last axis of ``x`` and the first of ``weight`` after their ``batch`` leading axes."""
        both = tuple(range(batch))
        numbers = (((x.ndim - 1,), (batch,)), (both, both))
        return self._configured(lambda a, b: lax.dot_general(a, b, numbers), x, weight)

    def convolution(self, x: Array, weight: Array, stride: int = 1, groups: int = 1) -> Array:
        """A 2-D convolution of NHWC with an HWIO weight, padded so that a stride of 1 keeps the size."""
        return self._configured(
            lambda a, b: lax.conv_general_dilated(
                *(a, b, (stride, stride), "SAME"),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            ),
            *(x, weight),
        )

    def reshape(self, x: Array, *shape: int) -> Array:
        """A row-major reshape as in NumPy; one size may be -1."""
        sizes = np.empty(x.shape, bool).reshape(shape).shape
        return self._configured(lambda a: lax.reshape(a, sizes), x)

    def _configured(self, compute: Callable[..., Array], *inputs: Array) -> Array:
        number = len(self.ranks)
        with jax.named_scope(f"{_TAG}{number}"):
            y = compute(*(self._constrained(x, number, place) for place, x in enumerate(inputs, 1)))
            self.ranks.append((y.ndim, *(x.ndim for x in inputs)))
            return self._constrained(y, number, 0)

    def _constrained(self, x: Array, number: int, place: int) -> Array:
        if self._config is None:
            return x
        minor_to_major = self._config[number, LAYOUT_RANK * place :][: x.ndim].tolist()
        if NO_DIMENSION in minor_to_major:
            return x
        constrained: Array = with_layout_constraint(x, Layout(tuple(reversed(minor_to_major))))
        return constrained


class ConfigurableFunction:
    """A function of :class:`Operations` whose layouts can be chosen.

    Attributes:
        shapes: The shapes of its parameters.
        ranks: See :class:`Operations`.
        module: The ``HloModuleProto`` that JAX passes to XLA without layout constraints.
        config_nodes: int64[nc], the positions of the configurable nodes among the module's instructions.
    """

    def __init__(self, function: Callable[[Operations], Array]) -> None:
        self._function = function
        ops = Operations()
        jax.eval_shape(lambda: function(ops))
        self.shapes, self.ranks = ops.shapes, ops.ranks
        lowered = self.lower(None).compiler_ir("hlo")
        self.module = HloModuleProto.FromString(lowered.as_serialized_hlo_module_proto())
        self.config_nodes = _tagged(self.module, len(self.ranks))

    def lower(self, config: Config | None) -> Any:
        """The function as JAX's ``Lowered``; its ``compile()`` raises RuntimeError where XLA refuses the layouts.

        Args:
            config: int8[nc, 18]; None leaves all layouts to the compiler.
        """
        arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in self.shapes]
        return jax.jit(lambda *arrays: self._function(Operations(arrays, config))).lower(*arguments)


def random_configs(ranks: Sequence[Sequence[int]], count: int, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """Draws different configurations, int8[count, nc, 18]; the first one leaves everything to the compiler.

    Each configuration draws the share of tensors that get a layout, then a random permutation for each of these: some
    configurations constrain hardly any tensor, others nearly all.

    Args:
        ranks: The ranks of the tensors of each configurable node, see :class:`Operations`.
        count: How many configurations.
        rng: Draws them.

    Raises:
        InputError: there are fewer different configurations.
    """
    free = np.full((len(ranks), LAYOUT_VALUES), NO_DIMENSION, np.int8)
    drawn = {free.tobytes(): None}
    for _ in range(20 * count):
        if len(drawn) >= count:
            break
        config = free.copy()
        share = rng.random()
        for number, tensors in enumerate(ranks):
            for place, rank in enumerate(tensors):
                if rank > 1 and rng.random() < share:
                    config[number, LAYOUT_RANK * place : LAYOUT_RANK * place + rank] = rng.permutation(rank)
        drawn.setdefault(config.tobytes())
    if len(drawn) < count:
        raise InputError(f"expected {count} different layouts, but only {len(drawn)} were drawn; choose fewer configs")
    return np.stack([np.frombuffer(config, np.int8).reshape(len(ranks), LAYOUT_VALUES) for config in drawn])


def _tagged(module: Any, count: int) -> npt.NDArray[np.int64]:
    """int64[count], the positions of the instructions that carry the tag, in the order of the tag's numbers."""
    positions: dict[int, int] = {}
    instructions = [instruction for computation in module.computations for instruction in computation.instructions]
    for position, instruction in enumerate(instructions):
        tag = re.search(rf"\b{_TAG}(\d+)/", instruction.metadata.op_name)
        if tag and instruction.opcode in _CONFIGURABLE:
            assert int(tag[1]) not in positions, "a configurable operation is lowered to one instruction"
            positions[int(tag[1])] = position
    assert sorted(positions) == list(range(count)), "every configurable operation is among the instructions"
    return np.array([positions[number] for number in range(count)], np.int64)
