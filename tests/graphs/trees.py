"""Syntax trees of real TensorIR functions, as the extractor of TVM 0.27 reads them, for tests without TVM."""

from __future__ import annotations

import re

import numpy as np

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import VALUES

# A matrix product and an elementwise operator: as written, then with a split, vectorized and parallel loop.
PRODUCT = """
(PrimFunc (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (BlockRealize
IntImm (Block (For Var IntImm IntImm (For Var IntImm IntImm (For Var IntImm IntImm (BlockRealize Var Var Var IntImm
(Block (IterVar (Range IntImm IntImm) Var) (IterVar (Range IntImm IntImm) Var) (IterVar (Range IntImm IntImm) Var)
(BufferRegion Buffer (Range Var IntImm) (Range Var IntImm)) (BufferRegion Buffer (Range Var IntImm) (Range Var
IntImm)) (BufferRegion Buffer (Range Var IntImm) (Range Var IntImm)) (BufferStore Buffer FloatImm Var Var)
(BufferStore Buffer (Add (BufferLoad Buffer Var Var) (Mul (BufferLoad Buffer Var Var) (BufferLoad Buffer Var Var)))
Var Var)))))))))
"""

ACTIVATED = """
(PrimFunc (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (BlockRealize IntImm (Block (For Var IntImm
IntImm (For Var IntImm IntImm (BlockRealize Var Var IntImm (Block (IterVar (Range IntImm IntImm) Var) (IterVar
(Range IntImm IntImm) Var) (BufferRegion Buffer (Range Var IntImm) (Range Var IntImm)) (BufferRegion Buffer (Range
Var IntImm) (Range Var IntImm)) (BufferStore Buffer (Add (Call.exp (Max (BufferLoad Buffer Var Var) FloatImm))
FloatImm) Var Var))))))))
"""

SCHEDULED_PRODUCT = """
(PrimFunc (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (BlockRealize
IntImm (Block (For Var IntImm IntImm (For Var IntImm IntImm (For Var IntImm IntImm (For Var IntImm IntImm
(BlockRealize Var (Add (Mul Var IntImm) Var) Var IntImm (Block (IterVar (Range IntImm IntImm) Var) (IterVar (Range
IntImm IntImm) Var) (IterVar (Range IntImm IntImm) Var) (BufferRegion Buffer (Range Var IntImm) (Range Var IntImm))
(BufferRegion Buffer (Range Var IntImm) (Range Var IntImm)) (BufferRegion Buffer (Range Var IntImm) (Range Var
IntImm)) (BufferStore Buffer FloatImm Var Var) (BufferStore Buffer (Add (BufferLoad Buffer Var Var) (Mul (BufferLoad
Buffer Var Var) (BufferLoad Buffer Var Var))) Var Var))))))))))
"""

SCHEDULED_ACTIVATED = """
(PrimFunc (Buffer IntImm IntImm IntImm) (Buffer IntImm IntImm IntImm) (BlockRealize IntImm (Block (For Var IntImm
IntImm (For Var IntImm IntImm (For Var IntImm IntImm (BlockRealize Var (Add (Mul Var IntImm) Var) IntImm (Block
(IterVar (Range IntImm IntImm) Var) (IterVar (Range IntImm IntImm) Var) (BufferRegion Buffer (Range Var IntImm)
(Range Var IntImm)) (BufferRegion Buffer (Range Var IntImm) (Range Var IntImm)) (BufferStore Buffer (Add (Call.exp
(Max (BufferLoad Buffer Var Var) FloatImm)) FloatImm) Var Var)))))))))
"""


def graphs() -> ProgramGraphs:
    """The four trees; the node features are zero."""
    return ProgramGraphs.concatenate(
        [parse(text) for text in (PRODUCT, ACTIVATED, SCHEDULED_PRODUCT, SCHEDULED_ACTIVATED)]
    )


def parse(text: str) -> ProgramGraphs:
    """One graph from a tree written as ``(Type child child)``.

    Loops have LOOP edges to the accesses inside them, stores BUFFER edges to the loads inside them.
    """
    types: list[str] = []
    edges: list[tuple[int, int]] = []
    relation: list[Relation] = []
    above: list[int] = []
    is_parent = False
    for token in re.findall(r"[()]|[^()\s]+", text):
        if token == "(":
            is_parent = True
            continue
        if token == ")":
            above.pop()
            continue
        node = len(types)
        types.append(token)
        for ancestor in above:
            if ancestor == above[-1]:
                edges.append((ancestor, node))
                relation.append(Relation.CHILD)
            if types[ancestor] == "For" and token in ("BufferLoad", "BufferStore"):
                edges.append((ancestor, node))
                relation.append(Relation.LOOP)
            if types[ancestor] == "BufferStore" and token == "BufferLoad":
                edges.append((ancestor, node))
                relation.append(Relation.BUFFER)
        if is_parent:
            above.append(node)
            is_parent = False
    names = tuple(sorted(set(types)))
    return ProgramGraphs(
        names,
        np.array([names.index(name) for name in types], np.int32),
        np.zeros((len(types), len(VALUES)), np.float32),
        np.array(edges, np.int32).reshape(-1, 2).T,
        np.array(relation, np.int8),
        offsets_of([len(types)]),
        offsets_of([len(edges)]),
    )
