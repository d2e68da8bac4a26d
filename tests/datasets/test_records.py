from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.datasets.records import Problem, last_line, latency_and_noise, summarise_repeats


def test_repeats_are_summarised_by_their_median() -> None:
    assert summarise_repeats([3.0, 1.0, 2.0]) == (1.0, 0.5)
    assert summarise_repeats([])[0] == np.inf
    assert np.isnan(summarise_repeats([1.0])[1])


def test_one_outlier_does_not_move_the_latency() -> None:
    assert summarise_repeats([1.0, 1.0, 1.0, 1.0, 50.0])[0] == 1.0
    assert summarise_repeats([2.0, 1.5])[0] == 1.5


def test_noise_does_not_depend_on_the_unit() -> None:
    seconds = np.random.default_rng(0).random(9)
    assert summarise_repeats(seconds.tolist())[1] == pytest.approx(summarise_repeats((1e3 * seconds).tolist())[1])
    assert summarise_repeats(seconds.tolist())[1] == pytest.approx(seconds.std(ddof=1) / seconds.mean())


def test_programs_are_summarised_one_by_one() -> None:
    latency, noise = latency_and_noise([(3.0, 1.0, 2.0), (), (5.0,)])
    assert latency.tolist() == [1.0, np.inf, 5.0]
    assert (latency.dtype, noise.dtype) == (np.float64, np.float32)
    assert noise[0] == 0.5
    assert np.isnan(noise[1:]).all()
    assert [len(array) for array in latency_and_noise([])] == [0, 0]


def test_a_problem_reads_like_a_compilers_message() -> None:
    assert str(Problem(Path("data/log.json"), 12, "not JSON")) == "data/log.json:12: not JSON"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("Traceback (most recent call last):\n  File x\nInternalError: no block\n"),
            "InternalError: no block",
        ),
        (ValueError("one sentence"), "one sentence"),
        (KeyError(), "KeyError"),
        (RuntimeError(" \n"), "RuntimeError"),
    ],
)
def test_the_last_line_of_an_error_is_its_sentence(error: Exception, line: str) -> None:
    assert last_line(error) == line
