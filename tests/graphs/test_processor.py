from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.graphs.processor import Processor, processor_of, with_processors
from tvm_gnn_cost.graphs.values import columns

CASCADELAKE = Processor("cascadelake", 4, 64, 64, 32 * 1024, 1024 * 1024)


@pytest.mark.parametrize(
    "target",
    [
        "llvm -keys=cpu -mcpu=cascadelake -num-cores=4",
        json.dumps("llvm -mcpu=cascadelake -model=mine -num-cores=4"),
        json.dumps({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 4}),
    ],
)
def test_a_target_is_read_in_each_form_that_tvm_writes(target: str) -> None:
    assert processor_of(target) == CASCADELAKE


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("llvm", Processor()),
        ("", Processor()),
        ("[1, 2]", Processor()),
        ("llvm -mcpu=cascadelake", replace(CASCADELAKE, cores=0)),
        ("llvm -mcpu=none-such -num-cores=8", Processor("none-such", 8)),
        ("llvm -mcpu=cascadelake -num-cores=many", replace(CASCADELAKE, cores=0)),
        ('{"kind": "cuda", "arch": "sm_80", "mcpu": null, "num-cores": null}', Processor()),
    ],
)
def test_what_a_target_does_not_tell_is_zero(target: str, expected: Processor) -> None:
    assert processor_of(target) == expected


def test_every_node_of_a_graph_has_the_facts_of_its_own_target() -> None:
    graphs = synthetic.graphs(3)
    targets = ["llvm -mcpu=cascadelake -num-cores=4", "llvm", "llvm -mcpu=znver3 -num-cores=2"]
    before = graphs.x.copy()
    result = with_processors(replace(graphs, x=before.copy()), targets)
    used = columns(["target"])
    expected = np.log2(1 + np.array([[4, 64, 64, 32768, 1048576], [0] * 5, [2, 32, 32, 32768, 524288]], np.float32))
    for graph, row in enumerate(expected):
        begin, end = result.node_offsets[graph : graph + 2]
        np.testing.assert_array_equal(result.x[begin:end, used], np.tile(row, (end - begin, 1)))
    others = np.setdiff1d(np.arange(before.shape[1]), used)
    np.testing.assert_array_equal(result.x[:, others], before[:, others])


def test_values_that_cannot_be_written_are_copied() -> None:
    graphs = synthetic.graphs(2)
    graphs.x.flags.writeable = False
    before = graphs.x.copy()
    result = with_processors(graphs, ["llvm -mcpu=znver3 -num-cores=2"] * 2)
    np.testing.assert_array_equal(graphs.x, before)
    assert result.x[:, columns(["target"])].all()


def test_no_graphs_have_no_targets() -> None:
    empty = synthetic.graphs(1).select([])
    assert len(with_processors(empty, [])) == 0


def test_each_graph_needs_a_target() -> None:
    with pytest.raises(ValueError, match="2 graphs and 1 targets: one each is needed"):
        with_processors(synthetic.graphs(2), ["llvm"])
