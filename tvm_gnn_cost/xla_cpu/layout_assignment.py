"""Assigns a layout to every tensor of a graph from the layout constraints of a configuration, as XLA on a CPU does.

XLA propagates a layout from its constraint to the tensors around it, and copies a tensor wherever two layouts meet.
The rules are those of XLA's pass ``layout_assignment.cc`` and of its CPU subclass, inferred from the modules that
jaxlib 0.10.2 compiles; ``tests/xla_cpu/test_layout_assignment.py`` compares them with such modules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.format import CONFIGURED_TENSORS, LAYOUT_RANK, NODE_NUMBERS, OPCODES
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph
from tvm_gnn_cost.xla_cpu.operands import configured_operands, output_sizes

#: The dimensions of a tensor from the one that is contiguous in memory to the outermost one.
Layout = tuple[int, ...]
#: A layout constraint is an instruction of the graph, as in XLA; no published graph has this opcode.
CONSTRAINT = "layout-constraint"
#: The opcode of a copy of a tensor in another layout; published graphs have copies too.
COPY = "copy"
#: The column that is 1 for the last instruction of a computation, and those of an instruction's list ``dimensions``.
_IS_ROOT, _DIMENSIONS = 0, slice(31, 37)
# The kernels of these operations read row-major tensors, and those of products also write them.
_PRODUCTS = ("dot", "convolution")
_READ_ROW_MAJOR = ("reshape", "reduce")
# All other operations have one layout for their output and all operands of its rank.
_CHANGE_LAYOUT = {*_PRODUCTS, *_READ_ROW_MAJOR, CONSTRAINT, "broadcast", "constant", "iota", "parameter", "transpose"}
_NAMES = {number: name for name, number in OPCODES.items()}


@dataclass(frozen=True)
class Instructions:
    """The instructions of a graph, n of them, in an order in which operands come first.

    Attributes:
        opcode: The name of each operation.
        shape: The dimensions of each output; at most six.
        operands: The instructions whose outputs each instruction reads, without repetition, sorted.
        dimensions: The permutation of a transpose, the output dimension of each operand dimension of a broadcast, the
            reduced dimensions of a reduction, the dimension of a concatenation; otherwise empty.
        order: All instructions in the module's order.
        layouts: The layout of each layout constraint.
    """

    opcode: list[str]
    shape: list[tuple[int, ...]]
    operands: list[list[int]]
    dimensions: list[tuple[int, ...]]
    order: list[int]
    layouts: dict[int, Layout]

    @cached_property
    def users(self) -> list[list[tuple[int, int]]]:
        """The instructions that read each output, in the module's order, and as which of their operands."""
        users: list[list[tuple[int, int]]] = [[] for _ in self.opcode]
        for user in self.order:
            for place, operand in enumerate(self.operands[user]):
                users[operand].append((user, place))
        return users


@dataclass(frozen=True)
class AssignedLayouts:
    """The layouts of n instructions.

    Attributes:
        output: The layout in which each output is written.
        operands: The layouts in which each instruction reads its operands; a copy lies between where they differ.
    """

    output: list[Layout]
    operands: list[list[Layout]]


class ConfigurableInstructions:
    """A graph into which the layout constraints of its configurations can be inserted.

    Args:
        graph: The whole graph; pruned, it lacks what stands between the configurable nodes.
    """

    def __init__(self, graph: ConfiguredGraph) -> None:
        numbers, edge_index = graph.node_feat[:, :NODE_NUMBERS], graph.edge_index
        self._opcode = [_NAMES.get(number, "") for number in graph.node_opcode.tolist()]
        self._shape = [tuple(size for size in row if size > 0) for row in output_sizes(numbers).tolist()]
        self._operands: list[list[int]] = [[] for _ in self._opcode]
        for consumer, producer in sorted(zip(*edge_index.tolist(), strict=True)):
            if producer < consumer:  # In a module operands come first; other edges of a damaged file are ignored.
                self._operands[consumer].append(producer)
        is_root = numbers[:, _IS_ROOT] == 1
        for node, name in enumerate(self._opcode):
            self._operands[node] = self._without_computations(node, name, is_root)
        listed = np.nan_to_num(numbers[:, _DIMENSIONS]).clip(0, 2**20).astype(np.int64).tolist()
        self._dimensions = [self._checked(node, tuple(row)) for node, row in enumerate(listed)]
        for node, name in enumerate(self._opcode):
            if name == "concatenate":
                self._operands[node] = list(dict.fromkeys(self._parts(node)))
        self._tensors = configured_operands(graph)
        self._nodes: list[int] = graph.config_nodes.tolist()

    def with_constraints(self, config: npt.NDArray[np.int8]) -> Instructions:
        """The instructions with a layout constraint after each output and before each operand that gets a layout.

        Of several constraints on the same tensor the module's first one holds: XLA merges them.

        Args:
            config: int8[nc, 18].
        """
        opcode, shape, dimensions = list(self._opcode), list(self._shape), list(self._dimensions)
        operands = [list(listed) for listed in self._operands]
        layouts: dict[int, Layout] = {}
        place_of = [float(node) for node in range(len(opcode))]
        after: dict[int, int] = {}
        before: dict[int, int] = {}
        for row in np.argsort(self._nodes, kind="stable").tolist():
            node = self._nodes[row]
            for place in (1, 2, 0):
                tensor = int(self._tensors[row, place])
                layout = self._constrained_layout(config[row], place, tensor)
                if layout is None:
                    continue
                if place and tensor in before:
                    operands[node] = [before[tensor] if operand == tensor else operand for operand in operands[node]]
                    continue
                constraint = len(opcode)
                opcode.append(CONSTRAINT)
                shape.append(shape[tensor])
                dimensions.append(())
                operands.append([tensor])
                layouts[constraint] = layout
                if place:
                    before[tensor] = constraint
                    operands[node] = [constraint if operand == tensor else operand for operand in operands[node]]
                    place_of.append(node - 1 + 0.25 * place)
                else:
                    after[tensor] = constraint
                    place_of.append(node + 0.25)
        for reader, inputs in enumerate(operands):
            operands[reader] = [after[node] if after.get(node, reader) != reader else node for node in inputs]
        order = sorted(range(len(opcode)), key=place_of.__getitem__)
        return Instructions(opcode, shape, operands, dimensions, order, layouts)

    def _without_computations(self, node: int, name: str, is_root: npt.NDArray[np.bool_]) -> list[int]:
        """A node's operands; its edges also lead to the last instruction of each computation that it calls."""
        operands = self._operands[node]
        if name == "call":
            called = next((operand for operand in operands if is_root[operand]), None)
            return [operand for operand in operands if operand != called]
        if name.startswith("reduce"):  # Neither the computation nor the first value has dimensions.
            return [operand for operand in operands if self._shape[operand]]
        return operands

    def _parts(self, node: int) -> Iterator[int]:
        """The operands of a concatenation: XLA merges nested concatenations along the same dimension."""
        for operand in self._operands[node]:
            if self._opcode[operand] == "concatenate" and self._dimensions[operand] == self._dimensions[node]:
                yield from self._operands[operand]
            else:
                yield operand

    def _checked(self, node: int, listed: tuple[int, ...]) -> tuple[int, ...]:
        """The dimensions that a node lists, or the first dimensions if the file lists impossible ones."""
        name, rank = self._opcode[node], len(self._shape[node])
        first = [len(self._shape[operand]) for operand in self._operands[node][:1]] or [rank]
        count, below = {
            "transpose": (rank, rank),
            "broadcast": (min(first[0], rank), rank),
            "reduce": (max(0, first[0] - rank), first[0]),
            "concatenate": (min(1, rank), rank),
        }.get(name, (0, 0))
        dimensions = listed[:count]
        is_right = len(set(dimensions)) == count and all(dimension < below for dimension in dimensions)
        return dimensions if is_right else tuple(range(count))

    def _constrained_layout(self, config: npt.NDArray[np.int8], place: int, tensor: int) -> Layout | None:
        """The layout that a configuration's row gives to one of its three tensors, if any."""
        if tensor < 0:
            return None
        rank = len(self._shape[tensor])
        layout = tuple(config[LAYOUT_RANK * place :][:rank].tolist())
        return layout if rank > 1 and sorted(layout) == list(range(rank)) else None


assert CONFIGURED_TENSORS == 3, "with_constraints handles an output, an input and a weight"


def row_major(rank: int) -> Layout:
    """The layout that NumPy calls C order."""
    return tuple(range(rank - 1, -1, -1))


def in_memory(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """A layout without the dimensions of size 1, whose places do not matter."""
    return tuple(dimension for dimension in layout if shape[dimension] > 1)


def is_row_major(layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is stored in C order."""
    return in_memory(layout, shape) == in_memory(row_major(len(shape)), shape)


def assign_layouts(graph: Instructions) -> AssignedLayouts:
    """Finds the layouts of all instructions.

    Layout constraints, parameters and the kernels of operations fix some layouts. Each of them propagates to the
    operands and readers around it, and the first to reach a tensor decides.
    """
    return _Assignment(graph).result()


class _Assignment:
    def __init__(self, graph: Instructions) -> None:
        self._graph = graph
        self._output: list[Layout | None] = [None] * len(graph.opcode)
        self._read: list[list[Layout | None]] = [[None] * len(operands) for operands in graph.operands]
        # Layouts that are known and not propagated yet: instructions, each with an operand's number, -1 for its output.
        self._waiting: deque[tuple[int, int]] = deque()

    def result(self) -> AssignedLayouts:
        graph = self._graph
        # What the network returns is row-major, unless its layout is constrained.
        for node in graph.order:
            if graph.opcode[node] == "parameter" or (node == graph.order[-1] and graph.opcode[node] != CONSTRAINT):
                self._write(node, row_major(len(graph.shape[node])))
        # Constraints to layouts other than row-major propagate first, beginning with the last in the module.
        constraints = [node for node in graph.order if graph.opcode[node] == CONSTRAINT]
        for node in sorted(
            constraints, key=lambda constraint: graph.layouts[constraint] != row_major(len(graph.layouts[constraint]))
        ):
            self._take(node, 0, graph.layouts[node])
            self._write(node, graph.layouts[node])
        for node in graph.order:
            self._fix_kernel(node)
        self._propagate()
        for node in graph.order:
            if self._output[node] is None:
                self._write(node, row_major(len(graph.shape[node])))
                self._propagate()
        output = [layout or row_major(len(shape)) for layout, shape in zip(self._output, graph.shape, strict=True)]
        operands = [
            [self._read_in(node, place, output) for place in range(len(inputs))]
            for node, inputs in enumerate(graph.operands)
        ]
        return AssignedLayouts(output, operands)

    def _read_in(self, node: int, place: int, output: list[Layout]) -> Layout:
        """The layout in which an operand is read, once the layouts of all outputs are known."""
        graph, operand = self._graph, self._graph.operands[node][place]
        if graph.opcode[node] not in _CHANGE_LAYOUT and len(graph.shape[operand]) == len(graph.shape[node]):
            return output[node]
        return self._read[node][place] or output[operand]

    def _fix_kernel(self, node: int) -> None:
        """Fixes the layouts that kernels need; they propagate last, after the layout constraints."""
        graph, name = self._graph, self._graph.opcode[node]
        if name in _PRODUCTS or name in _READ_ROW_MAJOR:
            for place, operand in enumerate(graph.operands[node]):
                self._take(node, place, row_major(len(graph.shape[operand])), is_next=False)
        if name in _PRODUCTS:
            self._write(node, row_major(len(graph.shape[node])), is_next=False)
        elif name == "transpose" and graph.operands[node]:
            # A transpose of a row-major tensor that moves no element.
            layout = row_major(len(graph.shape[graph.operands[node][0]]))
            self._take(node, 0, layout, is_next=False)
            self._write(node, self._transposed(node, layout), is_next=False)

    def _propagate(self) -> None:
        while self._waiting:
            node, place = self._waiting.popleft()
            if place < 0:
                self._propagate_output(node)
            else:
                self._propagate_operand(node, place)

    def _propagate_output(self, node: int) -> None:
        """Propagates the layout of an output to its readers and to the instruction's operands."""
        graph, name, layout = self._graph, self._graph.opcode[node], self._output[node]
        assert layout is not None
        for user, place in graph.users[node]:
            self._take(user, place, layout, is_next=graph.opcode[user] == "transpose")
        for place, operand in enumerate(graph.operands[node]):
            rank = len(graph.shape[operand])
            if name not in _CHANGE_LAYOUT and rank == len(layout):
                self._take(node, place, layout)
            elif name == "transpose" and rank == len(layout):
                self._take(node, place, tuple(graph.dimensions[node][dimension] for dimension in layout))
            elif name == "broadcast" and rank == len(graph.dimensions[node]):
                of_output = graph.dimensions[node]
                self._take(
                    node, place, tuple(of_output.index(dimension) for dimension in layout if dimension in of_output)
                )

    def _propagate_operand(self, node: int, place: int) -> None:
        """Propagates the layout of an operand to its producer, to the other operands and to the output."""
        graph, name, layout = self._graph, self._graph.opcode[node], self._read[node][place]
        assert layout is not None
        operand, rank = graph.operands[node][place], len(layout)
        self._write(operand, layout)
        if name == "transpose" and rank == len(graph.shape[node]):
            self._write(node, self._transposed(node, layout))
        elif name == "reduce":
            kept = [dimension for dimension in range(rank) if dimension not in graph.dimensions[node]]
            if len(kept) == len(graph.shape[node]):
                self._write(node, tuple(kept.index(dimension) for dimension in layout if dimension in kept))
        elif name not in _CHANGE_LAYOUT and not self._is_smaller_part(node, operand):
            for other, operand in enumerate(graph.operands[node]):
                if other != place and len(graph.shape[operand]) == rank:
                    self._take(node, other, layout)
            if len(graph.shape[node]) == rank:
                self._write(node, layout)

    def _is_smaller_part(self, node: int, operand: int) -> bool:
        """Whether an operand of a concatenation is smaller than another along the concatenated dimension."""
        graph = self._graph
        if graph.opcode[node] != "concatenate":
            return False
        axis = graph.dimensions[node][0] if graph.dimensions[node] else 0
        parts = {
            operand: graph.shape[operand][axis] for operand in graph.operands[node] if len(graph.shape[operand]) > axis
        }
        return parts.get(operand, 0) < max(parts.values(), default=0)

    def _transposed(self, node: int, layout: Layout) -> Layout:
        """The layout of a transpose's output for a layout of its operand."""
        of_operand = self._graph.dimensions[node]
        return tuple(of_operand.index(dimension) for dimension in layout if dimension in of_operand)

    def _write(self, node: int, layout: Layout, *, is_next: bool = True) -> None:
        rank = len(self._graph.shape[node])
        if self._output[node] is None and rank == len(layout) > 1:
            self._output[node] = layout
            self._wait(node, -1, is_next)

    def _take(self, node: int, place: int, layout: Layout, *, is_next: bool = True) -> None:
        if self._read[node][place] is None and len(layout) > 1:
            self._read[node][place] = layout
            self._wait(node, place, is_next)

    def _wait(self, node: int, place: int, is_next: bool) -> None:
        # Depth first, so that a layout propagates as far as it can before the next one.
        (self._waiting.appendleft if is_next else self._waiting.append)((node, place))
