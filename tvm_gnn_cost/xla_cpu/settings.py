"""How layouts are measured; this module imports neither JAX nor NumPy, so that ``--help`` is quick."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_gnn_cost.tpugraphs.settings import check_values


@dataclass(frozen=True)
class MeasureSettings:
    """How the layouts of each network are measured.

    Raises:
        InputError: a value is out of range.

    Attributes:
        configs: Different configurations of each network.
        rounds: How often each configuration is measured; a round measures all of a network's, in a new order.
        seconds: Approximate time of one measurement: it repeats the network as often as fits.
        threshold: Drop a graph if the runtimes of the first and the second half of its rounds have a lower Kendall's
            tau: then their order is noise.
        seed: Seeds configurations, weights and orders.
    """

    configs: int = 80
    rounds: int = 24
    seconds: float = 0.012
    threshold: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_values(self, {"configs": 2, "rounds": 2, "seconds": 0, "seed": 0})
