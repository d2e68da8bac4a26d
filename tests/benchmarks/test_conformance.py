"""Some of ONNX's own operator tests, and what the benchmark takes for right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.test_quick import quick_run

pytest.importorskip("onnx")
conformance = pytest.importorskip("conformance")


@pytest.mark.needs("s_tir")
def test_the_tests_of_an_operator_are_right(tmp_path: Path) -> None:
    options = ("--only", "^test_(gather|top_k)", "--jobs", "1")
    found = quick_run("conformance", ["verdicts", "by_operator"], tmp_path / "result.json", *options)
    assert {"Gather", "TopK"} <= set(found["by_operator"])
    assert found["verdicts"]["correct"] == sum(found["verdicts"].values()) > 8


@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_a_tenth_of_onnxs_tests_is_right_or_refused(tmp_path: Path) -> None:
    found = quick_run("conformance", ["verdicts", "by_operator", "not_correct"], tmp_path / "result.json")
    verdicts = found["verdicts"]
    assert [verdicts[kind] for kind in ("wrong", "error", "timeout")] == [0, 0, 0], found["not_correct"]
    assert verdicts["correct"] > 8 * verdicts["refused"] > 0
    assert sum(verdicts.values()) > 150


def test_types_shapes_and_values_are_compared() -> None:
    wanted = np.array([1.0, 2.0], np.float32)
    assert conformance._difference(wanted, wanted, 1e-3, 1e-7) == ""
    for other in (wanted.astype(np.float64), wanted[None], wanted * 1.1, np.array([1.0, np.nan], np.float32)):
        assert conformance._difference(other, wanted, 1e-3, 1e-7)


def test_parameters_are_constants_and_operands_stay_inputs() -> None:
    case = conformance.tests()["test_reshape_reordered_all_dims"]
    model, ((inputs, _),), _, _ = conformance.model_of(case)
    assert [one.name for one in model.graph.input] == ["data"]
    assert len(inputs) == 1
    assert [one.name for one in model.graph.initializer] == ["shape"]
