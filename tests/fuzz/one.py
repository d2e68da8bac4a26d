"""Fuzzes a target with Atheris, libFuzzer for Python: TARGET FOLDER FINDINGS, then libFuzzer's options and folders."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tvm_gnn_cost"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Runs until an input is a finding or libFuzzer's limits are reached."""
    name, folder, findings = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    target = TARGETS[name]
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds(folder)):
        (seeds / str(number)).write_bytes(seed)

    def run(data: bytes) -> None:
        try:
            target.reads(data, folder)
        except Exception:
            kept = findings / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
            kept.write_bytes(data)
            print(f"Test unit written to {kept}", flush=True)  # in libFuzzer's words
            raise

    atheris.Setup([sys.argv[0], *sys.argv[4:], str(seeds)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
