"""Features of the fused kernels that XLA on a CPU compiles a graph to in a given configuration.

XLA fuses operations into loops, which read from memory what products, reductions, parameters and layout constraints
wrote. The cost of a loop depends on its memory accesses: the same loop takes twice as long where adjacent elements of
the output are not adjacent in the input. benchmarks/LOG.md has the measurements that led to these features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.format import KERNEL_FEATURES, WORK, WORK_UNIT
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import Kernels
from tvm_gnn_cost.xla_cpu.layout_assignment import (
    CONSTRAINT,
    COPY,
    ConfigurableInstructions,
    Instructions,
    Layout,
    assign_layouts,
    in_memory,
    is_row_major,
    row_major,
)

_PRODUCTS = ("dot", "convolution")
_REDUCTIONS = ("reduce", "reduce-window")
# Operations that have a separate kernel and are not fused into a loop.
_SEPARATE = (*_PRODUCTS, *_REDUCTIONS, "concatenate")
_IN_MEMORY = (*_SEPARATE, CONSTRAINT, "parameter")
# Operations that take many machine instructions per element.
_TRANSCENDENTAL = ("exponential", "tanh", "log", "power", "logistic", "sine", "cosine")
_DIVISIONS = ("divide", "rsqrt", "sqrt")
# Operations without arithmetic: they move what they read, or have no operand.
_MOVES = ("broadcast", "copy", "iota", "pad", "reshape", "slice", "transpose", "call")
# Operations that are not fused into the kernel of a reduction.
_NOT_ABSORBED = ("call", "concatenate", "constant", "copy", "parameter", "slice", "transpose", CONSTRAINT, *_REDUCTIONS)
_KINDS = ("loop", *_SEPARATE)
#: Number of output dimensions whose sizes are features.
_SIZES = 4
#: Maximum number of operations of one loop that are visited: paths through a deep graph grow exponentially.
_LONGEST_LOOP = 200


class _Common(NamedTuple):
    """Features of every kernel; sizes are logarithms to the base 2, divided by ten.

    Attributes:
        work: Number of elements that it computes; for a reduction, that it reads; for a product, multiplications.
        elements: Number of elements of its output.
        is_row_major: Whether its output is row-major.
        feeds_constraint: Whether a layout constraint reads its output.
        feeds_product: Whether a product reads its output.
        feeds_reduction: Whether a reduction reads its output.
        readers: Number of instructions that read its output.
    """

    work: float
    elements: float
    is_row_major: float
    feeds_constraint: float
    feeds_product: float
    feeds_reduction: float
    readers: float


class _Loop(NamedTuple):
    """Features of a fused loop; counts are log(1 + count), sizes as in :class:`_Common`.

    Attributes:
        is_copy: Whether it is a copy that XLA inserted between two layouts.
        simple: Number of operations such as sums, each of which takes one or two machine instructions.
        transcendental: Number of operations such as the exponential function, which take many.
        divisions: Number of divisions and roots.
        contiguous: Number of input tensors that are read with stride 1.
        constant: Number of input tensors that are read with stride 0.
        strided: Number of input tensors that are read with a larger stride.
        largest_stride: The largest stride, in elements.
        largest_strided: Number of elements of the largest strided tensor.
        turned: Number of strided tensors with stride 1 along the second dimension of the output.
        constraints: Number of input tensors that are outputs of layout constraints.
        parameters: Number of input tensors that are parameters.
        products: Number of input tensors that are outputs of products.
    """

    is_copy: float = 0.0
    simple: float = 0.0
    transcendental: float = 0.0
    divisions: float = 0.0
    contiguous: float = 0.0
    constant: float = 0.0
    strided: float = 0.0
    largest_stride: float = 0.0
    largest_strided: float = 0.0
    turned: float = 0.0
    constraints: float = 0.0
    parameters: float = 0.0
    products: float = 0.0


class _Separate(NamedTuple):
    """Features of the kernel of a product, reduction or concatenation; counts and sizes as in :class:`_Loop`.

    Attributes:
        reads_row_major: Whether all of its operands are row-major.
        reduces_minor: Whether a reduction reduces the dimension that is contiguous in memory.
        reads_constraint: Whether an operand is the output of a layout constraint.
        reads_copy: Whether an operand is a copy.
        loops: Number of operands that fused loops compute.
        is_absorbed: Whether this product is fused into a reduction.
        absorbed: Number of operations that are fused into this reduction.
        absorbed_costly: Number of transcendental operations and divisions among them.
        absorbed_products: Whether there is a product among them.
        absorbed_broadcasts: Number of broadcast constants among them.
        absorbed_elements: Number of elements of the largest output among them.
        copies: Number of copies that a reduction's kernel reads.
        squared_copies: Number of squares of a copy among the fused operations.
    """

    reads_row_major: float = 0.0
    reduces_minor: float = 0.0
    reads_constraint: float = 0.0
    reads_copy: float = 0.0
    loops: float = 0.0
    is_absorbed: float = 0.0
    absorbed: float = 0.0
    absorbed_costly: float = 0.0
    absorbed_products: float = 0.0
    absorbed_broadcasts: float = 0.0
    absorbed_elements: float = 0.0
    copies: float = 0.0
    squared_copies: float = 0.0


assert len(_Common._fields) + len(_KINDS) + _SIZES + len(_Loop._fields) + len(_Separate._fields) == KERNEL_FEATURES
assert _Common._fields[WORK] == "work"


def find_kernels(graph: ConfiguredGraph, configs: Iterable[npt.NDArray[np.int8]]) -> Kernels:
    """The fused kernels that XLA on a CPU makes of each configuration of a graph.

    It compiles nothing and takes some milliseconds for each configuration of 200 nodes.

    Args:
        graph: The whole graph, not pruned.
        configs: int8[nc, 18] each.
    """
    instructions = ConfigurableInstructions(graph)
    known: dict[tuple[float, ...], int] = {}
    of: list[int] = []
    begins = [0]
    for config in configs:
        of += [
            known.setdefault(kernel, len(known)) for kernel in _Program(instructions.with_constraints(config)).kernels()
        ]
        begins.append(len(of))
    features = np.array(list(known), np.float32).reshape(len(known), KERNEL_FEATURES)
    return Kernels(features, np.array(of, np.int64), np.array(begins, np.int64))


class _Program:
    """A graph with its layouts, the copies between them, and what is fused."""

    def __init__(self, graph: Instructions) -> None:
        assigned = assign_layouts(graph)
        self._opcode, self._shape = list(graph.opcode), list(graph.shape)
        self._operands = [list(inputs) for inputs in graph.operands]
        self._dimensions, self._layout = list(graph.dimensions), list(assigned.output)
        self._first_copy = len(self._opcode)
        self._insert_copies(graph, assigned.operands)
        self._users: list[list[int]] = [[] for _ in self._opcode]
        for user, inputs in enumerate(self._operands):
            for operand in inputs:
                self._users[operand].append(user)
        self._tensors_read = [
            sum(
                bool(self._shape[operand]) and self._opcode[operand] not in ("broadcast", "constant", "iota")
                for operand in inputs
            )
            for inputs in self._operands
        ]
        self._size = [math.prod(shape) for shape in self._shape]
        self._absorbed_by: dict[int, int] = {}
        self._absorbs: dict[int, set[int]] = {}
        for node, name in enumerate(self._opcode):
            if name in _REDUCTIONS and self._shape[node]:
                self._absorb(node)
        self._is_fused = [
            bool(shape) and name not in _IN_MEMORY and name != "constant" and node not in self._absorbed_by
            for node, (name, shape) in enumerate(zip(self._opcode, self._shape, strict=True))
        ]
        self._ends = self._loop_ends()

    def kernels(self) -> list[tuple[float, ...]]:
        """The features of each kernel."""
        kernels = []
        for node, name in enumerate(self._opcode):
            if name in _SEPARATE and self._operands[node]:
                # A product that is fused into a reduction still counts as a kernel; nothing else in it does.
                if name in _PRODUCTS or node not in self._absorbed_by:
                    kernels.append(self._described(node, name, self._work(node), _Loop(), self._separate(node)))
            elif self._ends[node]:
                kernels.append(self._described(node, "loop", self._size[node], self._loop(node), _Separate()))
        return kernels

    def _insert_copies(self, graph: Instructions, read: Sequence[Sequence[Layout]]) -> None:
        copies: dict[tuple[int, Layout], int] = {}
        for node in graph.order:
            for place, operand in enumerate(self._operands[node]):
                shape, layout = self._shape[operand], read[node][place]
                lies = in_memory(layout, shape)
                if lies == in_memory(self._layout[operand], shape):
                    continue
                if (operand, lies) not in copies:
                    copies[operand, lies] = len(self._opcode)
                    self._opcode.append(COPY)
                    self._shape.append(shape)
                    self._operands.append([operand])
                    self._dimensions.append(())
                    self._layout.append(layout)
                self._operands[node][place] = copies[operand, lies]

    def _absorb(self, reduction: int) -> None:
        """Finds the operations that are fused into a reduction: inputs that only it reads."""
        inside, open_ends = {reduction}, [reduction]
        while open_ends:
            for operand in self._operands[open_ends.pop()]:
                if operand in inside or not self._shape[operand] or self._opcode[operand] in _NOT_ABSORBED:
                    continue
                if inside.issuperset(self._users[operand]):
                    inside.add(operand)
                    open_ends.append(operand)
        inside.remove(reduction)
        self._absorbs[reduction] = inside
        self._absorbed_by.update(dict.fromkeys(inside, reduction))

    def _loop_ends(self) -> list[bool]:
        """Whether each instruction is the last one of a loop.

        A loop ends where its output is needed in memory, and where several loops would each have to recompute an
        operation on two tensors.
        """
        ends = [False] * len(self._opcode)
        loops: dict[int, frozenset[int]] = {}
        for start in range(len(self._opcode)):
            waiting = [start]
            while waiting:
                node = waiting[-1]
                if node in loops or not self._is_fused[node]:
                    waiting.pop()
                    continue
                missing = [user for user in self._users[node] if self._is_fused[user] and user not in loops]
                if missing:
                    waiting += missing
                    continue
                last: set[int] = set()
                for user in self._users[node]:
                    last |= loops[user] if self._is_fused[user] else {node}
                ends[node] = not last or node in last
                last = last or {node}
                if self._tensors_read[node] > 1 and (ends[node] or len(last) > 1):
                    ends[node], last = True, {node}
                loops[node] = frozenset(last)
                waiting.pop()
        return ends

    def _is_leaf(self, node: int) -> bool:
        """Whether loops read an instruction's output from memory instead of recomputing it."""
        return self._opcode[node] in _IN_MEMORY or (self._ends[node] and self._tensors_read[node] > 1)

    def _loop(self, end: int) -> _Loop:
        shape = self._shape[end]
        walked = in_memory(self._layout[end], shape)
        # The loop's first element, and the next elements along its two innermost dimensions.
        moves = (), walked[:1], walked[1:2]
        starts = [tuple(int(dimension in moved) for dimension in range(len(shape))) for moved in moves]
        simple = transcendental = divisions = 0
        leaves: set[tuple[int, int, int]] = set()
        seen = {(end, starts[1])}
        waiting = [(end, starts)]
        steps = 0
        while waiting and steps < _LONGEST_LOOP:
            steps += 1
            node, indices = waiting.pop()
            name = self._opcode[node]
            transcendental += name in _TRANSCENDENTAL
            divisions += name in _DIVISIONS
            simple += name not in (*_TRANSCENDENTAL, *_DIVISIONS, *_MOVES)
            for operand in self._operands[node]:
                if not self._shape[operand] or self._opcode[operand] == "constant":
                    continue
                read = [self._read_at(node, operand, index) for index in indices]
                if self._is_leaf(operand):
                    first, beside, next_to = (self._address(operand, index) for index in read)
                    leaves.add((operand, abs(beside - first), abs(next_to - first)))
                elif (operand, read[1]) not in seen:
                    seen.add((operand, read[1]))
                    waiting.append((operand, read))
        strided = [(stride, self._size[leaf], turned) for leaf, stride, turned in leaves if stride > 1]
        tensors = [self._opcode[leaf] for leaf in {leaf for leaf, _, _ in leaves}]
        return _Loop(
            is_copy=float(end >= self._first_copy),
            simple=math.log1p(simple) / 2,
            transcendental=math.log1p(transcendental),
            divisions=math.log1p(divisions),
            contiguous=math.log1p(sum(stride == 1 for _, stride, _ in leaves)),
            constant=math.log1p(sum(stride == 0 for _, stride, _ in leaves)) / 2,
            strided=math.log1p(len(strided)),
            largest_stride=math.log2(max([stride for stride, _, _ in strided], default=1)) / 10,
            largest_strided=math.log2(max([size for _, size, _ in strided], default=1)) / 10,
            turned=sum(turned == 1 for _, _, turned in strided) / 2,
            constraints=tensors.count(CONSTRAINT) / 3,
            parameters=tensors.count("parameter") / 3,
            products=sum(opcode in _PRODUCTS for opcode in tensors) / 3,
        )

    def _read_at(self, node: int, operand: int, index: tuple[int, ...]) -> tuple[int, ...]:
        """The index of the operand's element that an element of a fused operation is computed from."""
        name, shape = self._opcode[node], self._shape[operand]
        of_output = self._dimensions[node]
        if name == "transpose" and len(of_output) == len(shape):
            return tuple(index[of_output.index(dimension)] for dimension in range(len(shape)))
        if name == "broadcast" and len(of_output) == len(shape):
            return tuple(min(index[place], size - 1) for place, size in zip(of_output, shape, strict=True))
        if name == "reshape":
            place = sum(coordinate * step for coordinate, step in zip(index, _steps(self._shape[node]), strict=True))
            return tuple(place // step % size for step, size in zip(_steps(shape), shape, strict=True))
        if len(shape) == len(index):
            return tuple(min(coordinate, size - 1) for coordinate, size in zip(index, shape, strict=True))
        return (0,) * len(shape)

    def _address(self, node: int, index: tuple[int, ...]) -> int:
        """The offset of an element in memory, in elements."""
        return sum(
            coordinate * step
            for coordinate, step in zip(index, _steps(self._shape[node], self._layout[node]), strict=True)
        )

    def _work(self, node: int) -> float:
        """The number of elements that a kernel reads, or of a product's multiplications."""
        name, size, operands = self._opcode[node], self._size[node], self._operands[node]
        sizes = [self._size[operand] for operand in operands]
        if name == "dot":
            # m k n, for m by k times k by n: the root of mk kn mn.
            return math.sqrt(float(sizes[0]) * sizes[-1] * size)
        if name == "convolution":
            return size * max(1.0, min(sizes) / self._shape[node][-1]) if self._shape[node] else size
        return max(sizes) if name in _REDUCTIONS else size

    def _separate(self, node: int) -> _Separate:
        operands = self._operands[node]
        inside = self._absorbs.get(node, set())
        names = [self._opcode[operation] for operation in inside]
        read = [operand for reader in (node, *inside) for operand in self._operands[reader]]
        minor = in_memory(self._layout[operands[0]], self._shape[operands[0]])[:1]
        return _Separate(
            reads_row_major=float(
                all(is_row_major(self._layout[operand], self._shape[operand]) for operand in operands)
            ),
            reduces_minor=float(self._opcode[node] == "reduce" and bool({*minor} & {*self._dimensions[node]})),
            reads_constraint=float(any(self._opcode[operand] == CONSTRAINT for operand in operands)),
            reads_copy=float(any(self._opcode[operand] == COPY for operand in operands)),
            loops=sum(self._is_fused[operand] for operand in operands) / 2,
            is_absorbed=float(node in self._absorbed_by),
            absorbed=math.log1p(len(inside)) / 2,
            absorbed_costly=math.log1p(sum(opcode in (*_TRANSCENDENTAL, *_DIVISIONS) for opcode in names)),
            absorbed_products=float(any(opcode in _PRODUCTS for opcode in names)),
            absorbed_broadcasts=math.log1p(
                sum(
                    self._opcode[operation] == "broadcast" and not self._tensors_read[operation] for operation in inside
                )
            ),
            absorbed_elements=math.log2(max([self._size[operation] for operation in inside], default=1) or 1) / 10,
            copies=float(sum(self._opcode[operand] == COPY for operand in read)) if node in self._absorbs else 0.0,
            squared_copies=float(sum(self._squares_copy(operation) for operation in inside)),
        )

    def _squares_copy(self, node: int) -> bool:
        operands = self._operands[node]
        return self._opcode[node] == "multiply" and len(operands) == 1 and self._opcode[operands[0]] == COPY

    def _described(self, node: int, kind: str, work: float, loop: _Loop, separate: _Separate) -> tuple[float, ...]:
        shape, layout = self._shape[node], self._layout[node]
        readers = {self._opcode[user] for user in self._users[node]}
        common = _Common(
            work=math.log2(work + 1) / WORK_UNIT,
            elements=math.log2(self._size[node] + 1) / 10,
            is_row_major=float(is_row_major(layout, shape)),
            feeds_constraint=float(CONSTRAINT in readers),
            feeds_product=float(not readers.isdisjoint(_PRODUCTS)),
            feeds_reduction=float(not readers.isdisjoint(_REDUCTIONS)),
            readers=min(len(self._users[node]), 4) / 4,
        )
        sizes = [math.log2(shape[dimension]) / 5 for dimension in in_memory(layout, shape)[:_SIZES]]
        sizes += [0.0] * (_SIZES - len(sizes))
        return (*common, *(float(known == kind) for known in _KINDS), *sizes, *loop, *separate)


def _steps(shape: tuple[int, ...], layout: Layout | None = None) -> list[int]:
    """The stride of each dimension, in elements; in C order if there is no layout."""
    steps, step = [1] * len(shape), 1
    for dimension in row_major(len(shape)) if layout is None else layout:
        steps[dimension] = step
        step *= shape[dimension]
    return steps
