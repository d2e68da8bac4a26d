"""The columns of ``ProgramGraphs.values`` and the groups they come in.

Magnitudes (counts, bytes, extents, depths) are ``log2(1 + x)``, signed quantities ``sign(x) * log2(1 + |x|)``; columns
that answer yes or no are 0 or 1. A column that says nothing about a node is 0 there.

What the groups ``access`` and ``work`` know follows TVM's per-store features
(``src/s_tir/meta_schedule/feature_extractor/per_store_feature.cc``, after Ansor, arXiv:2006.06762), taken from the
index expressions instead of a lowered program. A loop of one iteration is no loop there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_CONSTANT = (
    "const_0",  # immediate: its value; For and Range: extent; Buffer, BufferLoad, BufferStore: the buffer's elements
    "const_1",  # immediate: 1; For and Range: first value; Buffer, BufferLoad, BufferStore: dimensions, not a logarithm
)
_DTYPE = ("dtype_bytes", "dtype_lanes", "is_float", "is_int")  # of an expression, a buffer or a stored value
_LOOP = (
    # For
    "extent",
    "kind_serial",
    "kind_parallel",
    "kind_vectorized",
    "kind_unrolled",
    "kind_thread",
    # BlockRealize
    "spatial_iters",
    "reduce_iters",
    "has_init",
    "has_predicate",
    # every node: products of the extents of the loops around it, a For's own included
    "iterations",
    "parallel_iterations",
    "vectorized_iterations",
    "unrolled_iterations",
    "thread_iterations",
    "loop_depth",
    "unroll_max_step",  # of the nearest unroll annotation around the node
    "unroll_explicit",
    "tree_depth",
)
_ACCESS = (
    # BufferLoad and BufferStore, outside indices, regions and predicates
    "buffer_bytes",
    "buffer_is_param",  # a parameter of the function, not allocated inside
    "is_store",
    "executions",
    "unique_bytes",
    "unique_lines",  # cache lines of 64 bytes
    "stride_innermost",  # bytes the address moves by in one iteration of the innermost loop, signed
    "stride_second",
    "stride_third",
    "stride_vectorized",
    "innermost_stride_zero",
    "innermost_stride_one",  # one element
    "vectorized_stride_zero",
    "vectorized_stride_one",
    "reuse_count",  # extent of the innermost loop that does not move the address
    "reuse_iterations",  # iterations of the loops inside that loop
    "reuse_bytes",  # what all accesses touch in one iteration of that loop
    "dependent_loops",
    "independent_loops",
    "footprint_1",  # bytes touched while the innermost loop runs
    "footprint_2",  # the two innermost, and so on
    "footprint_3",
    "footprint_4",
    "is_update",  # a store whose value loads the same buffer, and that load
    "parallel_in_address",
)
_WORK = (
    # For, BlockRealize, Block and BufferStore: the subtree, in one execution of the node unless it says total
    "float_ops",
    "float_ops_total",
    "math_calls",  # calls of floating-point functions such as exp
    "math_calls_total",
    "int_ops",  # integer arithmetic, that of indices and bindings included
    "int_ops_total",
    "loads",
    "stores",
    "footprint_bytes",  # of all accesses, summed over the buffers
    "body_bytes",  # For: the same in one iteration
    "intensity",  # floating-point operations and calls a byte
    "is_innermost",  # For: no loop inside
    "body_children",  # For: statements directly inside
)

VALUES: tuple[tuple[str, str], ...] = tuple(
    (name, group)
    for group, names in (
        ("constant", _CONSTANT),
        ("dtype", _DTYPE),
        ("loop", _LOOP),
        ("access", _ACCESS),
        ("work", _WORK),
    )
    for name in names
)
"""(column name, group), in the order of the columns; the extension fills them in the same order."""

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(group for _, group in VALUES))


def columns(groups: Sequence[str]) -> npt.NDArray[np.int64]:
    """Column numbers of the given groups, ascending: int64[C].

    Raises:
        ValueError: a group does not exist.
    """
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise ValueError(f"no value group {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    return np.array([i for i, (_, group) in enumerate(VALUES) if group in groups], dtype=np.int64)
