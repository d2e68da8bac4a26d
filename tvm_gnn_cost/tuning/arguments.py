"""Checks of arguments that need neither torch nor TVM, so that errors come before the slow imports."""

from __future__ import annotations

import math
import os
from pathlib import Path

from tvm_gnn_cost.errors import InputError, check_range

#: Argument of a tuning -> minimum and maximum, far above what anybody waits for or a machine holds.
RANGES = {
    "trials": (0, 10**9),
    "minutes": (0, 10**6),
    "seed": (0, 2**31 - 1),
    "batch_size": (1, 10_000),
    "population_size": (8, 100_000),
}

#: Names of TVM's own cost models.
TVM_MODELS = ("xgb", "random", "mlp")

#: Trivial baselines of ``evaluate``: random scores, and the size of a program.
TRIVIAL_MODELS = ("random", "constant", "node-count")


def check_settings(trials: int | None, minutes: float | None, seed: int, batch_size: int, population_size: int) -> None:
    """Rejects numbers of a tuning with which a search would not end or not fit into memory.

    Raises:
        InputError: a number is out of range; the message names the range.
    """
    for name, value in (("trials", trials), ("minutes", minutes)):
        check_range(name, value, *RANGES[name])
    for name, value in (("seed", seed), ("batch_size", batch_size), ("population_size", population_size)):
        check_range(name, math.nan if value is None else value, *RANGES[name])
    whole = {"trials": trials, "seed": seed, "batch_size": batch_size, "population_size": population_size}
    for name, value in whole.items():
        if not isinstance(value, int | None):
            raise InputError(f"{name} must be a whole number, not {value!r}")


def check_cost_model(name: str | os.PathLike[str], others: tuple[str, ...] = ("gnn", *TVM_MODELS)) -> None:
    """Rejects a cost model whose file is missing.

    Args:
        name: A name in ``others``, or a path.
        others: The names without a file.

    Raises:
        InputError: there is no such file.
    """
    if name not in others and not Path(name).is_file():
        known = f"{', '.join(others[:-1])} or {others[-1]}" if len(others) > 1 else others[0]
        raise InputError(f"cost model '{name}': neither {known} nor the path of a checkpoint file")
