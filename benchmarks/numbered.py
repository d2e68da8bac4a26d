"""Names of workloads of random sizes, ``KIND_NUMBER`` in a module of this folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any


def functions(module: str, kinds: Collection[str], make: Callable[[str, int], Any]) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``KIND_3`` is a function without arguments that returns ``make(KIND, 3)``.

    Args:
        module: The module's name.
        kinds: The kinds that it has.
        make: Makes a workload from its kind and number.
    """

    def get(name: str) -> Any:
        kind, _, number = name.rpartition("_")
        if kind in kinds and number.isdecimal():
            return lambda: make(kind, int(number))
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


def print_names(module: str, kinds: Collection[str], sizes: int) -> None:
    """Reads the options and prints the names of workloads, those of all kinds interleaved.

    Args:
        module: The module's name.
        kinds: The kinds that it has.
        sizes: Number of workloads of each kind, unless the command line has another.
    """
    options = argparse.ArgumentParser(description="Prints the names of workloads, those of all kinds interleaved.")
    options.add_argument("--sizes", type=int, default=sizes, help="number of workloads of each kind")
    options.add_argument("--first", type=int, default=0, help="number of the first one")
    arguments = options.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.sizes)
    print(*(f"{module}:{kind}_{number}" for number in numbers for kind in kinds))
