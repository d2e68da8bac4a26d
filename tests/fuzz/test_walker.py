from __future__ import annotations

import re
import subprocess

import pytest

from tests.extraction.sanitized import BUILD, HAS_COMPILER, build
from tests.fuzz.runs import corpus_of

SECONDS = 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_COMPILER, reason="needs g++ and its sanitizer libraries"),
]


def test_modules_made_of_bytes_are_extracted_or_refused() -> None:
    build()
    inputs = [str(path) for path in corpus_of("walker")]
    assert inputs
    done = subprocess.run(
        [str(BUILD / "walker"), str(SECONDS), "0", *inputs],
        capture_output=True,
        text=True,
        timeout=20 * SECONDS,
        check=False,
        env={"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
    )
    assert done.returncode == 0, done.stderr
    count, slowest = re.findall(r"[\d.]+", done.stdout)
    assert int(count) > len(inputs)
    # The walker's own limits take two seconds of a core with the sanitizers.
    assert float(slowest) < 30
