"""The extension under the address and undefined-behaviour sanitizers, with the TVM that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extraction.sanitized import HAS_COMPILER, run_sanitized

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_COMPILER, reason="needs g++ and its sanitizer libraries"),
]


@pytest.mark.needs("s_tir")
def test_extraction_from_modules_is_clean():
    run_sanitized(HERE / "exercise_meta_schedule.py")


@pytest.mark.needs("auto_scheduler")
def test_extraction_from_states_is_clean(tmp_path: Path):
    from tests.schedulers.auto_scheduler.small_tasks import copy_records, files_of

    # A few records: with the sanitizers, reading all of them takes two minutes.
    copy_records(tmp_path / "data", files_of("inception_v3", 4), 3)
    run_sanitized(HERE / "exercise_auto_scheduler.py", tmp_path / "data")
