from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Advanced
from tvm_gnn_cost.tpugraphs.format import npz
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.tpugraphs.preparation.prepare import (
    Savings,
    padded_permutation,
    prepare,
    prepare_files,
    prepare_graph,
    prune,
)
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import read_prepared
from tvm_gnn_cost.xla_cpu import find_kernels


def test_what_a_layout_is_for_and_its_neighbours_stay(tmp_path: Path):
    # 0 <- 1 <- ... <- 11, with layouts for 5 and 11.
    fields = layout_fields(nodes=12)
    changes = {"node_config_ids": np.array([5, 11]), "node_config_feat": fields["node_config_feat"][:, :2]}
    graph = read_graph(write(tmp_path / "chain.npz", fields, **changes))
    assert prune(graph).tolist() == [4, 5, 6, 10, 11]
    ((_, saved),) = prepare_files([graph.path], tmp_path / "prepared", [])
    assert (saved.nodes, saved.kept_nodes) == (12, 5)
    found = read_prepared(tmp_path / "prepared", "chain")
    assert found.config_nodes.tolist() == [1, 4]
    assert found.edge_index.T.tolist() == [[1, 0], [2, 1], [4, 3]]
    np.testing.assert_array_equal(found.numbers, fields["node_feat"][[4, 5, 6, 10, 11], :134])
    np.testing.assert_array_equal(found.opcode, fields["node_opcode"][[4, 5, 6, 10, 11]])


def test_all_nodes_stay_where_asked(tmp_path: Path):
    path = write(tmp_path / "chain.npz", layout_fields(nodes=12))
    ((_, saved),) = prepare_files([path], tmp_path / "prepared", [], prunes=False)
    assert (saved.nodes, saved.kept_nodes) == (12, 12)
    found = read_prepared(tmp_path / "prepared", "chain")
    assert not found.is_pruned
    np.testing.assert_array_equal(found.edge_index, read_graph(path).edge_index)
    with pytest.raises(InputError, match=r"chain\.npz: it was not pruned when it was prepared"):
        list(prepare_files([path], tmp_path / "prepared", []))


def test_kernels_are_those_of_the_whole_graph_and_of_what_is_kept(tmp_path: Path):
    fields = layout_fields(nodes=12, configs=6)
    equal = fields["node_config_feat"][[0, 1, 0, 2, 3, 4]]
    path = write(tmp_path / "chain.npz", fields, node_config_feat=equal, config_runtime=np.array([5, 4, 3, 6, 9, 8]))
    list(prepare_files([path], tmp_path / "plain", []))
    assert read_prepared(tmp_path / "plain", "chain").kernels is None
    with pytest.raises(InputError, match=r"chain\.npz: it was prepared without kernels; choose another folder"):
        list(prepare_files([path], tmp_path / "plain", [], find_kernels=find_kernels))
    list(prepare_files([path], tmp_path / "prepared", [], find_kernels=find_kernels))
    found = read_prepared(tmp_path / "prepared", "chain")
    assert found.config_rows.tolist() == [1, 2, 3, 4, 5]
    expected = find_kernels(read_graph(path), equal[1:].astype(np.int8))
    assert found.kernels is not None
    for name in ("features", "of", "begins"):
        np.testing.assert_array_equal(getattr(found.kernels, name), getattr(expected, name))
    # One that has kernels already is prepared, also where none are asked for.
    ((_, saved),) = prepare_files([path], tmp_path / "prepared", [])
    assert saved.kept_configs == 5


def test_tiles_have_no_kernels(tmp_path: Path):
    write(tmp_path / "npz/tile/xla/train/t.npz", tile_fields())
    with pytest.raises(InputError, match="tile:xla has tiles; kernels can only be found for layouts"):
        prepare(tmp_path, tmp_path / "prepared", find_kernels=find_kernels)


def test_of_equal_configurations_the_fastest_stays(tmp_path: Path):
    fields = layout_fields(configs=6)
    configs = fields["node_config_feat"][[0, 1, 0, 2, 1, 0]]
    runtime = np.array([5, 4, 3, 6, 9, 8])
    path = write(tmp_path / "g.npz", fields, node_config_feat=configs, config_runtime=runtime)
    ((_, saved),) = prepare_files([path], tmp_path / "prepared", [])
    assert (saved.configs, saved.kept_configs) == (6, 3)
    assert (saved.bytes, saved.kept_bytes) == (6 * 4 * 18 * 4, 3 * 4 * 3 * 4)
    found = read_prepared(tmp_path / "prepared", "g")
    assert found.config_rows.tolist() == [1, 2, 3]
    assert found.runtime is not None
    assert found.runtime.tolist() == [4, 3, 6]
    np.testing.assert_array_equal(found.configs(np.array([2, 0])), configs[[3, 1]])
    # A secret runtime can't choose: all are ranked.
    secret = write(tmp_path / "s.npz", fields, node_config_feat=configs, config_runtime=None)
    assert len(list(prepare_files([secret], tmp_path / "prepared", []))) == 1
    found = read_prepared(tmp_path / "prepared", "s")
    assert (found.runtime, found.config_rows.tolist()) == (None, list(range(6)))


def test_a_tile_graph_keeps_all_nodes(tmp_path: Path):
    fields = tile_fields()
    fields["config_feat"][3] = fields["config_feat"][1]
    ((_, saved),) = prepare_files([write(tmp_path / "kernel.npz", fields)], tmp_path / "prepared", [])
    assert (saved.nodes, saved.kept_nodes, saved.configs, saved.kept_configs) == (5, 5, 7, 6)
    found = read_prepared(tmp_path / "prepared", "kernel")
    assert found.kind == "tile"
    np.testing.assert_array_equal(found.configs(np.arange(6)), fields["config_feat"][[0, 1, 2, 4, 5, 6]])


def test_layouts_are_padded_behind_their_ends():
    feat = np.zeros((4, 140), np.float32)
    feat[0, 134:] = [3, 2, 1, 0, 0, 0]  # rank 4
    feat[1, 134:] = [0, 1, 0, 0, 0, 0]  # rank 2
    feat[2, 21] = 7  # a vector
    assert padded_permutation(feat).tolist() == [
        [3, 2, 1, 0, -1, -1],
        [0, 1, -1, -1, -1, -1],
        [0, -1, -1, -1, -1, -1],
        [-1] * 6,
    ]


def test_it_resumes_and_goes_on_past_what_is_broken(tmp_path: Path):
    files = [write(tmp_path / f"{name}.npz", layout_fields(seed=i)) for i, name in enumerate("abc")]
    files[1].write_bytes(b"broken")
    configs = layout_fields()["node_config_feat"]
    configs[5] = 9
    files.append(write(tmp_path / "d.npz", layout_fields(), node_config_feat=configs))
    problems: list[str] = []
    first = dict(prepare_files(files, tmp_path / "prepared", problems))
    assert [path.name for path in first] == ["a.npz", "c.npz"]
    assert [problem.split(":")[0] for problem in problems] == [str(files[1]), str(files[3])]
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared").iterdir()}
    assert dict(prepare_files(files, tmp_path / "prepared", [])) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared").glob("[ac].*")} == {
        path: time for path, time in times.items() if path.name[0] in "ac"
    }
    total = sum(first.values(), Savings())
    assert (total.graphs, total.nodes, total.configs) == (2, 24, 40)


def test_another_file_of_the_same_name_is_not_taken_for_the_first(tmp_path: Path):
    one = write(tmp_path / "one" / "a.npz", layout_fields())
    same = write(tmp_path / "same" / "a.npz", layout_fields())
    other = write(tmp_path / "other" / "a.npz", layout_fields(seed=1))
    first = dict(prepare_files([one], tmp_path / "prepared", []))
    assert list(dict(prepare_files([same], tmp_path / "prepared", [])).values()) == list(first.values())
    with pytest.raises(InputError, match=r"a\.npz was not prepared from .*other.*; choose another folder"):
        list(prepare_files([other], tmp_path / "prepared", []))


def test_ranking_keeps_equal_configurations_in_memory(tmp_path: Path):
    fields = layout_fields(configs=6)
    configs = fields["node_config_feat"][[0, 1, 0, 2, 1, 0]]
    graph = prepare_graph(read_graph(write(tmp_path / "g.npz", fields, node_config_feat=configs)), keeps_equal=True)
    np.testing.assert_array_equal(graph.configs(np.arange(6)), configs)
    np.testing.assert_array_equal(graph.runtime, fields["config_runtime"])
    # It is the graph that a file would hold.
    list(prepare_files([write(tmp_path / "h.npz", fields)], tmp_path / "prepared", []))
    stored = read_prepared(tmp_path / "prepared", "h")
    for name in ("numbers", "permutation", "opcode", "edge_index", "config_nodes", "config_rows"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(stored, name))


def test_a_part_of_the_file_without_a_new_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fields = layout_fields(configs=6)
    configs = fields["node_config_feat"][[0, 1, 0, 1, 2, 3]]
    monkeypatch.setattr(npz, "_CHUNK_BYTES", 2 * configs[0].nbytes)
    path = write(tmp_path / "g.npz", fields, node_config_feat=configs)
    ((_, saved),) = prepare_files([path], tmp_path / "prepared", [])
    assert saved.kept_configs == 4
    found = read_prepared(tmp_path / "prepared", "g")
    np.testing.assert_array_equal(found.configs(np.arange(4)), configs[[0, 1, 4, 5]])


def test_collections_are_prepared_and_reported(tmp_path: Path):
    root, out = tmp_path / "data", tmp_path / "prepared"
    write(root / "npz/layout/xla/random/train/a.npz", layout_fields())
    write(root / "npz/layout/xla/random/valid/b.npz", layout_fields(), node_feat=None)
    write(root / "npz/tile/xla/train/k.npz", tile_fields())
    events: list[Advanced] = []
    found = prepare(root, out, progress=events.append)
    assert list(found.collections) == ["layout:xla:random", "tile:xla"]
    assert [one.graphs for one in found.collections.values()] == [1, 1]
    broken = (root / "npz/layout/xla/random/valid/b.npz").resolve()
    assert found.left_out == (f"{broken}: the field node_feat is missing",)
    assert events == [Advanced(1, 3), Advanced(3, 3)]
    assert str(found).splitlines() == [
        "layout:xla:random: 1 graphs, kept 11 of 12 nodes, 20 of 20 configurations, 0.0 of 0.0 MiB",
        "tile:xla: 1 graphs, kept 5 of 5 nodes, 7 of 7 configurations, 0.0 of 0.0 MiB",
        "1 left out",
    ]
    assert list(prepare(root, out, ["tile:xla"]).collections) == ["tile:xla"]
    with pytest.raises(FileNotFoundError, match="holds no collection"):
        prepare(tmp_path / "none", out)
    (root / "npz/layout/nlp/random").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="holds no npz file of layout:nlp:random"):
        prepare(root, out, ["layout:nlp:random"])
    with pytest.raises(InputError, match="unknown collection 'tile'"):
        prepare(root, out, ["tile"])
