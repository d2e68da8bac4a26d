"""The design space of a task: register tiling, Winograd, and TVM's default rules for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import IterVar

from tvm_gnn_cost.lowering.blocks import (
    FREE,
    REGISTERS,
    TILED,
    LaneRule,
    covered,
    extents,
    is_contiguous,
    is_elementwise,
    is_spatial,
    root_of,
    spread,
    uses,
    vectorize_last,
)
from tvm_gnn_cost.lowering.column_tiling import ColumnTiling
from tvm_gnn_cost.lowering.padding import MORE_WASTE
from tvm_gnn_cost.lowering.row_tiling import RowTiling
from tvm_gnn_cost.lowering.vectors import vector_lanes
from tvm_gnn_cost.lowering.winograd_tiling import WinogradTiling


def design_space(target: tvm.target.Target) -> ms.space_generator.PostOrderApply:
    """The ``space`` argument of MetaSchedule's tuning functions."""
    rules: list[Any] = list(ms.schedule_rule.ScheduleRule.create("llvm"))
    first = [isinstance(rule, ms.schedule_rule.MultiLevelTiling) for rule in rules].index(True)
    lanes = vector_lanes(target)
    # Before TVM's rules inline the transforms.
    winograd = WinogradTiling(lanes, int(target.attrs.get("num-cores", 1)))
    # Before TVM's rules inline the exponentials of a softmax into both of their consumers.
    rules = [winograd, RowTiling(lanes), ColumnTiling(lanes), *rules[:first], RegisterTiling(lanes), *rules[first:]]
    return ms.space_generator.PostOrderApply(
        sch_rules=list(map(UnlessTiled, rules)), postprocs="llvm", mutator_probs="llvm"
    )


#: Numbers of vectors of a tile.
_COUNTS = (6, 5, 4, 3, 2, 1)

#: Those of a product with a single row, whose accumulators are along the row alone.
_ROW_COUNTS = (16, 12, 8, 6, 4, 3, 2, 1)

#: Multiplications of a product that may take less time than to start the threads: a few microseconds.
_SMALL = 2**18


class Tile(NamedTuple):
    """A tile along the last axis.

    Attributes:
        vectors: Number of vectors.
        lanes: Number of float32 values in each.
        padded: Whether the axis is padded to a multiple of the tile.
    """

    vectors: int
    lanes: int
    padded: bool = False

    @property
    def width(self) -> int:
        """Number of values."""
        return self.vectors * self.lanes


@derived_object
class RegisterTiling(LaneRule):
    """Tiles a matrix product or convolution so that the accumulators stay in registers during the whole reduction.

    TVM's ``MultiLevelTiling`` samples every tile size; in nearly all of its programs the accumulators go through
    memory. Here the innermost tile is ``pixels x vectors`` (as in BLIS: Van Zee and van de Geijn 2015,
    doi:10.1145/2764454), unrolled and vectorized along the last axis; the tiles around it are sampled. It takes blocks
    whose last axis is contiguous in the output. ``RewriteLayout`` packs their weights; operands that are not contiguous
    in the last axis are packed here, and so are those of a product whose last axis is no multiple of a vector, with
    zeros at the end.

    Args:
        lanes: Number of float32 values in a vector register.
    """

    def apply(self, sch: Schedule, block: Any) -> list[Schedule]:
        """One schedule for each tile shape; only ``sch`` if the rule does not apply."""
        if not _is_sum_of_products(sch, block):
            return [sch]
        stmt = sch.get(block)
        extent = int(stmt.iter_vars[_last_spatial(stmt)].dom.extent)
        _inline_followers(sch, block)
        results = []
        counts = _COUNTS if math.prod(extents(stmt)) > extent else _ROW_COUNTS
        is_small = math.prod(int(var.dom.extent) for var in stmt.iter_vars) < _SMALL
        tiles = self._tiles(extent, counts)
        if not any(_is_weight(sch, region.source) for region in stmt.reads):
            padded = self._padded(extent)
            # Of 64 candidates of a product with 300 columns, the fastest 20 were padded; others had vectors of four.
            is_narrow = tiles[0].lanes < min(8, self.lanes)
            if is_narrow and padded and covered(extent, padded[0].width) <= extent * (1 + MORE_WASTE):
                tiles = []
            tiles = tiles + padded
        for tile in tiles:
            # The epilogue may have another shape than the reduction, and only products can be padded; TVM's rules
            # schedule other functions.
            with suppress(ScheduleError):
                packed = sch.copy()
                producers = _packed(packed, block, tile)
                for weights_first, is_local, is_serial in product((False, True), repeat=3):
                    # Starting the other threads takes microseconds.
                    if (is_local and not producers) or (is_serial and not is_small):
                        continue
                    copy = packed.copy()
                    self._tile(copy, block, tile, weights_first, producers if is_local else [], is_serial)
                    results.append(copy)
        return results or [sch]

    def _tiles(self, extent: int, counts: Sequence[int] = _COUNTS) -> list[Tile]:
        """The widest tiles that divide the last axis."""
        lanes = max(size for size in (self.lanes, 8, 4, 1) if size <= self.lanes and extent % size == 0)
        if lanes == 1:
            # An odd width may be a vector too, of up to four registers.
            return [Tile(1, max(size for size in range(1, 4 * self.lanes + 1) if extent % size == 0))]
        return [Tile(count, lanes) for count in counts if extent % (count * lanes) == 0][:3]

    def _padded(self, extent: int) -> list[Tile]:
        """The tiles of whole vectors that exceed the last axis least; none if its extent is a multiple of a vector."""
        if extent % self.lanes == 0:
            return []
        tiles = [Tile(count, self.lanes, padded=True) for count in _COUNTS if (count - 1) * self.lanes < extent]
        return sorted(tiles, key=lambda tile: covered(extent, tile.width))[:2]

    def _tile(
        self, sch: Schedule, block: Any, tile: Tile, weights_first: bool, local: Sequence[Any], is_serial: bool
    ) -> None:
        """Tiles a block.

        Args:
            sch: The schedule to change.
            block: The sum of products.
            tile: The tile along the last axis.
            weights_first: Whether the outer loops iterate over pixels inside of channels.
            local: Producers to compute for each chunk of the parallel loop, in the cache; the others come before.
            is_serial: Whether a single thread computes the chunks.
        """
        stmt = sch.get(block)
        axes = list(zip(sch.get_loops(block), stmt.iter_vars, strict=True))
        *pixels, (channel, _) = [axis for axis in axes if axis[1].iter_type == IterVar.DataPar]
        sums = [loop for loop, var in axes if var.iter_type == IterVar.CommReduce]
        # Number of accumulator registers of the pixels of a tile.
        vectors, lanes = tile.vectors, tile.lanes
        left = max(1, REGISTERS[self.lanes] // vectors)
        outer: list[Any] = []
        middle: list[Any] = []
        inner: list[Any] = []
        for pixel, var in reversed(pixels):
            extent = int(sch.get(pixel).extent)
            # A tile of several products has nothing to reuse.
            most = 1 if _is_batch(stmt, var) else left
            largest = max(size for size in range(1, most + 1) if extent % size == 0)
            if 2 * largest < min(most, extent):
                # Few tile sizes divide the axis, so the last tile is partial: 71 pixels are 8 tiles of 9, less one.
                largest = _least_waste(extent, most)
                first, third = sch.split(pixel, [None, largest])
                first, second = sch.split(first, sch.sample_perfect_tile(first, 2, 64))
                inner.insert(0, third)
            elif largest > 1:
                first, second, third = sch.split(pixel, sch.sample_perfect_tile(pixel, 3, most))
                inner.insert(0, third)
            else:
                first, second = sch.split(pixel, sch.sample_perfect_tile(pixel, 2, 64))
            outer.insert(0, first)
            middle.insert(0, second)
            left //= largest
        groups, vector, lane = sch.split(channel, [None, vectors, lanes])
        first, second = sch.split(groups, sch.sample_perfect_tile(groups, 2, 8))
        outer = [first, *outer] if weights_first else [*outer, first]
        middle = [*middle, second] if weights_first else [second, *middle]
        sum_outer, sum_inner = sch.split(sums[-1], sch.sample_perfect_tile(sums[-1], 2, 512))
        sch.reorder(*outer, *middle, sum_outer, *sums[:-1], sum_inner, *inner, vector, lane)
        chunks = sch.fuse(*outer)
        self._write_back(sch, block, middle[-1], len(inner), lanes)
        for producer in local:
            sch.compute_at(producer, chunks, preserve_unit_loops=True)
            vectorize_last(sch, producer, self.lanes)
        if not is_serial:
            sch.parallel(chunks)
        for loop in [*inner, vector]:
            sch.unroll(loop)
        sch.vectorize(lane)
        root = root_of(sch)
        for other in sch.get_child_blocks(root):
            spread(sch, other, self.lanes)
        sch.annotate(root, TILED, 1)

    def _write_back(self, sch: Schedule, block: Any, at: Any, rows: int, lanes: int) -> None:
        """Computes the epilogue of each tile while it is in registers."""
        consumers = sch.get_consumers(block)
        if len(consumers) == 1 and is_elementwise(sch, consumers[0], sch.get(block).writes[0].source):
            follower = consumers[0]
        else:
            follower = sch.cache_write(block, 0, "global")
        sch.reverse_compute_at(follower, at, preserve_unit_loops=True)
        *others, last = sch.get_loops(follower)
        vector, lane = sch.split(last, [None, lanes])
        # With an index that is not constant, the accumulators would be in memory.
        for loop in [*others[len(others) - rows :], vector]:
            sch.unroll(loop)
        sch.vectorize(lane)


@derived_object
class UnlessTiled(ms.schedule_rule.PyScheduleRule):  # type: ignore[misc]
    """Applies a rule to functions that no earlier rule has tiled, and leaves them as they are where it raises.

    Rules raise errors on some blocks, such as those of TVM on a reduction whose consumer has another shape. Without the
    other rules, the function would have no schedule, and TVM's default one can be a hundred times slower.

    Args:
        rule: The rule.
    """

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self.rule = rule

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """Forwards the context; MetaSchedule calls this."""
        self.rule._initialize_with_tune_context(context)

    def clone(self) -> UnlessTiled:
        """Copies the rule; MetaSchedule calls this for each task."""
        return UnlessTiled(self.rule.clone())

    def apply(self, sch: Schedule, block: Any) -> list[Schedule]:
        """The rule's schedules; only ``sch`` if it is tiled or the rule raises."""
        if TILED in sch.get(root_of(sch)).annotations:
            return [sch]
        # The rule may have changed what it was given before it raises.
        before = sch.copy()
        try:
            return list(self.rule.apply(sch, block))
        except Exception:
            return [before]


def _least_waste(extent: int, most: int) -> int:
    """The tile size between ``most / 2`` and ``most`` whose tiles exceed the axis least.

    >>> _least_waste(71, 9)
    9
    """
    return min(range(most, most // 2, -1), key=lambda size: covered(extent, size))


def _last_spatial(stmt: Any) -> int:
    return max(i for i, var in enumerate(stmt.iter_vars) if var.iter_type == IterVar.DataPar)


def _is_batch(stmt: Any, var: Any) -> bool:
    """Whether an axis counts products: it is in the indices of all operands."""
    return int(var.dom.extent) > 1 and all(
        any(uses(bound.min, var.var) for bound in region.region) for region in stmt.reads
    )


def _is_sum_of_products(sch: Schedule, block: Any) -> bool:
    """Whether a block is its function's only reduction, of two or more buffers, and contiguous in its last axis."""
    stmt = sch.get(block)
    kinds = [var.iter_type for var in stmt.iter_vars]
    if set(kinds) != {IterVar.CommReduce, IterVar.DataPar} or kinds.count(IterVar.DataPar) < 2 or len(stmt.reads) < 2:
        return False
    if len(stmt.writes) != 1 or len(sch.get_loops(block)) != len(kinds):
        return False
    others = sch.get_child_blocks(root_of(sch))
    if sum(not is_spatial(sch, other) for other in others) != 1:
        return False
    last = stmt.iter_vars[_last_spatial(stmt)].var
    return all(is_contiguous(region, last) for region in stmt.writes) and all(
        is_contiguous(region, last) or _axis_of(region, last) is not None for region in stmt.reads
    )


def _axis_of(region: Any, var: Any) -> int | None:
    """The only axis of a buffer region whose index is ``var``, if it occurs in no other index."""
    indices = [bound.min for bound in region.region]
    axes = [axis for axis, index in enumerate(indices) if uses(index, var)]
    return axes[0] if len(axes) == 1 and indices[axes[0]].same_as(var) else None


def _packed(sch: Schedule, block: Any, tile: Tile) -> list[Any]:
    """Packs the operands that need it into panels of a tile's width, and returns the producers of the block.

    ``RewriteLayout`` packs the weights.
    """
    stmt = sch.get(block)
    number = _last_spatial(stmt)
    last = stmt.iter_vars[number].var
    if tile.padded:
        sch.pad_einsum(block, [tile.width if i == number else 1 for i in range(len(stmt.iter_vars))])
        (crop,) = sch.get_consumers(block)
        if sch.get_consumers(crop):
            sch.compute_inline(crop)
    sums = [var.var for var in stmt.iter_vars if var.iter_type == IterVar.CommReduce]
    for i, region in enumerate(stmt.reads):
        axis = _axis_of(region, last)
        if axis is None or (not tile.padded and (is_contiguous(region, last) or _is_weight(sch, region.source))):
            continue
        if not tile.padded:
            sch.cache_read(block, i, "global")
        indices = [bound.min for bound in region.region]
        inner = [other for other, index in enumerate(indices) if any(index.same_as(var) for var in sums)]
        outer = [other for other in range(len(indices)) if other != axis and other not in inner]
        sch.transform_layout(block, ("read", i), _panels(outer, inner, axis, tile.width))
    return [producer for producer in sch.get_producers(block) if is_spatial(sch, producer)]


def _panels(outer: Sequence[int], inner: Sequence[int], axis: int, width: int) -> Callable[..., list[Any]]:
    """The layout of panels: the outer axes, the number of the panel, the inner axes, and the column in the panel."""

    def layout(*indices: Any) -> list[Any]:
        return [
            *(indices[i] for i in outer),
            tvm.tirx.floordiv(indices[axis], width),
            *(indices[i] for i in inner),
            tvm.tirx.floormod(indices[axis], width),
        ]

    return layout


def _is_weight(sch: Schedule, buffer: Any) -> bool:
    """Whether a buffer is a weight that is packed when the network is compiled."""
    function = sch.mod["main"]
    free = function.attrs.get(FREE, ()) if function.attrs else ()
    return any(function.params[int(i)].same_as(buffer) for i in free)


def _inline_followers(sch: Schedule, block: Any) -> None:
    """Inlines the epilogue into the last block, so that it stays in registers; TVM does not do this for ``exp``."""
    for follower in sch.get_consumers(block):
        if is_spatial(sch, follower) and sch.get_consumers(follower):
            sch.compute_inline(follower)
