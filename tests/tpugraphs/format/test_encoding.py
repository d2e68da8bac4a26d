"""Encoding of a module made here, and of the data set's own two files of TPU measurements where they are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tpugraphs.modules import layout_run, small_module, tile_run
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Advanced
from tvm_gnn_cost.tpugraphs.format import OPCODES
from tvm_gnn_cost.tpugraphs.format.encoding import encode, encode_configured
from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.tpugraphs.format.protos import ModuleTuningData, TuningData
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_graph

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "tpugraphs"
needs_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the data set's own files are not here")


def test_a_module_that_was_not_measured(tmp_path: Path):
    path = tmp_path / "small.pb"
    path.write_bytes(small_module().SerializeToString())
    encoded = encode(path, tmp_path / "npz", "hlo")
    (out,) = encoded.files
    assert (out.path, out.nodes, out.configs) == (tmp_path / "npz" / "small.npz", 5, 0)
    assert str(encoded) == f"{out.path}: 5 nodes, 0 configurations\n0 left out"
    with np.load(out.path, allow_pickle=False) as found:
        np.testing.assert_array_equal(found["node_feat"], featurize(small_module())["node_feat"])


def test_layouts(tmp_path: Path):
    runs = [layout_run(7, [[1, 0], [], [0, 1, 2]]), layout_run(0, [[]], error=True), layout_run(5, [])]
    path = tmp_path / "net.pb"
    data = ModuleTuningData(module=small_module(), runs=runs, config_index_to_node=[3])
    path.write_bytes(data.SerializeToString())
    (out,) = encode(path, tmp_path / "npz", "layout").files
    assert out.configs == 2
    graph = read_graph(out.path)
    assert graph.name == "net"
    assert graph.config_nodes.tolist() == [3]
    assert graph.runtime is not None
    assert graph.runtime.tolist() == [7, 5]
    assert np.concatenate(list(graph.configs())).tolist() == [
        [[1, 0, -1, -1, -1, -1, *[-1] * 6, 0, 1, 2, -1, -1, -1]],
        [[-1] * 18],
    ]
    data.config_index_to_node.append(4)
    path.write_bytes(data.SerializeToString())
    with pytest.raises(InputError, match=r"net\.pb: a run of 'small' does not have a layout for each of its 2 nodes"):
        encode(path, tmp_path / "npz", "layout")


@pytest.mark.parametrize("node", [5, 2**63])
def test_a_layout_of_a_node_that_is_not_there(node: int, tmp_path: Path):
    path = tmp_path / "net.pb"
    data = ModuleTuningData(module=small_module(), runs=[layout_run(7, [[1, 0]])], config_index_to_node=[node])
    path.write_bytes(data.SerializeToString())
    with pytest.raises(InputError, match=rf"'small' has layouts for node {node}, but only 5 instructions"):
        encode(path, tmp_path / "npz", "layout")


def test_tiles(tmp_path: Path):
    good = {"module": small_module(), "runs": [tile_run(30), tile_run(20, True), tile_run(1)]}
    plain = {"module": small_module(), "runs": [{"op_config": {}}, tile_run(20, True)]}
    no_default = {"module": small_module(), "runs": [tile_run(30), tile_run(40)]}
    path = tmp_path / "ops.pb"
    path.write_bytes(TuningData(modules=[plain, good, no_default]).SerializeToString())
    events: list[Any] = []
    encoded = encode(path, tmp_path / "npz", "tile", progress=events.append)
    assert events == [Advanced(2, 3)]
    (out,) = encoded.files
    assert out.configs == 2
    graph = read_graph(out.path)
    assert graph.runtime is not None
    assert graph.runtime.tolist() == [1.5, 1]
    assert next(graph.configs(1)).tolist() == [
        [3, 3, 0, 0, 0, 0, 6, 9, 30, 0, 0, 0, 0, 0, 30, 30, *[0] * 8],
    ]
    assert [problem.split("): ")[1] for problem in encoded.left_out] == [
        "it does not have at least two runs, each with tiles",
        "it has no run with the default tile",
    ]


def test_kernels_of_one_name_are_written_once_and_under_a_name_that_files_may_have(tmp_path: Path):
    module = small_module()
    module.name = "../fusion 7"
    kernel = {"module": module, "runs": [tile_run(30), tile_run(20, True)]}
    path = tmp_path / "ops.pb"
    path.write_bytes(TuningData(modules=[kernel, kernel]).SerializeToString())
    encoded = encode(path, tmp_path / "npz", "tile")
    assert [file.path for file in encoded.files] == [tmp_path / "npz" / "_fusion_7.npz"]
    assert [file.name for file in (tmp_path / "npz").iterdir()] == ["_fusion_7.npz"]
    assert encoded.left_out == (f"{path}: the module '../fusion 7' is left out: another module has the same name",)


def test_measured_arrays_are_what_a_file_holds():
    fields = encode_configured(small_module(), np.array([3]), -np.ones((2, 1, 18), np.int8), np.array([7, 5]))
    assert list(fields) == [
        *("node_feat", "node_opcode", "edge_index", "node_splits"),
        *("node_config_ids", "node_config_feat", "config_runtime"),
    ]
    assert fields["node_config_feat"].dtype == np.float32


def test_bad_input_is_named(tmp_path: Path):
    path = tmp_path / "bad.pb"
    path.write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match=r"bad\.pb: not a serialised ModuleTuningData"):
        encode(path, tmp_path / "npz", "layout")
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"bad\.pb: the module '' has no instruction"):
        encode(path, tmp_path / "npz", "hlo")
    with pytest.raises(InputError, match=r"bad\.pb: the module '' has no measured layout"):
        encode(path, tmp_path / "npz", "layout")
    module = small_module()
    module.computations[1].instructions[2].operand_ids.append(99)
    path.write_bytes(module.SerializeToString())
    with pytest.raises(InputError, match=r"bad\.pb: the instruction 'fusion' of 'small' refers to .* 99, that is not"):
        encode(path, tmp_path / "npz", "hlo")
    with pytest.raises(OSError, match="none"):
        encode(tmp_path / "none.pb", tmp_path / "npz", "hlo")


@needs_published
def test_the_published_layouts(tmp_path: Path):
    (out,) = encode(PUBLISHED / "module_tuning_data_layout.pb", tmp_path, "layout").files
    assert (out.nodes, out.configs) == (3163, 112)
    graph = read_graph(out.path)
    names = {number: name for name, number in OPCODES.items()}
    configured = [names[number] for number in graph.node_opcode[graph.config_nodes].tolist()]
    assert {name: configured.count(name) for name in configured} == {"convolution": 53, "reshape": 9}
    assert len(prepare_graph(graph).config_rows) == 91
    assert graph.runtime is not None
    assert graph.runtime.min() / 1e6 == pytest.approx(910.9, abs=0.05)
    assert graph.runtime.max() / 1e6 == pytest.approx(925.6, abs=0.05)


@needs_published
def test_the_published_tiles(tmp_path: Path):
    encoded = encode(PUBLISHED / "op_tuning_data.pb", tmp_path, "tile")
    assert sorted((file.configs for file in encoded.files), reverse=True)[:6] == [579, 61, 23, 16, 16, 16]
    assert (len(encoded.files), len(encoded.left_out)) == (12, 3)
    assert sum(file.configs for file in encoded.files) == 745
    for file in encoded.files:
        graph = read_graph(file.path)
        assert graph.runtime is not None
        assert 1 in graph.runtime  # the default tile's
