"""The extension under the address and undefined-behaviour sanitizers, with today's TVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extraction.sanitized import HAS_COMPILER, run_sanitized


@pytest.mark.skipif(not HAS_COMPILER, reason="needs g++ and its sanitizer libraries")
def test_extraction_is_clean_under_the_sanitizers():
    run_sanitized(Path(__file__).parent / "exercise.py")
