from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format.npz import content_id, read_graph, write_npz


def test_a_layout_graph(tmp_path: Path):
    fields = layout_fields()
    graph = read_graph(write(tmp_path / "resnet.npz", fields))
    assert graph.name == "resnet"
    np.testing.assert_array_equal(graph.node_feat, fields["node_feat"])
    np.testing.assert_array_equal(graph.node_opcode, fields["node_opcode"])
    np.testing.assert_array_equal(graph.edge_index.T, fields["edge_index"])
    np.testing.assert_array_equal(graph.config_nodes, fields["node_config_ids"])
    np.testing.assert_array_equal(graph.runtime, fields["config_runtime"])
    assert graph.kind == "layout"
    chunks = list(graph.configs(7))
    assert [len(chunk) for chunk in chunks] == [7, 7, 6]
    assert chunks[0].dtype == np.int8
    np.testing.assert_array_equal(np.concatenate(chunks), fields["node_config_feat"])
    assert graph.configs_shape == (20, 4, 18)


def test_a_tile_graph(tmp_path: Path):
    fields = tile_fields()
    graph = read_graph(write(tmp_path / "kernel.npz", fields))
    assert graph.kind == "tile"
    assert len(graph.config_nodes) == 0
    np.testing.assert_allclose(graph.runtime, np.arange(1, 8) / 2)
    np.testing.assert_array_equal(np.concatenate(list(graph.configs())), fields["config_feat"])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32])
def test_integers_of_any_type(dtype: Any, tmp_path: Path):
    fields = layout_fields()
    changes = {name: fields[name].astype(dtype) for name in ("node_opcode", "edge_index", "node_config_ids")}
    changed = read_graph(write(tmp_path / "changed.npz", fields, **changes))
    for name in ("node_opcode", "edge_index", "config_nodes"):
        found = getattr(changed, name)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, getattr(read_graph(write(tmp_path / "same.npz", fields)), name))


@pytest.mark.parametrize("runtime", [None, np.zeros(20)])
def test_secret_runtimes(runtime: Any, tmp_path: Path):
    assert read_graph(write(tmp_path / "secret.npz", layout_fields(), config_runtime=runtime)).runtime is None


def test_a_graph_without_edges(tmp_path: Path):
    graph = read_graph(write(tmp_path / "lone.npz", layout_fields(), edge_index=np.zeros(0, np.int64)))
    assert graph.edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"node_feat": None}, "node_feat", "is missing"),
        ({"node_feat": np.zeros((12, 139))}, "node_feat", r"has the shape \[12, 139\], not \[n, 140\]"),
        ({"node_feat": np.full((12, 140), np.nan)}, "node_feat", "not finite"),
        ({"node_opcode": np.zeros(11, np.uint8)}, "node_opcode", r"has the shape \[11\], not \[n = 12\]"),
        ({"node_opcode": np.full(12, -1)}, "node_opcode", "whole numbers from 0 to 255"),
        ({"node_opcode": np.array(["a"] * 12)}, "node_opcode", "not numbers"),
        ({"edge_index": np.full((3, 2), 12)}, "edge_index", "whole numbers from 0 to 11"),
        ({"edge_index": np.full((3, 2), 0.5)}, "edge_index", "whole numbers from 0 to 11"),
        ({"edge_index": np.zeros((2, 3))}, "edge_index", r"has the shape \[2, 3\], not \[m, 2\]"),
        ({"node_config_ids": np.array([0, 3, 6, 12])}, "node_config_ids", "whole numbers from 0 to 11"),
        ({"node_config_ids": np.zeros(3, int)}, "node_config_feat", r"not \[c, nc = 3, 18\]"),
        ({"node_config_feat": np.zeros((20, 4, 17))}, "node_config_feat", r"\[20, 4, 17\]"),
        ({"node_config_feat": np.zeros((20, 4, 18), order="F")}, "node_config_feat", "stored by columns"),
        ({"node_config_feat": np.zeros((0, 4, 18))}, "node_config_feat", "is empty"),
        (
            {"node_config_ids": np.zeros(0, int), "node_config_feat": np.zeros((20, 0, 18))},
            "node_config_feat",
            "is empty",
        ),
        ({"config_runtime": np.ones(19)}, "config_runtime", r"has the shape \[19\], not \[c = 20\]"),
        ({"config_runtime": np.arange(20)}, "config_runtime", "not positive"),
    ],
)
def test_a_wrong_field_is_named(changes: Any, field: str, reason: str, tmp_path: Path):
    bad = write(tmp_path / "bad.npz", layout_fields(), **changes)
    with pytest.raises(InputError, match=rf"bad\.npz: .*{field}.*{reason}"):
        read_graph(bad)


def test_a_file_of_the_other_kind_lacks_what_its_collection_has(tmp_path: Path):
    files = [write(tmp_path / "layout.npz", layout_fields()), write(tmp_path / "tile.npz", tile_fields())]
    with pytest.raises(InputError, match=r"tile\.npz: the field node_config_ids is missing"):
        read_graph(files[1], "layout")
    with pytest.raises(InputError, match=r"layout\.npz: the field config_feat is missing"):
        read_graph(files[0], "tile")


@pytest.mark.parametrize("value", [6.0, -2.0, 0.5, 300.0, np.nan])
def test_a_wrong_layout_is_named(value: float, tmp_path: Path):
    configs = layout_fields()["node_config_feat"]
    configs[11, 2, 5] = value
    graph = read_graph(write(tmp_path / "bad.npz", layout_fields(), node_config_feat=configs))
    with pytest.raises(InputError, match=r"bad\.npz: node_config_feat holds a value that is not a dimension"):
        list(graph.configs(4))


def test_damaged_files(tmp_path: Path):
    whole = write(tmp_path / "whole.npz", layout_fields()).read_bytes()
    bad = tmp_path / "bad.npz"
    for content in (b"", b"no archive", whole[:100], whole[: len(whole) // 2]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.npz: the archive cannot be read"):
            read_graph(bad)
    middle = bytearray(whole)
    middle[200:1200] = bytes(1000)
    bad.write_bytes(middle)
    with pytest.raises(InputError, match=r"bad\.npz: node_feat cannot be read"):
        read_graph(bad)


def test_pickles_are_not_loaded(tmp_path: Path):
    path = write(tmp_path / "pickled.npz", layout_fields(), node_opcode=np.array([Payload(tmp_path / "ran")] * 12))
    with pytest.raises(InputError, match=r"pickled\.npz: node_opcode cannot be read"):
        read_graph(path)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))  # the payload works
    assert (tmp_path / "ran").exists()


class Payload:
    """Pickles as a call that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_memory_is_bounded(tmp_path: Path):
    fields = layout_fields(nodes=300, configs=1)
    # 36 MB; 144 in float32. All alike, because that compresses quickly.
    configs = np.full((20_000, *fields["node_config_feat"].shape[1:]), -1, np.int8)
    runtime = np.arange(1, len(configs) + 1)
    path = write(tmp_path / "large.npz", fields, node_config_feat=configs.astype(np.float32), config_runtime=runtime)
    del configs
    tracemalloc.start()
    graph = read_graph(path)
    count = sum(len(chunk) for chunk in graph.configs())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 40e6


def test_a_file_with_damage_anywhere_is_bad_input(tmp_path: Path):
    whole = write(tmp_path / "whole.npz", layout_fields(nodes=3, configs=2)).read_bytes()
    bad = tmp_path / "bad.npz"
    rng = np.random.default_rng(0)
    refused: list[str] = []
    for _ in range(400):
        content = bytearray(whole)
        # Half of the damage in the archive's directory at the end, where little else is.
        low = len(whole) - 700 if rng.random() < 0.5 else 0
        for place in rng.integers(low, len(whole), 3).tolist():
            content[place] = rng.integers(256)
        bad.write_bytes(content)
        try:
            list(read_graph(bad).configs())
            content_id(bad)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all(message.startswith(f"{bad}: ") for message in refused)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "new" / "graph.npz"
    write_npz(path, layout_fields(seed=1))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(path, {"node_feat": np.array([object()])})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["graph.npz"]


def test_a_content_id_is_that_of_the_arrays(tmp_path: Path):
    one = write(tmp_path / "one.npz", layout_fields())
    same = write(tmp_path / "same.npz", layout_fields())
    other = write(tmp_path / "other.npz", layout_fields(), config_runtime=np.arange(2, 22))
    assert content_id(one) == content_id(same) != content_id(other)
    other.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"other\.npz: the archive cannot be read"):
        content_id(other)
