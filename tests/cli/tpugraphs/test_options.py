from __future__ import annotations

from pathlib import Path

import pytest

from tvm_gnn_cost.cli.tpugraphs.options import model_paths, pairs
from tvm_gnn_cost.errors import InputError


def test_settings_by_name():
    assert pairs(["a=1", "b=x=y", "c=", "d", "a=2"]) == {"a": "2", "b": "x=y", "c": "", "d": None}


def test_models_by_collection():
    assert model_paths(["tile:xla=a/b", "layout:xla:random=c=d"]) == {
        "tile:xla": Path("a/b"),
        "layout:xla:random": Path("c=d"),
    }
    for texts in (["tile:xla"], ["tile:xla=a", "tile:xla=b"]):
        with pytest.raises(InputError, match=f"--model {texts[-1]}: expected COLLECTION=PATH, each collection once"):
            model_paths(texts)
