from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost import extract_graphs
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.graphs.program_graph import Relation

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def product() -> Any:
    """A matrix product whose columns are split, with the first value of its sum in the block."""
    import tvm
    from tvm import te

    from tvm_gnn_cost.installed import Schedule

    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([a, b, c])}))
    block = schedule.get_sblock("C") if hasattr(schedule, "get_sblock") else schedule.get_block("C")
    rows, columns, _ = schedule.get_loops(block)
    schedule.split(columns, [None, 16])
    schedule.parallel(rows)
    return schedule.mod


def test_every_loop_and_store_is_found_in_its_line(product: Any) -> None:
    from tvm_gnn_cost.schedulers.listing import list_program

    graphs = extract_graphs([product], detail="statements")
    listing = list_program(product, graphs)
    source, target = graphs.edge_index[:, graphs.edge_type == Relation.CHILD]

    def below(node: int) -> set[str]:
        children = target[source == node].tolist()
        return {graphs.type_names[graphs.node_type[one]] for one in children}.union(*map(below, children))

    found = {text.strip(): node for text, node in listing.lines if node >= 0}
    names = {text: graphs.type_names[graphs.node_type[node]] for text, node in found.items()}
    assert [name for text, name in names.items() if text.startswith("for ")] == ["For", "For"]
    stores = {text: below(node) for text, node in found.items() if names[text] == "BufferStore"}
    assert len(stores) == 2
    # The first value is a constant, and the sum reads three buffers.
    for text, inside in stores.items():
        assert ("BufferLoad" in inside) == ("C[v_i, v_j] + " in text), text
    # Loops that stand alone inside each other are one line.
    assert np.count_nonzero(graphs.node_type == graphs.type_names.index("For")) == 4


def test_lines_are_short(product: Any) -> None:
    from tvm_gnn_cost.schedulers.listing import list_program

    lines = [text for text, _ in list_program(product, extract_graphs([product], detail="statements")).lines]
    assert lines[0].startswith("def main(")
    assert not [line for line in lines if "T.reads(" in line or "# @" in line or "T.int64(" in line]
    assert lines[1].startswith("  for i in T.parallel(64):")


def test_another_programs_graph_is_refused(product: Any) -> None:
    import tvm
    from tvm import te

    from tvm_gnn_cost.schedulers.listing import list_program

    a = te.placeholder((8,), name="A")
    other = tvm.IRModule({"main": te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1)])})
    with pytest.raises(WorkError, match="the statements of the program's text and graph differ"):
        list_program(product, extract_graphs([other], detail="statements"))
