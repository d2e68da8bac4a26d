"""The measured layouts that come with the project."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.tpugraphs.format.collections import SPLITS, collections_in, graph_files
from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction
from tvm_gnn_cost.xla_cpu.networks import NETWORKS

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "xla-cpu"
CARD = json.loads((DATA / "card.json").read_text())
KEPT = {name: one for name, one in CARD["graphs"].items() if "dropped" not in one}
FILES = {path.stem: (split, path) for split in SPLITS for path in graph_files(DATA, "layout:xla:random", split)}


def test_the_folder_is_that_of_one_collection_and_the_card_knows_each_graph():
    assert collections_in(DATA) == ("layout:xla:random",)
    assert set(FILES) == set(KEPT)
    assert len(KEPT) >= 24
    for name, (split, _) in FILES.items():
        assert split == KEPT[name]["split"] == NETWORKS[name].split
    families = Counter((one["family"], one["split"]) for one in KEPT.values())
    for family in ("convolutional", "transformer", "mixer", "recurrent"):
        assert families[family, "train"]
        assert families[family, "test"]
    assert all(one["retest_tau"] >= CARD["settings"]["threshold"] for one in KEPT.values())


@pytest.mark.parametrize("name", FILES)
def test_each_graph_is_whole(name: str):
    graph = read_graph(FILES[name][1])
    configs = np.concatenate(list(graph.configs()))
    assert len(configs) == KEPT[name]["configs"] >= 80
    assert len(np.unique(configs.reshape(len(configs), -1), axis=0)) == len(configs)
    assert graph.runtime is not None
    assert graph.runtime.max() / 1e6 == pytest.approx(KEPT[name]["slowest_ms"], abs=1e-5)
    assert graph.runtime.min() / 1e6 == pytest.approx(KEPT[name]["fastest_ms"], abs=1e-5)


@pytest.mark.parametrize("name", [name for name in FILES if KEPT[name]["split"] == "valid"])
def test_the_graph_is_still_that_of_the_network(name: str):
    graph, function = read_graph(FILES[name][1]), ConfigurableFunction(NETWORKS[name].function)
    fields = featurize(function.module)
    np.testing.assert_array_equal(graph.node_feat, fields["node_feat"])
    np.testing.assert_array_equal(graph.edge_index.T, fields["edge_index"])
    np.testing.assert_array_equal(graph.config_nodes, function.config_nodes)
