from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning.end_to_end import compare_end_to_end


class Scaled:
    """A network that multiplies its input; its latency counts up."""

    def __init__(self, factor: float, first: float) -> None:
        self.factor, self.next = factor, first

    def run(self, example: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return (self.factor * example).astype(np.float32)

    def latency(self) -> float:
        self.next += 1
        return self.next


EXAMPLE = np.array([1.0, -4.0], np.float32)


@pytest.mark.parametrize("expected", [EXAMPLE, None])
def test_outputs_are_compared_relative_to_the_largest(expected: npt.NDArray[np.float32] | None) -> None:
    network = Network("net", None, {}, EXAMPLE, expected)
    compared = compare_end_to_end(network, Scaled(1.0, 10.0), Scaled(1.5, 20.0), repeats=3)
    # A tuned network that computes something else is noticed, whatever the reference is.
    assert (compared.untuned_difference, compared.tuned_difference) == (0.0, 0.5)
    assert compared.untuned == [11.0, 12.0, 13.0]
    assert compared.tuned == [21.0, 22.0, 23.0]
