"""Fuzzes targets in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"

#: Where inputs that are findings are kept.
FINDINGS = ROOT / "work" / "fuzz"

#: Limits of one input, and of the process with torch in it.
_SECONDS, _MEBIBYTES = 10, 3072


@dataclass(frozen=True)
class Fuzzed:
    """What a run did.

    Attributes:
        inputs: How many inputs it tried.
        problem: What the last of them did wrong, and where it is kept; None if nothing did.
    """

    inputs: int
    problem: str | None


def corpus_of(name: str) -> list[Path]:
    """The committed inputs of a target."""
    return sorted((CORPUS / name).glob("*"))


def fuzz(names: Sequence[str], seconds: float, keep: Path | None = None) -> dict[str, Fuzzed]:
    """Fuzzes targets one after another, each for some seconds, its start not counted.

    Args:
        names: The targets.
        seconds: Of each target.
        keep: Where inputs that reach new code are kept, in a folder of the target's name.
    """
    FINDINGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [
            *(sys.executable, "-m", "tests.fuzz.one", folder, FINDINGS, CORPUS, keep or folder / "kept", *names),
            *(f"-max_total_time={max(1, round(seconds))}", f"-timeout={_SECONDS}", f"-rss_limit_mb={_MEBIBYTES}"),
            *("-print_final_stats=1", "-max_len=65536"),
        ]
        limit = 10 * seconds * len(names) + 300
        subprocess.run([str(word) for word in command], cwd=ROOT, check=True, timeout=limit)
        return {name: _read(folder, name) for name in names}


def _read(folder: Path, name: str) -> Fuzzed:
    """What the process of a target wrote."""
    output = (folder / f"{name}.log").read_text(errors="replace")
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    inputs = int(counted[1]) if counted else 0
    if (folder / f"{name}.code").read_text() == "0":
        return Fuzzed(inputs, None)
    kept = re.search(r"Test unit written to (\S+)", output)
    errors = [
        line for line in output.splitlines() if re.match(r"\s*(\w+\.)*\w*(Error|Exception)\b|==\d+== ?ERROR", line)
    ]
    return Fuzzed(inputs, f"{errors[0].strip() if errors else output[-500:]} ({kept[1] if kept else 'no input'})")
