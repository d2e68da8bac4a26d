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
#: Fills the places behind the last dimension; a layout of nothing else leaves the choice to the compiler.
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

#: Opcodes 1 to 120 have names, 0 stands for an unknown one; files hold them as bytes.
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
