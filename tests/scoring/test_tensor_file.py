from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.scoring.tensor_file import check_finite, read_tensors, with_prefix, write_tensors

HOW = "make one"


def written(folder: Path, **info: Any) -> Path:
    path = folder / "new folder" / "a.safetensors"
    write_tensors(path, {"a.x": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor([1, 2])}, info)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    info = {"a": [1, 2.5, None], "b": {"c": "ü"}}
    path = written(tmp_path, **info)
    tensors, found = read_tensors(path, HOW)
    assert found == info
    assert tensors["a.x"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert tensors["b"].dtype == torch.int64
    assert os.listdir(path.parent) == ["a.safetensors"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path, version=1)
    with pytest.raises(TypeError):
        write_tensors(path, {"x": torch.zeros(1)}, {"a": object()})
    assert read_tensors(path, HOW)[1] == {"version": 1}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=f"^{path}: there is no such checkpoint; 'make one' makes one$"):
            read_tensors(path, HOW)


@pytest.mark.parametrize("keep", [0, 4, 20, 0.5, -1])
def test_a_cut_file_is_named(tmp_path: Path, keep: float) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(InputError, match=r"a\.safetensors: not a checkpoint \(.*\); 'make one' makes one$"):
        read_tensors(path, HOW)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "a safetensors file, but not a checkpoint of tvm-gnn-cost"),
        ({"other": "{}"}, "a safetensors file, but not a checkpoint of tvm-gnn-cost"),
        ({"tvm_gnn_cost": "[]"}, "a safetensors file, but not a checkpoint of tvm-gnn-cost"),
        ({"tvm_gnn_cost": "{"}, "not a checkpoint"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path: Path, metadata: dict[str, str] | None, message: str) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(2)}, path, metadata=metadata)
    with pytest.raises(InputError, match=rf"a\.safetensors: {message}"):
        read_tensors(path, HOW)


def test_tensors_are_found_by_their_prefix() -> None:
    tensors = {name: torch.tensor(i) for i, name in enumerate(("model.a", "model.model.a", "models.a", "a"))}
    assert {name: int(tensor) for name, tensor in with_prefix(tensors, "model.").items()} == {"a": 0, "model.a": 1}


def test_tensors_of_numbers_pass() -> None:
    check_finite({"a": torch.zeros(2), "b": torch.tensor([1])})
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match="the tensor 'a' holds NaN or infinity"):
            check_finite({"a": torch.tensor([0.0, value])})
