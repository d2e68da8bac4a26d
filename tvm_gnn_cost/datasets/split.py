"""Splits measured programs by network and task: no model is trained on a task of its test networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.programs import Programs
from tvm_gnn_cost.errors import InputError


@dataclass(frozen=True)
class Split:
    """Three parts of a set of programs, none of which shares a task with another.

    Attributes:
        train: int64[A], indices of the training programs, ascending.
        validation: int64[B], indices of the validation programs.
        test: int64[C], indices of the test programs.
    """

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def split(programs: Programs, held_out: Sequence[str], validation_fraction: float, seed: int) -> Split:
    """Splits programs by task: tasks of held-out networks (test), random others (validation), and the rest (train).

    Tasks with equal structural hashes are the same task, even with other names, networks or targets. A task that occurs
    both in a held-out network and in another network is a test task.

    Args:
        programs: The programs to split.
        held_out: Names of networks, see :func:`~tvm_gnn_cost.datasets.split.networks_named`.
        validation_fraction: Fraction of the other tasks for validation, between 0 and 1; at least one task.
        seed: Seed of the choice of validation tasks.

    Raises:
        InputError: a held-out network does not occur, the fraction is not between 0 and 1, or a part would be empty.
    """
    if not 0.0 < validation_fraction < 1.0:
        raise InputError(f"validation_fraction must be between 0 and 1, got {validation_fraction}")
    networks = sorted({network for task in programs.tasks for network in task.weights})
    unknown = [name for name in held_out if not networks_named(name, networks)]
    if unknown:
        raise InputError(
            f"held-out network '{unknown[0]}' does not occur in the data; it has: {', '.join(networks) or 'none'}"
        )
    tested = {network for name in held_out for network in networks_named(name, networks)}
    present = {programs.tasks[i].hash for i in np.unique(programs.task).tolist()}
    test = {task.hash for task in programs.tasks if task.hash in present and not tested.isdisjoint(task.weights)}
    if not test:
        raise InputError(f"no program to test on: none belongs to a task of the held-out networks ({list(held_out)})")
    rest = sorted(present - test)
    if len(rest) < 2:
        raise InputError(
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


#: Scheduler -> its test networks, named as in its measure records (TenSet's names for ``auto-scheduler``).
TEST_NETWORKS = {
    "meta-schedule": ("resnet-18", "mobilenet-v2", "inception-v3"),
    "auto-scheduler": ("resnet_18", "mobilenet", "inception_v3"),
}


def networks_named(name: str, networks: Iterable[str]) -> list[str]:
    """The networks of the given name; TenSet's names also match without their input shapes.

    A name with ``*`` is a pattern, as of files.

    >>> networks_named("resnet_18", ["resnet_18[(1,3,224,224)]", "resnet_50"])
    ['resnet_18[(1,3,224,224)]']
    >>> networks_named("families:swin_*", ["families:swin_0", "families:vit_0", "families:swin_1"])
    ['families:swin_0', 'families:swin_1']
    """
    return [
        network
        for network in networks
        if name in (network, network.partition("[")[0]) or ("*" in name and fnmatchcase(network, name))
    ]


def networks_to_test(known: Iterable[str], asked: Sequence[str] = ()) -> list[str]:
    """The networks to test on: ``asked``, by default the known test networks, or the only network.

    >>> networks_to_test(["bert", "resnet_18[(1,3,224,224)]"])
    ['resnet_18[(1,3,224,224)]']

    Args:
        known: The networks that occur in the data.
        asked: Names of networks, see :func:`networks_named`.

    Raises:
        InputError: a network in ``asked`` does not occur in the data, or there are several networks and none is a test
            network.
    """
    names = sorted(known)
    for name in asked:
        if not networks_named(name, names):
            raise InputError(f"network '{name}' does not occur in the data; it has: {', '.join(names) or 'none'}")
    usual = [name for networks in TEST_NETWORKS.values() for name in networks]
    results = [network for name in dict.fromkeys(asked or usual) for network in networks_named(name, names)]
    if not results and len(names) == 1:
        return names
    if not results:
        raise InputError(
            f"none of the default test networks ({', '.join(usual)}) occurs in the data; "
            f"choose among its networks: {', '.join(names) or 'none'}"
        )
    return results
