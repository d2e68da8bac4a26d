"""Runs targets in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
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


def fuzz(name: str, seconds: float, keep: Path | None = None) -> Fuzzed:
    """Fuzzes a target for some seconds, its start not counted.

    Args:
        name: The target.
        seconds: How long.
        keep: Where inputs that reach new code are kept, in a folder of the target's name.
    """
    FINDINGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = (keep or Path(folder)) / name
        found.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "tests.fuzz.one", name, folder, str(FINDINGS)),
            *(f"-max_total_time={max(1, round(seconds))}", f"-timeout={_SECONDS}", f"-rss_limit_mb={_MEBIBYTES}"),
            *("-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{name}-", "-max_len=65536"),
            *(str(found), str(CORPUS / name)),
        ]
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=10 * seconds + 300,
        )
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    inputs = int(counted[1]) if counted else 0
    if done.returncode == 0:
        return Fuzzed(inputs, None)
    kept = re.search(r"Test unit written to (\S+)", done.stdout)
    said = [
        line for line in done.stdout.splitlines() if re.match(r"\s*(\w+\.)*\w*(Error|Exception)\b|==\d+== ?ERROR", line)
    ]
    return Fuzzed(inputs, f"{said[0].strip() if said else done.stdout[-500:]} ({kept[1] if kept else 'no input'})")
