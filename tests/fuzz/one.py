"""Fuzzes a target with Atheris, libFuzzer for Python: TARGET FOLDER FINDINGS, then libFuzzer's options and folders."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tvm_gnn_cost"]):
    from tests.fuzz.targets import TARGETS
from tests.fuzz.json_changes import changed_json


def main() -> None:
    """Runs until an input is a finding or libFuzzer's limits are reached."""
    name, folder, findings = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    target = TARGETS[name]
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    # What reads with TVM is imported when it is needed.
    with atheris.instrument_imports(include=["tvm_gnn_cost"]):
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

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        changed = changed_json(data, max_size, seed) if seed % 8 else None
        return bytes(atheris.Mutate(data, max_size)) if changed is None else changed

    mutators = {"custom_mutator": mutate} if target.is_json else {}
    atheris.Setup([sys.argv[0], *sys.argv[4:], str(seeds)], run, **mutators)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
