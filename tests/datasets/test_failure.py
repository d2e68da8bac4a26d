from __future__ import annotations

import json

import pytest

from tvm_gnn_cost.datasets.failure import Failure


def test_the_texts_are_those_of_every_store_that_was_written() -> None:
    assert {kind.name: str(kind) for kind in Failure} == {
        "INSTANTIATION_ERROR": "instantiation-error",
        "BUILD_ERROR": "build-error",
        "BUILD_TIMEOUT": "build-timeout",
        "RUN_ERROR": "run-error",
        "RUN_TIMEOUT": "run-timeout",
        "WRONG_ANSWER": "wrong-answer",
        "UNKNOWN": "unknown",
    }


def test_a_failure_is_a_text_in_json_and_back() -> None:
    assert json.dumps({"failure": Failure.RUN_TIMEOUT}) == '{"failure": "run-timeout"}'
    assert Failure(json.loads('"run-timeout"')) is Failure.RUN_TIMEOUT
    assert Failure.RUN_TIMEOUT == "run-timeout"
    assert bool(Failure.UNKNOWN)
    with pytest.raises(ValueError, match="'broken' is not a valid Failure"):
        Failure("broken")
