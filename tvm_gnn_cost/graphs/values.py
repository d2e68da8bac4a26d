"""Node features: the columns of ``ProgramGraphs.x``, in groups.

Counts, bytes, extents and depths are ``log2(1 + x)``, signed quantities ``sign(x) * log2(1 + |x|)``, flags 0 or 1. A
column that does not apply to a node is 0 there.

The groups ``access`` and ``work`` follow TVM's per-store features
(``src/s_tir/meta_schedule/feature_extractor/per_store_feature.cc``, after Ansor, arXiv:2006.06762), computed from the
index expressions instead of a lowered program. They ignore loops of one iteration. The group ``gpu`` is 0 in programs
without CUDA kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError

_CONSTANT = (
    "const_0",  # immediate: its value; For and Range: extent; Buffer, BufferLoad, BufferStore: the buffer's elements
    "const_1",  # immediate: 1; For and Range: first value; Buffer, BufferLoad, BufferStore: dimensions, not a logarithm
)
_DTYPE = ("dtype_bytes", "dtype_lanes", "is_float", "is_int")  # of an expression, buffer or stored value
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
    "unroll_max_step",  # of the innermost unroll annotation around the node
    "unroll_explicit",
    "tree_depth",
)
_ACCESS = (
    # BufferLoad and BufferStore, outside indices, regions and predicates
    "buffer_bytes",
    "buffer_is_param",  # a parameter of the function, not allocated in it
    "is_store",
    "executions",
    "unique_bytes",
    "unique_lines",  # cache lines of 64 bytes
    "stride_innermost",  # signed bytes by which an iteration of the innermost loop moves the address
    "stride_second",
    "stride_third",
    "stride_vectorized",
    "innermost_stride_zero",
    "innermost_stride_one",  # one element
    "vectorized_stride_zero",
    "vectorized_stride_one",
    "reuse_count",  # extent of the innermost loop that does not move the address
    "reuse_iterations",  # iterations of the loops inside that loop
    "reuse_bytes",  # bytes that all accesses touch in one iteration of that loop
    "dependent_loops",
    "independent_loops",
    "footprint_1",  # bytes touched while the innermost loop runs
    "footprint_2",  # bytes touched while the two innermost loops run, and so on
    "footprint_3",
    "footprint_4",
    "is_update",  # a store whose value loads from the same buffer, and that load
    "parallel_in_address",
)
_WORK = (
    # For, BlockRealize, Block and BufferStore: sums over the subtree, per execution of the node or for all executions
    # (total)
    "float_ops",
    "float_ops_total",
    "math_calls",  # calls of floating-point functions such as exp
    "math_calls_total",
    "int_ops",  # integer arithmetic, including indices and bindings
    "int_ops_total",
    "loads",
    "stores",
    "footprint_bytes",  # of all accesses, summed over the buffers
    "body_bytes",  # For: footprint_bytes of one iteration
    "intensity",  # floating-point operations and calls per byte
    "is_innermost",  # For: no loop inside
    "body_children",  # For: statements directly inside
)
_TARGET = (
    # every node: properties of the target processor (``graphs.processor``), 0 if unknown
    "cores",
    "vector_bytes",
    "flops_per_cycle",  # of a core, in float32
    "cache_1_bytes",  # of a core, for data
    "cache_2_bytes",  # of a core
)
_GPU = (
    # every node inside a CUDA kernel, that is, inside the outermost loop that is bound to GPU threads
    "grid_blocks",
    "block_threads",
    "virtual_threads",
    "pipeline_stages",  # of the longest software pipeline; 1 without one
    "async_stages",  # stages that are copied asynchronously (``cp_async``)
    "shared_bytes",  # that a block allocates in shared memory, in one stage of a pipeline
    "register_bytes",  # that a thread allocates in registers
    # BufferLoad and BufferStore inside a CUDA kernel
    "in_shared",  # the buffer lies in shared memory
    "in_registers",
    "stride_thread",  # signed bytes by which the next thread along x moves the address; 0 in registers
    "warp_sectors",  # global memory: sectors of 32 bytes that the 32 threads of a warp access together
    "bank_conflicts",  # shared memory: maximum number of words that a warp accesses in a bank; 1 without conflicts
)

VALUES: tuple[tuple[str, str], ...] = tuple(
    (name, group)
    for group, names in (
        ("constant", _CONSTANT),
        ("dtype", _DTYPE),
        ("loop", _LOOP),
        ("access", _ACCESS),
        ("work", _WORK),
        ("target", _TARGET),
        ("gpu", _GPU),
    )
    for name in names
)
"""Name and group of each column, in the order in which the C++ extension fills them (``extraction/values.h``)."""

COLUMN: dict[str, int] = {name: column for column, (name, _) in enumerate(VALUES)}
"""Name -> column."""

ONCE = 1.01
"""Above the extent of a loop of one iteration, and the iterations of none, log2(1 + 1)."""

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(group for _, group in VALUES))


def columns(groups: Sequence[str]) -> npt.NDArray[np.int64]:
    """Column numbers of the given groups, ascending: int64[C].

    >>> columns(["dtype", "constant"]).tolist()
    [0, 1, 2, 3, 4, 5]

    Raises:
        InputError: a group does not exist.
    """
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise InputError(f"there is no feature group {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    return np.array([i for i, (_, group) in enumerate(VALUES) if group in groups], dtype=np.int64)
