from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importing.models import model
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.control_flow import EXPANSIONS
from tvm_gnn_cost.importing.inputs import example_inputs, fixed_shapes, index_limits, read_inputs
from tvm_gnn_cost.importing.simplify import simplify

OPEN = {"ids": ("n", "length"), "mask": ("n", 1, "length")}


def test_a_size_that_inputs_share_is_given_once() -> None:
    assert fixed_shapes("net", OPEN, {"mask": (2, 1, 128)}) == {"ids": (2, 128), "mask": (2, 1, 128)}
    assert fixed_shapes("net", {"x": (1, 3)}, {}) == {"x": (1, 3)}
    assert fixed_shapes("net", {"x": ()}, {}) == {"x": ()}


def test_an_open_size_is_named_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"dimension 0 \(n\) of input 'ids' of net is dynamic.*--shape ids=1,1 in"):
        fixed_shapes("net", OPEN, {})
    with pytest.raises(InputError, match=r"dimension 2 \(length\) of input 'mask' of net.*--shape mask=1,1,1 in"):
        fixed_shapes("net", {"mask": (1, 1, "length")}, {})


@pytest.mark.parametrize("shape", [(2,), (2, 2, 128), (2, 1, 0), (2, 1, -1), (2, 1, 128, 1)])
def test_a_shape_that_contradicts_the_network_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="does not fit input 'mask' of net, which is "):
        fixed_shapes("net", OPEN, {"mask": shape})


def test_a_shape_for_a_scalar_is_refused() -> None:
    with pytest.raises(InputError, match="the shape 1 does not fit input 'rate' of net, which is a scalar"):
        fixed_shapes("net", {"rate": ()}, {"rate": (1,)})


@pytest.mark.parametrize("shape", [(99999999999, 3, 16, 16), (2, 3, 1 << 15, 1 << 15), (10**30, 3, 16, 16)])
def test_a_shape_that_no_memory_holds_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"input 'x' of net would have {shape[0]},3,.* more than the 2147483647"):
        fixed_shapes("net", {"x": ("n", 3, "h", "w")}, {"x": shape})
    with pytest.raises(InputError, match="choose smaller sizes"):
        fixed_shapes("net", {"x": shape}, {})


@pytest.mark.parametrize("shape", [(1.5, 2), ("1", 2), (True, 2), (None, 2), "12", 3])
def test_a_shape_that_is_none_is_refused(shape: object) -> None:
    with pytest.raises(InputError, match="the shape of input 'x' must be whole numbers, not "):
        fixed_shapes("net", {"x": ("n", 2)}, {"x": shape})  # type: ignore[dict-item]


def test_shapes_that_contradict_each_other_are_named() -> None:
    with pytest.raises(InputError, match="the shape 3,1,128 does not fit input 'mask' of net, which is 2,1,128"):
        fixed_shapes("net", OPEN, {"ids": (2, 128), "mask": (3, 1, 128)})


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(InputError, match="net has no input 'x'; it has: ids, mask"):
        fixed_shapes("net", OPEN, {"x": (1,)})


TYPES = {name: np.dtype(name) for name in ("float32", "float16", "int64", "int8", "bool")}


def test_inputs_are_drawn_the_same_every_time() -> None:
    shapes = dict.fromkeys(TYPES, (4, 50))
    example, two = example_inputs("net", shapes, TYPES, {}), example_inputs("net", shapes, TYPES, {})
    assert list(example) == list(TYPES)
    for name, dtype in TYPES.items():
        assert example[name].dtype == dtype
        np.testing.assert_array_equal(example[name], two[name])
    assert set(np.unique(example["int64"])) == set(np.unique(example["int8"])) == {0, 1}
    assert set(np.unique(example["bool"])) == {False, True}
    assert 0.5 < example["float32"].std() < 1.5


def test_the_users_inputs_are_kept() -> None:
    ids = np.arange(8)[::2].reshape(2, 2)
    result = example_inputs(
        "net", {"x": (), "ids": (2, 2)}, {"x": TYPES["float32"], "ids": TYPES["int64"]}, {"ids": ids}
    )
    np.testing.assert_array_equal(result["ids"], ids)
    assert result["ids"].flags.c_contiguous
    assert result["x"].shape == ()


def test_inputs_of_another_kind_are_named() -> None:
    with pytest.raises(InputError, match=r"the example of input 'x' is float64\[2,3\]; net wants float32\[3,2\]"):
        example_inputs("net", {"x": (3, 2)}, {"x": TYPES["float32"]}, {"x": np.zeros((2, 3))})
    with pytest.raises(InputError, match="input 'x' is complex64; only floats, integers and bool"):
        example_inputs("net", {"x": (2,)}, {"x": np.dtype("complex64")}, {})


def test_inputs_are_read_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", ids=np.arange(3), mask=np.ones(2, bool))
    results = read_inputs(tmp_path / "in.npz")
    assert list(results) == ["ids", "mask"]
    assert results["ids"].tolist() == [0, 1, 2]


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.mkdir, (Path("trapped"),)  # type: ignore[return-value]


def test_no_file_of_inputs_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("objects.npz", x=np.array([Trap()], dtype=object))
    Path("pickle.npz").write_bytes(pickle.dumps(Trap()))
    np.save("one.npy", np.zeros(3))
    Path("text.npz").write_text("x = 1")
    Path("empty.npz").write_text("")
    Path("cut.npz").write_bytes(Path("objects.npz").read_bytes()[:-30])
    for name in ("cut.npz", "objects.npz", "pickle.npz", "one.npy", "text.npz", "empty.npz"):
        with pytest.raises(InputError, match=f"{name} (is not an npz file|has a member)"):
            read_inputs(Path(name))
    assert not Path("trapped").exists()
    with pytest.raises(FileNotFoundError):
        read_inputs(Path("nosuch.npz"))


KEPT = ("Gather", "GatherND", "Reshape", "Add", "Cast", "Mul", "Where")
TABLE = np.ones((50, 4), np.float32)


def limits(nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], output: str) -> dict[str, int]:
    weights = {"table": TABLE, "short": TABLE[:7], "two": np.array(2), "shape": np.array([-1])}
    made = model(nodes, inputs, [output], weights, dtype=onnx.TensorProto.INT64)
    return index_limits(simplify(made, "net", KEPT, EXPANSIONS))


def test_an_index_is_below_the_tables_size() -> None:
    assert limits([helper.make_node("Gather", ["table", "ids"], ["y"])], {"ids": [3]}, "y") == {"ids": 50}
    assert limits([helper.make_node("Gather", ["table", "ids"], ["y"], axis=1)], {"ids": [3]}, "y") == {"ids": 4}
    assert limits([helper.make_node("GatherND", ["table", "ids"], ["y"])], {"ids": [3, 2]}, "y") == {"ids": 4}


def test_the_smallest_table_decides_and_an_offset_counts() -> None:
    nodes = [
        helper.make_node("Reshape", ["ids", "shape"], ["flat"]),
        helper.make_node("Add", ["flat", "two"], ["moved"]),
        helper.make_node("Gather", ["short", "moved"], ["a"]),
        helper.make_node("Gather", ["table", "ids"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    # ids + 2 is less than 7.
    assert limits(nodes, {"ids": [3]}, "y") == {"ids": 5}


def test_what_indexes_nothing_has_no_limit() -> None:
    assert limits([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": [3]}, "y") == {}
