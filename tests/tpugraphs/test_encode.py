"""Encoding of a module made here, and of the data set's own two files of TPU measurements where they are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.tpugraphs.encode import encode
from tvm_gnn_cost.tpugraphs.featurize import featurize, with_aggregates
from tvm_gnn_cost.tpugraphs.npz import read_graph
from tvm_gnn_cost.tpugraphs.opcodes import OPCODES
from tvm_gnn_cost.tpugraphs.prepare import deduplicate
from tvm_gnn_cost.tpugraphs.protos import HloModuleProto, ModuleTuningData, TuningData

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "tpugraphs"
needs_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the data set's own files are not here")
F32, TUPLE = 11, 13


def small_module() -> Any:
    """Two computations: a fusion's body of two instructions; a parameter, a convolution of it, and the fusion."""
    body = {
        "name": "fused_computation",
        "id": 1,
        "root_id": 11,
        "instructions": [
            {"name": "p", "opcode": "parameter", "id": 10, "parameter_number": 3},
            {"name": "e", "opcode": "brand-new", "id": 11, "operand_ids": [10, 10]},
        ],
    }
    window = [{"size": 3, "stride": 2, "padding_low": 1, "window_dilation": 1, "window_reversal": True}, {"size": 5}]
    convolution = {
        "name": "conv",
        "opcode": "convolution",
        "id": 21,
        "operand_ids": [20, 20],
        "shape": {"element_type": F32, "dimensions": [2, 3, 4], "layout": {"minor_to_major": [2, 0, 1]}},
        "window": {"dimensions": window},
        "convolution_dimension_numbers": {
            "input_batch_dimension": 1,
            "input_feature_dimension": 2,
            "input_spatial_dimensions": [3, 4],
            "kernel_input_feature_dimension": 5,
            "kernel_output_feature_dimension": 6,
            "kernel_spatial_dimensions": [7, 8],
            "output_batch_dimension": 9,
            "output_feature_dimension": 10,
        },
        "feature_group_count": 11,
        "batch_group_count": 12,
        "is_stable": True,
    }
    fusion = {
        "name": "fusion",
        "opcode": "fusion",
        "id": 22,
        "operand_ids": [21],
        "called_computation_ids": [1],
        "shape": {"element_type": TUPLE, "tuple_shapes": [{}, {}]},
        "dimensions": [1, 0],
        "slice_dimensions": [{"start": 1, "stride": 2, "limit": 30}, {"start": 4, "stride": 5, "limit": 60}],
        "dynamic_slice_sizes": [7, 8, 9],
        "padding_config": {"dimensions": [{"edge_padding_low": -1, "edge_padding_high": 2}]},
    }
    main = {
        "name": "while_main",
        "id": 2,
        "root_id": 22,
        "instructions": [{"name": "x", "opcode": "parameter", "id": 20}, convolution, fusion],
    }
    return HloModuleProto(name="small", computations=[body, main])


def test_features_stand_where_the_data_set_has_them():
    graph = featurize(small_module())
    assert graph.node_feat.shape == (5, 140)
    assert graph.node_opcode.tolist() == [63, 0, 63, 26, 41]
    assert graph.edge_index.tolist() == [[1, 0], [3, 2], [4, 1], [4, 3]]
    assert graph.node_splits.tolist() == [0, 5]
    feat = graph.node_feat
    assert feat[:, 0].tolist() == [0, 1, 0, 0, 1]
    assert feat[0, 30] == 3
    conv, fusion = feat[3], feat[4]
    assert np.flatnonzero(conv[2:21]).tolist() == [11]  # f32
    assert np.flatnonzero(fusion[2:21]).tolist() == [16]  # tuple
    assert conv[21:29].tolist() == [2, 3, 4, 0, 0, 0, 9, 24]
    assert fusion[29] == 2
    assert fusion[31:37].tolist() == [1, 0, 0, 0, 0, 0]
    assert conv[37:45].tolist() == [3, 5, 0, 0, 0, 0, 8, 15]
    assert conv[45:53].tolist() == [2, 0, 0, 0, 0, 0, 2, 0]
    assert conv[53:61].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
    assert conv[85:93].tolist() == [1, 0, 0, 0, 0, 0, 1, 1]
    assert conv[93:107].tolist() == [1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0, 9, 10]
    assert conv[107:109].tolist() == [11, 12]
    assert fusion[109:121].tolist() == [1, 4, 5, 4, 2, 5, 7, 10, 30, 60, 90, 1800]
    assert fusion[121:125].tolist() == [7, 8, 24, 504]
    assert fusion[125:133].tolist() == [-1, 0, -1, -1, 2, 0, 2, 2]
    assert feat[:, 133].tolist() == [0, 0, 0, 1, 0]
    assert conv[134:].tolist() == [2, 0, 1, 0, 0, 0]


def test_sums_and_products_are_of_the_whole_list():
    assert with_aggregates([], 2) == [0, 0, 0, 1]
    assert with_aggregates([], 2, product_if_empty=0) == [0, 0, 0, 0]
    assert with_aggregates([2, 3, 4], 2) == [2, 3, 9, 24]
    assert with_aggregates([2**32, 2**31], 2)[3] == -(2.0**63)  # as 64-bit integers overflow


def test_opcodes_have_their_fixed_numbers():
    assert len(OPCODES) == 120
    for name, number in (("abs", 1), ("convolution", 26), ("reshape", 75), ("rsqrt", 81), ("tuple", 100), ("tan", 120)):
        assert OPCODES[name] == number


def test_a_module_that_was_not_measured(tmp_path: Path):
    path = tmp_path / "small.pb"
    path.write_bytes(small_module().SerializeToString())
    ((out, nodes, configs),) = encode(path, "hlo", tmp_path / "npz", [])
    assert (out.name, nodes, configs) == ("small.npz", 5, 0)
    with np.load(out, allow_pickle=False) as found:
        np.testing.assert_array_equal(found["node_feat"], featurize(small_module()).node_feat)


def layout_run(time: int, *layouts: list[list[int]], error: bool = False) -> dict[str, Any]:
    nodes = [{"tensors": [{"dims": dims} for dims in tensors]} for tensors in layouts]
    return {
        "module_config": {"layout_config": {"nodes": nodes}},
        "error": error,
        "profile": {"compute_time_ns": time},
    }


def test_layouts(tmp_path: Path):
    runs = [layout_run(7, [[1, 0], [], [0, 1, 2]]), layout_run(0, [[]], error=True), layout_run(5, [])]
    path = tmp_path / "net.pb"
    data = ModuleTuningData(module=small_module(), runs=runs, config_index_to_node=[3])
    path.write_bytes(data.SerializeToString())
    ((out, _, configs),) = encode(path, "layout", tmp_path / "npz", [])
    assert configs == 2
    graph = read_graph(out)
    assert graph.name == "net"
    assert graph.config_nodes.tolist() == [3]
    assert graph.runtime is not None
    assert graph.runtime.tolist() == [7, 5]
    assert graph.configs.read(np.arange(2)).tolist() == [
        [[1, 0, -1, -1, -1, -1, *[-1] * 6, 0, 1, 2, -1, -1, -1]],
        [[-1] * 18],
    ]
    data.config_index_to_node.append(4)
    path.write_bytes(data.SerializeToString())
    with pytest.raises(ValueError, match=r"net\.pb: a run of 'small' has not one layout for each of its 2 nodes"):
        list(encode(path, "layout", tmp_path / "npz", []))


def tile_run(time: int, is_default: bool = False) -> dict[str, Any]:
    tile = {"kernel_bounds": [3, 3], "output_bounds": [time]}
    return {
        "op_config": {"tile_size_config": tile},
        "profile": {"compute_time_ns": time},
        "is_default": is_default,
    }


def test_tiles(tmp_path: Path):
    good = {"module": small_module(), "runs": [tile_run(30), tile_run(20, True), tile_run(1)]}
    plain = {"module": small_module(), "runs": [{"op_config": {}}, tile_run(20, True)]}
    no_default = {"module": small_module(), "runs": [tile_run(30), tile_run(40)]}
    path = tmp_path / "ops.pb"
    path.write_bytes(TuningData(modules=[plain, good, no_default]).SerializeToString())
    problems: list[str] = []
    ((out, _, configs),) = encode(path, "tile", tmp_path / "npz", problems)
    assert configs == 2
    graph = read_graph(out)
    assert graph.runtime is not None
    assert graph.runtime.tolist() == [1.5, 1]
    assert graph.configs.read(np.array([0])).tolist() == [
        [3, 3, 0, 0, 0, 0, 6, 9, 30, 0, 0, 0, 0, 0, 30, 30, *[0] * 8],
    ]
    assert [problem.split("): ")[1] for problem in problems] == [
        "it has not two runs or more, each with tiles",
        "it has no run with the default tile",
    ]


def test_bad_input_is_named(tmp_path: Path):
    path = tmp_path / "bad.pb"
    path.write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match=r"bad\.pb: not a serialised ModuleTuningData"):
        list(encode(path, "layout", tmp_path / "npz", []))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"bad\.pb: the module '' has no instruction"):
        list(encode(path, "hlo", tmp_path / "npz", []))
    module = small_module()
    module.computations[1].instructions[2].operand_ids.append(99)
    path.write_bytes(module.SerializeToString())
    with pytest.raises(ValueError, match=r"bad\.pb: the instruction 'fusion' of 'small' refers to .* 99, that is not"):
        list(encode(path, "hlo", tmp_path / "npz", []))
    with pytest.raises(OSError, match="none"):
        list(encode(tmp_path / "none.pb", "hlo", tmp_path / "npz", []))


@needs_published
def test_the_published_layouts(tmp_path: Path):
    source = PUBLISHED / "module_tuning_data_layout.pb"
    ((out, nodes, configs),) = encode(source, "layout", tmp_path, [])
    assert (nodes, configs) == (3163, 112)
    graph = read_graph(out)
    names = {number: name for name, number in OPCODES.items()}
    configured = [names[number] for number in graph.node_opcode[graph.config_nodes].tolist()]
    assert {name: configured.count(name) for name in configured} == {"convolution": 53, "reshape": 9}
    assert len(deduplicate(graph)) == 91
    assert graph.runtime is not None
    assert graph.runtime.min() / 1e6 == pytest.approx(910.9, abs=0.05)
    assert graph.runtime.max() / 1e6 == pytest.approx(925.6, abs=0.05)


@needs_published
def test_the_published_tiles(tmp_path: Path):
    problems: list[str] = []
    found = list(encode(PUBLISHED / "op_tuning_data.pb", "tile", tmp_path, problems))
    assert sorted((configs for _, _, configs in found), reverse=True)[:6] == [579, 61, 23, 16, 16, 16]
    assert (len(found), len(problems)) == (12, 3)
    assert sum(configs for _, _, configs in found) == 745
    for out, _, _ in found:
        graph = read_graph(out)
        assert graph.runtime is not None
        assert 1 in graph.runtime  # the default tile's
