"""Fuzzes targets with Atheris, libFuzzer for Python: FOLDER FINDINGS CORPUS KEEP TARGET..., then libFuzzer's options.

libFuzzer ends its process, so that each target has one. All are forked from this one, which has imported torch.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tvm_gnn_cost"]):
    from tests.fuzz.targets import TARGETS
from tests.fuzz.json_changes import changed_json


def main() -> None:
    """Runs each target until an input is a finding or libFuzzer's limits are reached; writes TARGET.log and .code."""
    folder, findings, corpus, keep = (Path(argument) for argument in sys.argv[1:5])
    names = [argument for argument in sys.argv[5:] if not argument.startswith("-")]
    options = [argument for argument in sys.argv[5:] if argument.startswith("-")]
    for name in names:
        own = folder / name
        for path in (own / "seeds", corpus / name, keep / name):
            path.mkdir(parents=True, exist_ok=True)
        child = os.fork()
        if not child:
            log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            artifacts = f"-artifact_prefix={findings}/{name}-"
            fuzz(name, own, findings, [*options, artifacts, str(keep / name), str(corpus / name)])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        (folder / f"{name}.code").write_text(str(code))


def fuzz(name: str, folder: Path, findings: Path, options: list[str]) -> None:
    """Fuzzes a target and ends the process."""
    target = TARGETS[name]
    seeds = folder / "seeds"
    # What reads with TVM is imported when it is needed: now, for libFuzzer counts the seconds.
    with atheris.instrument_imports(include=["tvm_gnn_cost"]):
        for number, seed in enumerate(target.seeds(folder)):
            (seeds / str(number)).write_bytes(seed)
            target.reads(seed, folder)

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
    atheris.Setup([sys.argv[0], *options, str(seeds)], run, **mutators)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
