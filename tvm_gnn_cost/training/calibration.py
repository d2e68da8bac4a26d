"""Turns scores into throughputs that can be believed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

#: Scale and shift of a score before the sigmoid.
Calibration = tuple[float, float]


def calibrate(scores: npt.NDArray[np.float64], throughput: npt.NDArray[np.float32]) -> Calibration:
    """The scale, above 0, and the shift with the least squared error of ``sigmoid(scale * score + shift)``.

    Ranking losses spread the scores of the programs that train a model as far as they can; the sigmoid of such a score
    is too sure of itself for tasks that trained nothing. So it is fitted on those (Platt 1999; Guo et al. 2017,
    arXiv:1706.04599). The order of the programs stays what it was.

    Args:
        scores: float64[P] of programs of validation tasks.
        throughput: float32[P], what was measured, in [0, 1].
    """

    def error(parameters: npt.NDArray[np.float64]) -> float:
        return float(np.square(expit(np.exp(parameters[0]) * scores + parameters[1]) - throughput).mean())

    log_scale, shift = minimize(error, np.zeros(2), method="Nelder-Mead").x
    return float(np.exp(log_scale)), float(shift)
