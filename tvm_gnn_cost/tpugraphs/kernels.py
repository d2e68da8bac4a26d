"""Describes the kernels that XLA compiles a graph to in one configuration, each by a few numbers.

XLA fuses operations into loops, which read what products, reductions, parameters and requests leave in memory. What a
loop costs depends on how it walks through what it reads: the same loop takes twice as long where a neighbour in the
output is no neighbour in the input. The features are our own; benchmarks/LOG.md says what led to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.layout_assignment import (
    COPY,
    REQUEST,
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
# What has a kernel of its own, beside loops.
_OWN_KERNEL = (*_PRODUCTS, *_REDUCTIONS, "concatenate")
_IN_MEMORY = (*_OWN_KERNEL, REQUEST, "parameter")
# Operations that take many instructions of the processor for an element.
_TRANSCENDENTAL = ("exponential", "tanh", "log", "power", "logistic", "sine", "cosine")
_DIVISIONS = ("divide", "rsqrt", "sqrt")
# They compute nothing: they move what they read, or have no operand.
_MOVES = (
    "broadcast",
    "copy",
    "iota",
    "pad",
    "reshape",
    "slice",
    "transpose",
    "call",
)
# What the kernel of a reduction does not compute by itself.
_NOT_ABSORBED = ("call", "concatenate", "constant", "copy", "parameter", "slice", "transpose", REQUEST, *_REDUCTIONS)
_KINDS = ("loop", *_OWN_KERNEL)
#: Dimensions of an output whose sizes are features.
_SIZES = 4
#: Operations of one loop that are looked at, at most: a deep graph without a product has no end of them.
_LONGEST_LOOP = 200


class _Common(NamedTuple):
    """What is known of every kernel; sizes are logarithms to the base 2, divided by ten.

    Attributes:
        work: The elements that it computes, of a reduction those that it reads, of a product its multiplications.
        elements: The elements of its output.
        is_row_major: Whether its output is.
        feeds_request: Whether a request reads its output; likewise a product and a reduction.
        readers: How many instructions read its output.
    """

    work: float
    elements: float
    is_row_major: float
    feeds_request: float
    feeds_product: float
    feeds_reduction: float
    readers: float


class _Loop(NamedTuple):
    """What is known of a loop; counts are logarithms of one more, sizes as in :class:`_Common`.

    Attributes:
        is_copy: Whether XLA inserted it between two layouts.
        simple: Operations such as sums, each of which takes an instruction or two of the processor.
        transcendental: Operations such as the exponential function, which take many.
        divisions: Divisions and roots.
        contiguous: Tensors in which neighbours in the loop's output are neighbours too.
        constant: Tensors in which they are the same element.
        strided: Tensors in which they lie apart.
        largest_stride: How far they do, in elements.
        largest_strided: The elements of the largest strided tensor.
        turned: Strided tensors in which neighbours along the second dimension of the output are neighbours.
        requests: Tensors that are outputs of requests; likewise parameters and products.
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
    requests: float = 0.0
    parameters: float = 0.0
    products: float = 0.0


class _Own(NamedTuple):
    """What is known of the kernel of a product, a reduction or a concatenation; counts and sizes as in :class:`_Loop`.

    Attributes:
        reads_row_major: Whether all of its operands are row-major.
        reduces_minor: Whether a reduction reduces the dimension that is contiguous in memory.
        reads_request: Whether an operand is the output of a request.
        reads_copy: Whether an operand is a copy.
        loops: Operands that loops compute.
        is_absorbed: Whether a reduction's kernel computes this product.
        absorbed: Operations that a reduction's kernel computes.
        absorbed_costly: Those of them that are no simple ones.
        absorbed_products: Whether there is a product among them.
        absorbed_broadcasts: Constants among them that are written out.
        absorbed_elements: The elements of the largest output among them.
        copies: Copies that a reduction's kernel reads.
        squared_copies: Squares of a copy, which XLA computes as products of two.
    """

    reads_row_major: float = 0.0
    reduces_minor: float = 0.0
    reads_request: float = 0.0
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


#: Numbers that describe a kernel.
KERNEL_FEATURES = len(_Common._fields) + len(_KINDS) + _SIZES + len(_Loop._fields) + len(_Own._fields)
#: The place of the logarithm of a kernel's work among them, and what it was divided by.
WORK, WORK_UNIT = 0, 10


@dataclass(frozen=True)
class Kernels:
    """The kernels of a graph's configurations; equal ones are described once.

    Attributes:
        features: float32[u, 43], u different kernels.
        of: int64[z], the kernels of all configurations, one configuration behind the other.
        begins: int64[c + 1], where each of c configurations begins in ``of``, and at last z.
    """

    features: npt.NDArray[np.float32]
    of: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]

    def of_configs(self, rows: npt.NDArray[np.int64]) -> Kernels:
        """The kernels of some configurations, int64[k] numbers from 0 to c - 1."""
        counts = self.begins[rows + 1] - self.begins[rows]
        begins = np.append(0, np.cumsum(counts))
        of = self.of[np.repeat(self.begins[rows] - begins[:-1], counts) + np.arange(begins[-1])]
        used, of = np.unique(of, return_inverse=True)
        return Kernels(self.features[used], of, begins)


def find_kernels(graph: ConfigurableInstructions, configs: Iterable[npt.NDArray[np.int8]]) -> Kernels:
    """The kernels of each configuration of a graph.

    Args:
        graph: The whole graph; pruned, it lacks what stands between the configurable nodes.
        configs: int8[nc, 18] each.
    """
    known: dict[tuple[float, ...], int] = {}
    of: list[int] = []
    begins = [0]
    for config in configs:
        of += [known.setdefault(one, len(known)) for one in _Program(graph.with_requests(config)).kernels()]
        begins.append(len(of))
    features = np.array(list(known), np.float32).reshape(len(known), KERNEL_FEATURES)
    return Kernels(features, np.array(of, np.int64), np.array(begins, np.int64))


class _Program:
    """A graph with its layouts, the copies between them, and what is fused."""

    def __init__(self, graph: Instructions) -> None:
        assigned = assign_layouts(graph)
        self._opcode, self._shape = list(graph.opcode), list(graph.shape)
        self._operands = [list(those) for those in graph.operands]
        self._dimensions, self._layout = list(graph.dimensions), list(assigned.output)
        self._first_copy = len(self._opcode)
        self._insert_copies(graph, assigned.operands)
        self._users: list[list[int]] = [[] for _ in self._opcode]
        for user, those in enumerate(self._operands):
            for one in those:
                self._users[one].append(user)
        self._tensors_read = [
            sum(bool(self._shape[one]) and self._opcode[one] not in ("broadcast", "constant", "iota") for one in those)
            for those in self._operands
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
        found = []
        for node, name in enumerate(self._opcode):
            if name in _OWN_KERNEL and self._operands[node]:
                # A product that a reduction computes stays a kernel; all else in it is a part of the reduction.
                if name in _PRODUCTS or node not in self._absorbed_by:
                    found.append(self._described(node, name, self._work(node), _Loop(), self._own(node)))
            elif self._ends[node]:
                found.append(self._described(node, "loop", self._size[node], self._loop(node), _Own()))
        return found

    def _insert_copies(self, graph: Instructions, read: Sequence[Sequence[Layout]]) -> None:
        copies: dict[tuple[int, Layout], int] = {}
        for node in graph.order:
            for place, one in enumerate(self._operands[node]):
                shape, layout = self._shape[one], read[node][place]
                lies = in_memory(layout, shape)
                if lies == in_memory(self._layout[one], shape):
                    continue
                if (one, lies) not in copies:
                    copies[one, lies] = len(self._opcode)
                    self._opcode.append(COPY)
                    self._shape.append(shape)
                    self._operands.append([one])
                    self._dimensions.append(())
                    self._layout.append(layout)
                self._operands[node][place] = copies[one, lies]

    def _absorb(self, reduction: int) -> None:
        """Finds what the kernel of a reduction computes by itself: what nothing else reads."""
        inside, open_ends = {reduction}, [reduction]
        while open_ends:
            for one in self._operands[open_ends.pop()]:
                if one in inside or not self._shape[one] or self._opcode[one] in _NOT_ABSORBED:
                    continue
                if inside.issuperset(self._users[one]):
                    inside.add(one)
                    open_ends.append(one)
        inside.remove(reduction)
        self._absorbs[reduction] = inside
        self._absorbed_by.update(dict.fromkeys(inside, reduction))

    def _loop_ends(self) -> list[bool]:
        """Whether each instruction is the last one of a loop.

        A loop ends where its output is needed in memory, and where several loops would have to compute an operation of
        two tensors again.
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
                missing = [one for one in self._users[node] if self._is_fused[one] and one not in loops]
                if missing:
                    waiting += missing
                    continue
                found: set[int] = set()
                for one in self._users[node]:
                    found |= loops[one] if self._is_fused[one] else {node}
                ends[node] = not found or node in found
                found = found or {node}
                if self._tensors_read[node] > 1 and (ends[node] or len(found) > 1):
                    ends[node], found = True, {node}
                loops[node] = frozenset(found)
                waiting.pop()
        return ends

    def _is_leaf(self, node: int) -> bool:
        """Whether loops read an instruction's output from memory, and don't compute it again."""
        return self._opcode[node] in _IN_MEMORY or (self._ends[node] and self._tensors_read[node] > 1)

    def _loop(self, end: int) -> _Loop:
        shape = self._shape[end]
        walked = in_memory(self._layout[end], shape)
        # The loop's first element, its neighbour, and the one beside it in the next dimension.
        moves = (), walked[:1], walked[1:2]
        starts = [tuple(int(one in moved) for one in range(len(shape))) for moved in moves]
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
            for one in self._operands[node]:
                if not self._shape[one] or self._opcode[one] == "constant":
                    continue
                read = [self._read_at(node, one, index) for index in indices]
                if self._is_leaf(one):
                    first, beside, next_to = (self._address(one, index) for index in read)
                    leaves.add((one, abs(beside - first), abs(next_to - first)))
                elif (one, read[1]) not in seen:
                    seen.add((one, read[1]))
                    waiting.append((one, read))
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
            requests=tensors.count(REQUEST) / 3,
            parameters=tensors.count("parameter") / 3,
            products=sum(one in _PRODUCTS for one in tensors) / 3,
        )

    def _read_at(self, node: int, operand: int, index: tuple[int, ...]) -> tuple[int, ...]:
        """The index of the operand's element that an element of a fused operation is computed from."""
        name, shape = self._opcode[node], self._shape[operand]
        of_output = self._dimensions[node]
        if name == "transpose" and len(of_output) == len(shape):
            return tuple(index[of_output.index(one)] for one in range(len(shape)))
        if name == "broadcast" and len(of_output) == len(shape):
            return tuple(min(index[place], size - 1) for place, size in zip(of_output, shape, strict=True))
        if name == "reshape":
            place = sum(one * step for one, step in zip(index, _steps(self._shape[node]), strict=True))
            return tuple(place // step % size for step, size in zip(_steps(shape), shape, strict=True))
        if len(shape) == len(index):
            return tuple(min(one, size - 1) for one, size in zip(index, shape, strict=True))
        return (0,) * len(shape)

    def _address(self, node: int, index: tuple[int, ...]) -> int:
        """Where an element lies, in elements."""
        return sum(one * step for one, step in zip(index, _steps(self._shape[node], self._layout[node]), strict=True))

    def _work(self, node: int) -> float:
        """The elements that a kernel reads, or of a product its multiplications."""
        name, size, operands = self._opcode[node], self._size[node], self._operands[node]
        sizes = [self._size[one] for one in operands]
        if name == "dot":
            # Of m by k and k by n the root of mk kn mn.
            return math.sqrt(float(sizes[0]) * sizes[-1] * size)
        if name == "convolution":
            return size * max(1.0, min(sizes) / self._shape[node][-1]) if self._shape[node] else size
        return max(sizes) if name in _REDUCTIONS else size

    def _own(self, node: int) -> _Own:
        operands = self._operands[node]
        inside = self._absorbs.get(node, set())
        names = [self._opcode[one] for one in inside]
        read = [one for reader in (node, *inside) for one in self._operands[reader]]
        minor = in_memory(self._layout[operands[0]], self._shape[operands[0]])[:1]
        return _Own(
            reads_row_major=float(all(is_row_major(self._layout[one], self._shape[one]) for one in operands)),
            reduces_minor=float(self._opcode[node] == "reduce" and bool({*minor} & {*self._dimensions[node]})),
            reads_request=float(any(self._opcode[one] == REQUEST for one in operands)),
            reads_copy=float(any(self._opcode[one] == COPY for one in operands)),
            loops=sum(self._is_fused[one] for one in operands) / 2,
            is_absorbed=float(node in self._absorbed_by),
            absorbed=math.log1p(len(inside)) / 2,
            absorbed_costly=math.log1p(sum(one in (*_TRANSCENDENTAL, *_DIVISIONS) for one in names)),
            absorbed_products=float(any(one in _PRODUCTS for one in names)),
            absorbed_broadcasts=math.log1p(
                sum(self._opcode[one] == "broadcast" and not self._tensors_read[one] for one in inside)
            ),
            absorbed_elements=math.log2(max([self._size[one] for one in inside], default=1) or 1) / 10,
            copies=float(sum(self._opcode[one] == COPY for one in read)) if node in self._absorbs else 0.0,
            squared_copies=float(sum(self._squares_copy(one) for one in inside)),
        )

    def _squares_copy(self, node: int) -> bool:
        operands = self._operands[node]
        return self._opcode[node] == "multiply" and len(operands) == 1 and self._opcode[operands[0]] == COPY

    def _described(self, node: int, kind: str, work: float, loop: _Loop, own: _Own) -> tuple[float, ...]:
        shape, layout = self._shape[node], self._layout[node]
        readers = {self._opcode[one] for one in self._users[node]}
        common = _Common(
            work=math.log2(work + 1) / WORK_UNIT,
            elements=math.log2(self._size[node] + 1) / 10,
            is_row_major=float(is_row_major(layout, shape)),
            feeds_request=float(REQUEST in readers),
            feeds_product=float(not readers.isdisjoint(_PRODUCTS)),
            feeds_reduction=float(not readers.isdisjoint(_REDUCTIONS)),
            readers=min(len(self._users[node]), 4) / 4,
        )
        sizes = [math.log2(shape[one]) / 5 for one in in_memory(layout, shape)[:_SIZES]]
        sizes += [0.0] * (_SIZES - len(sizes))
        return (*common, *(float(one == kind) for one in _KINDS), *sizes, *loop, *own)


def _steps(shape: tuple[int, ...], layout: Layout | None = None) -> list[int]:
    """How far neighbours along each dimension lie apart, in elements; in C order if there is no layout."""
    steps, step = [1] * len(shape), 1
    for dimension in row_major(len(shape)) if layout is None else layout:
        steps[dimension] = step
        step *= shape[dimension]
    return steps
