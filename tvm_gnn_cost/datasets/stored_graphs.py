"""The graphs of a store, read when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.shards import Shard
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs

#: Shards that stay open. Those of a task follow each other; to open one takes about as long as to read a row group.
_OPEN = 64


class StoredFiles:
    """The shards of a store, of which only some are open at a time.

    Args:
        paths: The files.
        starts: int64[len(paths) + 1], the number of each one's first program, and the number of programs.
        none: No graph, with all node types of the store.
    """

    def __init__(self, paths: Sequence[Path], starts: npt.NDArray[np.int64], none: ProgramGraphs) -> None:
        self.starts, self.none = starts, none
        self._shard = lru_cache(_OPEN)(lambda number: Shard(paths[number]))

    def read(self, programs: npt.NDArray[np.int64]) -> ProgramGraphs:
        """The graphs of the programs with the given numbers, ascending and each at most once."""
        shard_of = np.searchsorted(self.starts, programs, side="right") - 1
        parts = [self.none]
        for number in np.unique(shard_of).tolist():
            parts += self._shard(number).graphs(programs[shard_of == number] - self.starts[number])
        # All have the numbers of the first one's node types.
        return ProgramGraphs.concatenate(parts)


class StoredGraphs:
    """G program graphs in a store.

    Args:
        files: The store.
        programs: int64[G], the numbers of the programs in the store.
    """

    def __init__(self, files: StoredFiles, programs: npt.NDArray[np.int64]) -> None:
        self._files, self._programs = files, programs

    def __len__(self) -> int:
        return len(self._programs)

    def select(self, graphs: npt.NDArray[np.int64]) -> StoredGraphs:
        """The graphs with the given numbers, in the given order; nothing is read."""
        return StoredGraphs(self._files, self._programs[graphs])

    def read(self) -> ProgramGraphs:
        """The graphs in memory.

        Raises:
            InputError: a shard is damaged.
        """
        programs, place = np.unique(self._programs, return_inverse=True)
        found = self._files.read(programs)
        return found if np.array_equal(place, np.arange(len(found))) else found.select(place)
