from __future__ import annotations

from pathlib import Path

import pytest

from tests.tpugraphs.published import layout_fields, tile_fields, write
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format.collections import COLLECTIONS, collection_kind, collections_in, graph_files


@pytest.mark.parametrize(
    ("above", "root"), [("npz_all/npz", "."), ("npz", "."), ("npz", "npz"), ("npz_all/npz", "npz_all")]
)
def test_both_spellings_are_found_from_either_root(above: str, root: str, tmp_path: Path):
    write(tmp_path / above / "layout/nlp/default/valid/b.npz", layout_fields())
    write(tmp_path / above / "layout/nlp/default/valid/a.npz", layout_fields())
    write(tmp_path / above / "tile/xla/train/kernel.npz", tile_fields())
    assert collections_in(tmp_path / root) == ("layout:nlp:default", "tile:xla")
    found = graph_files(tmp_path / root, "layout:nlp:default", "valid")
    assert [path.name for path in found] == ["a.npz", "b.npz"]
    assert graph_files(tmp_path / root, "tile:xla", "test") == ()


def test_what_is_not_there_is_named(tmp_path: Path):
    assert collections_in(tmp_path) == ()
    with pytest.raises(FileNotFoundError, match="does not hold tile:xla"):
        graph_files(tmp_path, "tile:xla", "train")
    with pytest.raises(InputError, match=f"unknown collection 'tile'; one of: {', '.join(COLLECTIONS)}"):
        graph_files(tmp_path, "tile", "train")
    with pytest.raises(InputError, match="unknown split 'val'"):
        graph_files(tmp_path, "tile:xla", "val")


def test_each_collection_is_of_one_kind():
    assert [collection_kind(name) for name in COLLECTIONS] == [*["layout"] * 4, "tile"]
