"""The zoo's quick run, and what it takes for right; the figures of that run mean nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.test_quick import quick_run

pytest.importorskip("onnx")
# It reads libraries with a module that needs today's TVM.
zoo_one = pytest.importorskip("zoo_one", exc_type=ImportError)


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_the_small_networks_of_the_zoo_are_right(tmp_path: Path) -> None:
    options = ("--no-latency", "--runs", str(tmp_path / "runs"))
    found = quick_run("zoo", ["networks", "verdicts"], tmp_path / "result.json", *options)
    assert found["verdicts"] == {"correct": 3}, found["networks"]
    for one in found["networks"].values():
        assert one["difference"] <= one["limit"] < 1e-3
        assert not one["constant_output"]
        assert one["libm"] == []
        assert one["seconds"] > zoo_one.loading_seconds(one["stages"]) > 0


def test_a_library_is_right_only_within_the_limit() -> None:
    reference = [np.array([1.0, -4.0], np.float32)]
    assert zoo_one.judged([reference[0] + np.float32(4e-4)], reference, 3e-4)["verdict"] == "correct"
    assert zoo_one.judged([reference[0] + np.float32(4e-3)], reference, 3e-4)["verdict"] == "wrong"


@pytest.mark.parametrize("other", [np.array([1.0, -4.0]), np.array([[1.0, -4.0]], np.float32)])
def test_a_type_or_a_shape_that_is_not_the_frameworks_is_wrong(other: np.ndarray) -> None:
    assert zoo_one.judged([other], [np.array([1.0, -4.0], np.float32)], 1.0)["verdict"] == "wrong"


def test_a_difference_knows_what_is_no_number() -> None:
    reference = np.array([1.0, np.nan, np.inf])
    assert zoo_one.difference([reference], [reference]) == 0.0
    assert zoo_one.difference([np.array([1.0, 0.0, np.inf])], [reference]) == np.inf
    assert zoo_one.difference([np.array([np.nan, np.nan, np.inf])], [reference]) == np.inf


def test_every_network_has_a_name_of_its_own() -> None:
    assert len(zoo_one.NETWORKS) == len(zoo_one.FILES) + len(zoo_one.MODULES) >= 60
