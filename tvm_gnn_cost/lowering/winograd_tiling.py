"""The design space of Winograd convolutions (``winograd.py``)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.lowering.blocks import TILED, is_elementwise, spread
from tvm_gnn_cost.lowering.winograd import STAGE

#: Bytes that stay in a core's L2 cache.
_CACHE = 1 << 20

#: Input channels in a reduction block: their weights stay in the L1 cache between register tiles.
_SUMS = 64

#: Cost of reading the weights of a chunk, in tiles: outside of the cache, and in the cache.
_READING = (8, 1)

#: Slowdown of a chunk that does not stay in the cache.
_SPILLING = 1.5

#: Schedules of a task: the best shapes by an analytical estimate, among which the search chooses.
_SHAPES = 5


@derived_object
class WinogradTiling(ms.schedule_rule.PyScheduleRule):  # type: ignore[misc]
    """Computes one chunk of tiles after another, from input to output, so that intermediate results stay in the cache.

    The products are tiled as by ``RegisterTiling``; the transforms are unrolled and vectorized over channels.

    Args:
        lanes: Number of float32 values in a vector register.
        cores: Number of cores.
    """

    def __init__(self, lanes: int, cores: int) -> None:
        super().__init__()
        self.lanes, self.cores = lanes, cores

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """Does nothing; MetaSchedule calls this."""

    def clone(self) -> WinogradTiling:
        """A rule with the same settings; MetaSchedule calls this for each task."""
        return WinogradTiling(self.lanes, self.cores)

    def apply(self, sch: Schedule, block: Any) -> list[Schedule]:
        """A schedule for each shape of tiles and chunks; only ``sch`` if the rule does not apply.

        With several images, TVM refuses chunks that end within a row of an image's tiles; none may be left.
        """
        if sch.get(block).annotations.get(STAGE) != "products":
            return [sch]
        side, _, tiles, outputs = (int(var.dom.extent) for var in sch.get(block).iter_vars[:4])
        inputs = int(sch.get(block).iter_vars[4].dom.extent)
        results = []
        for vectors, pixels, chunk in self._shapes(side * side * 4, tiles, inputs, outputs):
            with suppress(ScheduleError):
                copy = sch.copy()
                self._tile(copy, vectors, pixels, chunk)
                results.append(copy)
            if len(results) == _SHAPES:
                break
        return results

    def _shapes(self, side_bytes: int, tiles: int, inputs: int, outputs: int) -> list[tuple[int, int, int]]:
        """Vectors and pixels of register tiles, with the number of image tiles in a chunk, the most promising first.

        Args:
            side_bytes: Bytes of a transformed tile of one channel.
            tiles: Number of image tiles.
            inputs: Number of input channels.
            outputs: Number of output channels.
        """
        registers = 32 if self.lanes == 16 else 16
        weights = side_bytes * inputs * outputs
        is_cached = weights <= _CACHE
        result = {}
        for chunk in _divisors(tiles):
            used = chunk * side_bytes * (inputs + outputs) + is_cached * weights
            spilling = _SPILLING if used > _CACHE else 1.0
            # The core with the most chunks determines the time.
            chunks = -(-tiles // chunk // self.cores)
            for vectors in (item for item in (6, 4, 3, 2, 1) if outputs % (item * self.lanes) == 0):
                # Accumulators, weights and one input are in registers.
                pixels = max(
                    divisor for divisor in _divisors(chunk) if (divisor + 1) * vectors < registers or divisor == 1
                )
                loads = (pixels + vectors) / (pixels * vectors)
                result[vectors, pixels, chunk] = chunks * (chunk * spilling * (1 + loads) + _READING[is_cached])
        return sorted(result, key=lambda shape: result[shape])

    def _tile(self, sch: Schedule, vectors: int, pixels: int, chunk: int) -> None:
        stages = {
            str(sch.get(get_child_block).annotations[STAGE]): get_child_block
            for get_child_block in sch.get_child_blocks(sch.get_sblock("root"))
            if STAGE in sch.get(get_child_block).annotations
        }
        size = int(sch.get(stages["outputs"]).iter_vars[0].dom.extent)
        last = _finish(sch, stages["image"])
        batch, row, column, channel = sch.get_loops(last)
        (down, y), (across, x) = sch.split(row, [None, size]), sch.split(column, [None, size])
        group, lane = sch.split(channel, [None, self.lanes])
        sch.reorder(batch, down, across, group, y, x, lane)
        at, tile = sch.split(sch.fuse(batch, down, across), [None, chunk])
        del tile
        for loop in (y, x):
            sch.unroll(loop)
        sch.vectorize(lane)
        for name in ("outputs", "outputs_rows"):
            self._transform(sch, stages[name], group)
        self._multiply(sch, stages["products"], at, vectors, pixels)
        group = self._vectors_first(sch, stages["inputs"], at)
        for name in ("inputs_rows", "tiles"):
            self._transform(sch, stages[name], group)
        sch.compute_inline(stages["padded"])
        sch.parallel(at)
        root = sch.get_sblock("root")
        for other in sch.get_child_blocks(root):
            spread(sch, other, self.lanes)
        sch.annotate(root, TILED, 1)

    def _transform(self, sch: Schedule, block: Any, at: Any) -> None:
        """Computes a vector of a tile's channels in registers."""
        sch.compute_at(block, at, preserve_unit_loops=True)
        i, j, _, channels = sch.get_loops(block)[-4:]
        for loop in (i, j):
            sch.unroll(loop)
        sch.vectorize(channels)
        sch.set_scope(block, 0, "local")

    def _multiply(self, sch: Schedule, block: Any, at: Any, vectors: int, pixels: int) -> None:
        """Multiplies all tiles of a chunk by the weights."""
        sch.compute_at(block, at, preserve_unit_loops=True)
        i, j, tile, channel, k = sch.get_loops(block)[-5:]
        tile, pixel = sch.split(tile, [None, pixels])
        group, vector, lane = sch.split(channel, [None, vectors, self.lanes])
        k, inner = sch.split(
            k, [None, max(divisor for divisor in _divisors(int(sch.get(k).extent)) if divisor <= _SUMS)]
        )
        sch.reorder(i, j, group, tile, k, inner, pixel, vector, lane)
        sch.unroll(pixel)
        sch.unroll(vector)
        sch.vectorize(lane)

    def _vectors_first(self, sch: Schedule, block: Any, at: Any) -> Any:
        """Transforms the inputs of a chunk, all of a tile's pixels for a vector of channels at a time."""
        sch.compute_at(block, at, preserve_unit_loops=True)
        i, j, tile, channel = sch.get_loops(block)[-4:]
        group, lane = sch.split(channel, [None, self.lanes])
        sch.reorder(tile, group, i, j, lane)
        for loop in (i, j):
            sch.unroll(loop)
        sch.vectorize(lane)
        return group


def _finish(sch: Schedule, block: Any) -> Any:
    """Inlines the output image into its elementwise consumers; returns the block that writes the result."""
    while True:
        consumers = sch.get_consumers(block)
        if len(consumers) != 1 or not is_elementwise(sch, consumers[0], sch.get(block).writes[0].source):
            return block
        sch.compute_inline(block)
        block = consumers[0]


def _divisors(number: int) -> list[int]:
    """The divisors of a number.

    >>> _divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [item for item in range(1, number + 1) if number % item == 0]
