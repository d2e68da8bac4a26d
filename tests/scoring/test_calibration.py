from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from tvm_gnn_cost.scoring.calibration import calibrate


def test_finds_the_scale_and_the_shift() -> None:
    scores = np.random.default_rng(0).normal(size=400) * 3
    scale, shift = calibrate(scores, expit(0.4 * scores - 0.7).astype(np.float32))
    assert scale == pytest.approx(0.4, abs=1e-3)
    assert shift == pytest.approx(-0.7, abs=1e-3)


def test_scores_that_say_nothing_become_the_mean_in_the_same_order() -> None:
    rng = np.random.default_rng(1)
    scores, throughput = rng.normal(size=2000), rng.uniform(0, 0.6, 2000).astype(np.float32)
    scale, shift = calibrate(scores, throughput)
    assert scale > 0
    np.testing.assert_allclose(expit(scale * scores + shift), throughput.mean(), atol=0.05)
