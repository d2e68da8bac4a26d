"""The records that the surrogates of ``simulated_search.py`` learn from."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import tests.benchmarks.test_quick  # noqa: F401  (puts the scripts on sys.path)

pytestmark = pytest.mark.needs("s_tir")


def test_a_search_counts_once_and_only_for_its_task(tmp_path: Path) -> None:
    simulated_search, drop_in = (importlib.import_module(name) for name in ("simulated_search", "drop_in"))
    for task in ("mobilenet-v2: depthwise 3x3", "mobilenet-v2: depthwise 3x3, stride 2"):
        for model in drop_in.MODELS:
            for seed in range(2):
                (tmp_path / drop_in.file_name(f"{task} {model} a processor", f".0123.200.{seed}.records")).mkdir()
    found = simulated_search.records_of("mobilenet-v2: depthwise 3x3", tmp_path)
    assert len(found) == len(set(found)) == 2 * len(drop_in.MODELS)
    assert not any("stride" in path.name for path in found)
