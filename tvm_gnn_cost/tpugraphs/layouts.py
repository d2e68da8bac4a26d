"""Layouts of a JAX function's dots, convolutions and reshapes, as XLA is told them.

A configuration is that of TpuGraphs: int8[nc, 18], of each configurable operation the layouts of its output, input and
kernel, 6 values each, minor to major, -1 behind the end; a tensor whose 6 values are -1 is left to the compiler.
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

from tvm_gnn_cost.tpugraphs.npz import LAYOUT_VALUES
from tvm_gnn_cost.tpugraphs.protos import HloModuleProto

Config = npt.NDArray[np.int8]
_RANK = 6
# Names the instruction that is configured: JAX makes reshapes of its own beside the network's.
_TAG = "configured"
_CONFIGURABLE = ("convolution", "dot", "reshape")


class Operations:
    """The operations that a network is written with; each call of the three configurable ones is one of ``nc`` nodes.

    Args:
        arrays: The network's parameters in the order of :meth:`parameter`; without them zeros stand in.
        config: Layouts of the operations; None leaves all to the compiler.
    """

    def __init__(self, arrays: Sequence[Array] | None = None, config: Config | None = None) -> None:
        self._arrays, self._config = arrays, config
        #: Of the parameters so far.
        self.shapes: list[tuple[int, ...]] = []
        #: Ranks of the output, the input and, but of a reshape, the kernel, of each configurable operation so far.
        self.ranks: list[tuple[int, ...]] = []

    def parameter(self, *shape: int) -> Array:
        """The next input or weight, float32."""
        self.shapes.append(shape)
        return jax.numpy.zeros(shape) if self._arrays is None else self._arrays[len(self.shapes) - 1]

    def dot(self, x: Array, kernel: Array, batch: int = 0) -> Array:
        """The last axis of ``x`` times the first of ``kernel`` behind its ``batch`` leading ones, which both have."""
        both = tuple(range(batch))
        numbers = (((x.ndim - 1,), (batch,)), (both, both))
        return self._configured(lambda a, b: lax.dot_general(a, b, numbers), x, kernel)

    def convolution(self, x: Array, kernel: Array, stride: int = 1, groups: int = 1) -> Array:
        """NHWC with an HWIO kernel, padded so that a stride of 1 keeps the size."""
        return self._configured(
            lambda a, b: lax.conv_general_dilated(
                *(a, b, (stride, stride), "SAME"),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            ),
            *(x, kernel),
        )

    def reshape(self, x: Array, *shape: int) -> Array:
        """Row-major, as in NumPy; one size may be -1."""
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
        minor_to_major = self._config[number, _RANK * place :][: x.ndim].tolist()
        if -1 in minor_to_major:
            return x
        constrained: Array = with_layout_constraint(x, Layout(tuple(reversed(minor_to_major))))
        return constrained


class ConfigurableFunction:
    """A function of :class:`Operations` with what is known of it before it is compiled.

    Attributes:
        shapes: Of its parameters.
        ranks: See :attr:`Operations.ranks`.
        module: ``HloModuleProto`` as JAX hands it to XLA, no layout asked for: the graph.
        config_nodes: int64[nc], the positions of the configurable operations among the module's instructions.
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
        """JAX's ``Lowered`` of a configuration; ``compile()`` of it raises ``RuntimeError`` where XLA refuses it."""
        arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in self.shapes]
        return jax.jit(lambda *arrays: self._function(Operations(arrays, config))).lower(*arguments)


def random_configs(ranks: Sequence[Sequence[int]], count: int, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """int8[count, nc, 18], all different; the first one asks for nothing.

    Each draws how likely it is that a tensor is given a layout, and then any of the layouts that its rank has: from
    nearly nothing to nearly all is asked for.

    Raises:
        ValueError: there are not so many different ones.
    """
    found = {(-np.ones((len(ranks), LAYOUT_VALUES), np.int8)).tobytes(): None}
    for _ in range(20 * count):
        if len(found) >= count:
            break
        config = -np.ones((len(ranks), LAYOUT_VALUES), np.int8)
        share = rng.random()
        for number, tensors in enumerate(ranks):
            for place, rank in enumerate(tensors):
                if rank > 1 and rng.random() < share:
                    config[number, _RANK * place : _RANK * place + rank] = rng.permutation(rank)
        found.setdefault(config.tobytes())
    if len(found) < count:
        raise ValueError(f"{count} different layouts were asked for, and {len(found)} were found")
    return np.stack([np.frombuffer(one, np.int8).reshape(len(ranks), LAYOUT_VALUES) for one in found])


def _tagged(module: Any, count: int) -> npt.NDArray[np.int64]:
    found: dict[int, int] = {}
    instructions = [one for computation in module.computations for one in computation.instructions]
    for position, one in enumerate(instructions):
        tag = re.search(rf"\b{_TAG}(\d+)/", one.metadata.op_name)
        if tag and one.opcode in _CONFIGURABLE:
            assert int(tag[1]) not in found, "an operation is one instruction"
            found[int(tag[1])] = position
    assert sorted(found) == list(range(count)), "each operation is an instruction"
    return np.array([found[number] for number in range(count)], np.int64)
