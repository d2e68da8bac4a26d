from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import KERNEL_FEATURES
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import (
    Kernels,
    pack,
    prepared_folder,
    read_all_prepared,
    read_prepared,
    unpack,
)
from tvm_gnn_cost.xla_cpu import find_kernels


def prepared(folder: Path, names: str) -> Path:
    """A folder of prepared layout graphs with these names of one letter."""
    files = [write(folder / f"{name}.npz", layout_fields(seed=i)) for i, name in enumerate(names)]
    assert len(list(prepare_files(files, folder / "prepared", []))) == len(names)
    return folder / "prepared"


def test_configurations_are_read_in_the_order_that_is_asked_for(tmp_path: Path):
    graph = read_prepared(prepared(tmp_path, "a"), "a")
    assert (graph.name, graph.kind, graph.is_pruned) == ("a", "layout", True)
    assert (graph.packed.dtype, graph.packed.shape) == (np.int32, (20, 4, 3))
    expected = layout_fields()["node_config_feat"]
    np.testing.assert_array_equal(graph.configs(np.array([3, 0, 3])), expected[[3, 0, 3]])
    assert graph.configs(np.zeros(0, np.int64)).shape == (0, 4, 18)


def test_a_split_is_read_in_the_order_of_the_names(tmp_path: Path):
    there = prepared_folder(tmp_path, "layout:xla:random", "valid")
    assert there == tmp_path / "layout-xla-random" / "valid"
    assert read_all_prepared(tmp_path, "layout:xla:random", "valid") == []
    files = [write(tmp_path / f"{name}.npz", layout_fields()) for name in "ba"]
    list(prepare_files(files, there, []))
    (there / ".c.npz.7.unfinished").write_bytes(b"what a kill leaves")
    assert [graph.name for graph in read_all_prepared(tmp_path, "layout:xla:random", "valid")] == ["a", "b"]


def test_damage_is_named(tmp_path: Path):
    there = prepared(tmp_path, "acde")
    (there / "a.npz").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.npz: not a prepared graph .*; delete it and prepare again"):
        read_prepared(there, "a")
    (there / "c.npy").unlink()
    with pytest.raises(InputError, match=r"c\.npy is missing; delete c\.npz and prepare again"):
        read_prepared(there, "c")
    (there / "c.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"c\.npy: not prepared configurations"):
        read_prepared(there, "c")
    np.save(there / "d.npy", np.zeros((19, 4, 3), np.int32))
    with pytest.raises(InputError, match=r"d\.npy has the shape \[19, 4, 3\], not \[20, 4, 3\] as d\.npz says"):
        read_prepared(there, "d")
    with np.load(there / "e.npz") as npz:
        np.savez(there / "e.npz", **{name: array for name, array in npz.items() if name != "opcode"})
    with pytest.raises(InputError, match=r"e\.npz: not a prepared graph \(opcode is missing\)"):
        read_prepared(there, "e")
    with pytest.raises(InputError, match=r"none\.npz: not a prepared graph"):
        read_prepared(there, "none")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kernel_begins": np.array([0, 3])}, "the kernels are not those of its configurations"),
        (
            {"kernels": np.zeros(1, np.int64), "kernel_features": np.ones((1, KERNEL_FEATURES), np.float32)},
            "the kernels are not those of its configurations",
        ),
        ({"kernel_begins": np.array([0, 5, *[2] * 18, 0])}, "the kernels of its configurations are not in order"),
        ({"kernels": np.array([-1, 0])}, "kernels holds values other than numbers from 0 to"),
        ({"kernel_features": np.zeros((2, 3), np.float32)}, "kernel_features is float32"),
    ],
)
def test_damaged_kernels_are_named(changes: dict[str, np.ndarray], reason: str, tmp_path: Path):
    list(
        prepare_files(
            [write(tmp_path / "a.npz", layout_fields())], tmp_path / "prepared", [], find_kernels=find_kernels
        )
    )
    path = tmp_path / "prepared" / "a.npz"
    with np.load(path) as npz:
        np.savez(path, **(dict(npz) | changes))
    with pytest.raises(InputError, match=rf"a\.npz: not a prepared graph \({reason}"):
        read_prepared(path.parent, "a")


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


def test_packing_loses_nothing():
    layouts = np.random.default_rng(0).integers(-1, 6, (50, 7, 18)).astype(np.int8)
    layouts[0] = -1
    layouts[1] = 5
    packed = pack(layouts)
    assert packed.shape == (50, 7, 3)
    assert packed.dtype == np.int32
    assert (packed.min(), packed.max()) == (0, 7**6 - 1)
    np.testing.assert_array_equal(unpack(packed), layouts)
    assert unpack(packed).dtype == np.int8


def test_each_place_has_its_power_of_seven():
    assert pack(np.array([0, -1, 1, -1, -1, 5], np.int8)).tolist() == [1 + 2 * 7**2 + 6 * 7**5]
    assert pack(np.zeros((0, 4, 18), np.int8)).shape == (0, 4, 3)
    assert unpack(np.zeros((0, 4, 3), np.int32)).shape == (0, 4, 18)


def test_the_kernels_of_some_configurations():
    kernels = Kernels(np.eye(3, 43, dtype=np.float32), np.array([0, 1, 2, 1, 2]), np.array([0, 2, 2, 5]))
    features, of, config = kernels.of_configs(np.array([2, 1, 0, 2]))
    assert features[of].argmax(axis=1).tolist() == [2, 1, 2, 0, 1, 2, 1, 2]
    assert config.tolist() == [0, 0, 0, 2, 2, 3, 3, 3]
    # Kernels that none of the configurations has are left out.
    features, of, config = kernels.of_configs(np.array([0]))
    assert (len(features), of.tolist(), config.tolist()) == (2, [0, 1], [0, 0])
    assert [len(part) for part in kernels.of_configs(np.zeros(0, np.int64))] == [0, 0, 0]
