"""Calibration: the scale and shift that turn a score into a relative throughput."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

#: Scale and shift that are applied to a score before the sigmoid.
Calibration = tuple[float, float]


def calibrate(scores: npt.NDArray[np.float64], throughput: npt.NDArray[np.float32]) -> Calibration:
    """Fits scale and shift so that ``sigmoid(scale * score + shift)`` has the least squared error.

    Ranking losses spread the scores of the training programs as far apart as they can, so the sigmoid of a score alone
    is overconfident on other tasks; scale and shift are therefore fitted on validation tasks (Platt 1999; Guo et al.
    2017, arXiv:1706.04599). The scale is positive, which keeps the order of the programs.

    Args:
        scores: float64[P], scores of programs of validation tasks.
        throughput: float32[P], their measured relative throughput, in [0, 1].
    """

    def error(parameters: npt.NDArray[np.float64]) -> float:
        return float(np.square(expit(np.exp(parameters[0]) * scores + parameters[1]) - throughput).mean())

    log_scale, shift = minimize(error, np.zeros(2), method="Nelder-Mead").x
    return float(np.exp(log_scale)), float(shift)


def spread(scores: npt.NDArray[np.float64], task: npt.NDArray[np.int32]) -> float:
    """Deviation of P scores from the mean score of their task, as root mean square; infinite scores do not count.

    >>> spread(np.array([1.0, 3.0, 8.0, 8.0]), np.array([0, 0, 1, 1], np.int32))
    0.7071067811865476
    """
    finite = np.isfinite(scores)
    scores, task = scores[finite], task[finite]
    mean = np.bincount(task, scores) / np.maximum(1, np.bincount(task))
    return float(np.sqrt(np.square(scores - mean[task]).mean()))
