"""TpuGraphs' files (Phothilimthana et al. 2023, arXiv 2308.13490), and the sizes and meanings of their arrays.

XLA's protobufs flow in and npz files flow out of encoding; npz files flow in and their checked arrays flow out of
reading.

A file holds one graph: ``node_feat`` [n, 140], ``node_opcode`` [n], ``edge_index`` [m, 2], and either layouts
(``node_config_ids`` [nc], ``node_config_feat`` [c, nc, 18]) or tiles (``config_feat`` [c, 24],
``config_runtime_normalizers`` [c]) with their runtimes (``config_runtime`` [c], nanoseconds).
"""

from __future__ import annotations

from typing import Literal

#: What the configurations of a graph choose: the layouts of some of its nodes, or the tile sizes of a fused kernel.
Kind = Literal["layout", "tile"]

#: A layout lists the dimensions of one tensor, minor to major, in this many places.
LAYOUT_RANK = 6
#: Fills the places after the last dimension; a layout of nothing else leaves the choice to the compiler.
NO_DIMENSION = -1
#: The greatest dimension that a layout names.
LAST_DIMENSION = LAYOUT_RANK - 1
#: Different values in one place of a layout: -1 to 5.
LAYOUT_SYMBOLS = LAST_DIMENSION - NO_DIMENSION + 1

#: Columns of ``node_feat``: first numbers such as sizes, windows and flags, then the layout of the node's output.
NODE_NUMBERS = 134
NODE_FEATURES = NODE_NUMBERS + LAYOUT_RANK
#: The column that holds the output's first dimension; 0 for a scalar.
FIRST_DIMENSION_COLUMN = 21

#: Opcodes 1 to 120 have names, 0 stands for an unknown operation; files hold them as bytes.
OPCODE_COUNT = 121
OPCODE_LIMIT = 256

#: A configuration gives layouts to a node's output, input and kernel, in this order.
CONFIGURED_TENSORS = 3
LAYOUT_VALUES = CONFIGURED_TENSORS * LAYOUT_RANK

#: A tile configuration has the bounds of kernel, output and input, 6 each, each followed by their sum and product.
TILE_RANK = 6
TILE_VALUES = 3 * (TILE_RANK + 2)

#: The competition looks at this many of the tiles that are ranked best; of layouts it looks at the whole order.
COUNTED_TILES = 5

#: Features that describe a kernel of a prepared graph, see ``preparation/prepared_graph.py``. The first one is the
#: logarithm of its work to the base 2, divided by WORK_UNIT.
KERNEL_FEATURES = 43
WORK, WORK_UNIT = 0, 10

# Sorted by number, from 1; the data set fixes the numbers, which are not XLA's own. XLA removed trace and tuple-select.
# fmt: off
_NAMES = [
    "abs", "add", "add-dependency", "after-all", "all-reduce", "all-to-all", "atan2", "batch-norm-grad",
    "batch-norm-inference", "batch-norm-training", "bitcast", "bitcast-convert", "broadcast", "call", "ceil",
    "cholesky", "clamp", "collective-permute", "count-leading-zeros", "compare", "complex", "concatenate",
    "conditional", "constant", "convert", "convolution", "copy", "copy-done", "copy-start", "cosine", "custom-call",
    "divide", "domain", "dot", "dynamic-slice", "dynamic-update-slice", "exponential", "exponential-minus-one",
    "fft", "floor", "fusion", "gather", "get-dimension-size", "set-dimension-size", "get-tuple-element", "imag",
    "infeed", "iota", "is-finite", "log", "log-plus-one", "and", "not", "or", "xor", "map", "maximum", "minimum",
    "multiply", "negate", "outfeed", "pad", "parameter", "partition-id", "popcnt", "power", "real", "recv",
    "recv-done", "reduce", "reduce-precision", "reduce-window", "remainder", "replica-id", "reshape", "reverse",
    "rng", "rng-get-and-update-state", "rng-bit-generator", "round-nearest-afz", "rsqrt", "scatter", "select",
    "select-and-scatter", "send", "send-done", "shift-left", "shift-right-arithmetic", "shift-right-logical",
    "sign", "sine", "slice", "sort", "sqrt", "subtract", "tanh", "trace", "transpose", "triangular-solve", "tuple",
    "tuple-select", "while", "cbrt", "all-gather", "collective-permute-start", "collective-permute-done",
    "logistic", "dynamic-reshape", "all-reduce-start", "all-reduce-done", "reduce-scatter", "all-gather-start",
    "all-gather-done", "opt-barrier", "async-start", "async-update", "async-done", "round-nearest-even",
    "stochastic-convert", "tan",
]
# fmt: on

#: Maps the names of HLO operations to numbers, 1 to 120; 0 stands for any other operation.
OPCODES = {name: number for number, name in enumerate(_NAMES, 1)}
