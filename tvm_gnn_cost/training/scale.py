"""Standardises node features to zero mean and unit deviation over the nodes of the training graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of k columns.

    >>> scale = Scale.fit([np.array([[1.0], [3.0]], np.float32)])
    >>> scale.apply(np.array([[5.0]], np.float32)).tolist()
    [[3.0]]

    Attributes:
        mean: float64[k].
        deviation: float64[k]; infinite for a constant column, which says nothing and becomes 0 wherever it is applied.
        is_log: Whether values are first mapped to sign(x) log(1 + abs(x)), for values that range from 1 to billions.
    """

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    is_log: bool = False

    @classmethod
    def fit(cls, graphs: Iterable[npt.NDArray[np.float32]], *, is_log: bool = False) -> Scale:
        """Mean and deviation over the nodes of all graphs, computed one graph at a time (Chan et al. 1983).

        Args:
            graphs: The node features of each graph, float32[n, k].
            is_log: See the attribute.

        Raises:
            InputError: no graph has a node.
        """
        count = 0
        mean: npt.NDArray[np.float64] = np.zeros(0)
        squares: npt.NDArray[np.float64] = np.zeros(0)
        for features in graphs:
            if not len(features):
                continue
            part = _log(features) if is_log else features.astype(np.float64)
            own = part.mean(axis=0)
            own_squares = ((part - own) ** 2).sum(axis=0)
            if count == 0:
                count, mean, squares = len(part), own, own_squares
                continue
            total = count + len(part)
            step = own - mean
            squares = squares + own_squares + step**2 * (count * len(part) / total)
            mean = mean + step * (len(part) / total)
            count = total
        if count == 0:
            raise InputError("there is no node to take the mean of")
        deviation = np.sqrt(squares / count)
        # Rounding makes the deviation of a constant column differ from zero.
        changes = deviation > 1e-6 * np.maximum(1.0, np.abs(mean))
        return cls(mean, np.where(changes, deviation, np.inf), is_log)

    def apply(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The standardised values of float32[n, k], of the same shape and dtype."""
        values = _log(features) if self.is_log else features
        return ((values - self.mean) / self.deviation).astype(np.float32)


def _log(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    values = features.astype(np.float64)
    return np.sign(values) * np.log1p(np.abs(values))
