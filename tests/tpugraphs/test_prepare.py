from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.tpugraphs.npz import read_graph
from tvm_gnn_cost.tpugraphs.pack import pack, unpack
from tvm_gnn_cost.tpugraphs.prepare import (
    Savings,
    deduplicate,
    padded_permutation,
    prepare_files,
    prune,
    read_prepared,
)


def test_packing_loses_nothing():
    layouts = np.random.default_rng(0).integers(-1, 6, (50, 7, 18)).astype(np.int8)
    layouts[0] = -1
    layouts[1] = 5
    packed = pack(layouts)
    assert packed.shape == (50, 7, 3)
    assert packed.dtype == np.int32
    assert (packed.min(), packed.max()) == (0, 7**6 - 1)
    np.testing.assert_array_equal(unpack(packed), layouts)


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
    with pytest.raises(ValueError, match=r"chain\.npz: it was not pruned when it was prepared"):
        list(prepare_files([path], tmp_path / "prepared", []))


def test_of_equal_configurations_the_fastest_stays(tmp_path: Path):
    fields = layout_fields(configs=6)
    configs = fields["node_config_feat"][[0, 1, 0, 2, 1, 0]]
    runtime = np.array([5, 4, 3, 6, 9, 8])
    path = write(tmp_path / "g.npz", fields, node_config_feat=configs, config_runtime=runtime)
    assert deduplicate(read_graph(path)).tolist() == [1, 2, 3]
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
    assert deduplicate(read_graph(secret)).tolist() == list(range(6))
    assert len(list(prepare_files([secret], tmp_path / "prepared", []))) == 1
    assert read_prepared(tmp_path / "prepared", "s").runtime is None


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

    (tmp_path / "prepared" / "a.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.npz: no prepared graph .*; delete it and prepare again"):
        read_prepared(tmp_path / "prepared", "a")
    (tmp_path / "prepared" / "c.npy").unlink()
    with pytest.raises(ValueError, match=r"c\.npy is missing; delete c\.npz and prepare again"):
        read_prepared(tmp_path / "prepared", "c")
    (tmp_path / "prepared" / "c.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"c\.npy: no prepared configurations"):
        read_prepared(tmp_path / "prepared", "c")


def test_another_file_of_the_same_name_is_not_taken_for_the_first(tmp_path: Path):
    one = write(tmp_path / "one" / "a.npz", layout_fields())
    same = write(tmp_path / "same" / "a.npz", layout_fields())
    other = write(tmp_path / "other" / "a.npz", layout_fields(seed=1))
    first = dict(prepare_files([one], tmp_path / "prepared", []))
    assert list(dict(prepare_files([same], tmp_path / "prepared", [])).values()) == list(first.values())
    with pytest.raises(ValueError, match=r"a\.npz was not prepared from .*other.*; choose another folder"):
        list(prepare_files([other], tmp_path / "prepared", []))


def test_more_graphs_than_may_be_open_at_once(tmp_path: Path):
    files = [write(tmp_path / f"{seed}.npz", tile_fields(seed=seed)) for seed in range(40)]
    assert len(list(prepare_files(files, tmp_path / "prepared", []))) == 40
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, hard))
    try:
        graphs = [read_prepared(tmp_path / "prepared", file.stem) for file in files]
        found = [graph.configs(np.array([2, 0])) for graph in graphs]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for file, configs in zip(files, found, strict=True):
        np.testing.assert_array_equal(configs, np.load(file)["config_feat"][[2, 0]])
