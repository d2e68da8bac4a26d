"""Fuzzes one target with Atheris, libFuzzer for Python: one.py TARGET FOLDER, then libFuzzer's options and folders."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tvm_gnn_cost"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Runs until an input is a finding or libFuzzer's limits are reached."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    target = TARGETS[name]
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds(folder)):
        (seeds / str(number)).write_bytes(seed)

    def run(data: bytes) -> None:
        target.reads(data, folder)

    atheris.Setup([sys.argv[0], *sys.argv[3:], str(seeds)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
