"""Splits measured programs by network and task, so that nothing a model is tested on has trained it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.networks.names import networks_named


@dataclass(frozen=True)
class Split:
    """Numbers of programs; no task occurs in two of the three parts.

    Attributes:
        train: int64[...], ascending.
        validation: int64[...], ascending.
        test: int64[...], ascending.
    """

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def split(programs: MeasuredPrograms, held_out: Sequence[str], validation_fraction: float, seed: int) -> Split:
    """Tests on every task that occurs in a held-out network, validates on whole other tasks, trains on the rest.

    Two tasks are the same one if their structural hashes are equal, whatever their names, networks and targets.

    Args:
        programs: What to split.
        held_out: Networks (:func:`~tvm_gnn_cost.networks.names.networks_named`) whose tasks only test, those included
            that occur in others too.
        validation_fraction: Share of the remaining tasks that validate, between 0 and 1; at least one task.
        seed: Chooses the validation tasks.

    Raises:
        ValueError: a held-out network is unknown, the fraction is not between 0 and 1, or a part would be empty.
    """
    if not 0.0 < validation_fraction < 1.0:
        raise ValueError(f"the validation fraction must lie between 0 and 1, got {validation_fraction}")
    networks = sorted({network for task in programs.tasks for network in task.weights})
    unknown = [name for name in held_out if not networks_named(name, networks)]
    if unknown:
        raise ValueError(
            f"held-out network '{unknown[0]}' does not occur in the data; it has: {', '.join(networks) or 'none'}"
        )
    tested = {network for name in held_out for network in networks_named(name, networks)}
    present = {programs.tasks[i].hash for i in np.unique(programs.task).tolist()}
    test = {task.hash for task in programs.tasks if task.hash in present and not tested.isdisjoint(task.weights)}
    if not test:
        raise ValueError(f"no program to test on: none belongs to a task of the networks held out ({list(held_out)})")
    rest = sorted(present - test)
    if len(rest) < 2:
        raise ValueError(
            f"{len(rest)} task(s) left to train and validate on, at least 2 are needed; hold out fewer networks than "
            f"{', '.join(held_out)}, or collect programs of others"
        )
    count = min(max(1, round(validation_fraction * len(rest))), len(rest) - 1)
    chosen = np.random.default_rng(seed).permutation(len(rest))[:count]
    validation = {rest[i] for i in chosen.tolist()}
    part_of_task = np.array(
        [2 if task.hash in test else 1 if task.hash in validation else 0 for task in programs.tasks], dtype=np.int8
    )
    part = part_of_task[programs.task]
    return Split(*(np.flatnonzero(part == number) for number in range(3)))
