from __future__ import annotations

from pathlib import Path

import pytest

from tests import synthetic
from tests.command import assert_mistake, call, call_json


def test_embed_draws_the_types(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = call_json(capfd, "embed", store, tmp_path / "types.png")
    assert set(synthetic.TYPES) <= set(found["types"])
    assert (tmp_path / "types.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_an_unknown_format_is_a_mistake(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = call(capfd, "embed", store, tmp_path / "types.docx")
    assert_mistake(answer, "types.docx: the file name must end in one of: ")
