"""The extension under the address and undefined-behaviour sanitizers, with a TVM up to 0.19."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extraction.sanitized import HAS_COMPILER, run_sanitized
from tests.graphs.ansor_tasks import copy_records, files_of


@pytest.mark.skipif(not HAS_COMPILER, reason="needs g++ and its sanitizer libraries")
def test_extraction_is_clean_under_the_sanitizers(tmp_path: Path):
    # All of the data takes two minutes to read with the sanitizers.
    copy_records(tmp_path / "data", files_of("inception_v3", 4), 3)
    run_sanitized(Path(__file__).parent / "exercise_legacy.py", tmp_path / "data")
