"""Fuzzes what reads files: ``python -m tests.fuzz --minutes 1``, or some targets of it by name.

Each target has a process of its own and its share of the time; the corpus in this folder grows with ``--keep``. An
input that is a finding stays in ``work/fuzz`` and ends the target; put it into the corpus with the correction.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.runs import fuzz
from tests.fuzz.targets import TARGETS
from tvm_gnn_cost.installed import has


def main() -> None:
    """Prints a line a target; ends with exit code 1 if there is a finding."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of: {', '.join(TARGETS)}")
    options.add_argument("--minutes", type=float, default=1.0, help="of all targets together")
    options.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep inputs that reach new code below this folder"
    )
    arguments = options.parse_args()
    names = arguments.targets or [name for name, one in TARGETS.items() if not one.needs or has(one.needs)]
    unknown = set(names) - set(TARGETS)
    if unknown:
        options.error(f"there is no target {min(unknown)}")
    fuzzed = fuzz(names, 60 * arguments.minutes / len(names), keep=arguments.keep)
    for name, done in fuzzed.items():
        print(f"{name}: {done.inputs} inputs{'' if done.problem is None else f', a finding: {done.problem}'}")
    findings = sum(done.problem is not None for done in fuzzed.values())
    print(f"{sum(done.inputs for done in fuzzed.values())} inputs, {findings} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
