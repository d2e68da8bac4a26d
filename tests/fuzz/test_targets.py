from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.fuzz.runs import corpus_of, fuzz
from tests.fuzz.targets import EXPECTED, TARGETS

#: Of each target; their processes take longer to start.
SECONDS = 3


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    read = 0
    for seed in target.seeds(tmp_path):
        try:
            target.run(seed, tmp_path)
        except EXPECTED:
            continue
        read += 1
    assert read > 0


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for path in corpus_of(name):
        try:
            target.run(path.read_bytes(), tmp_path)
        except EXPECTED as error:
            assert str(error)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs Atheris")
@pytest.mark.parametrize("name", TARGETS)
def test_new_inputs_are_read_or_refused(name: str) -> None:
    done = fuzz(name, SECONDS)
    assert done.problem is None
    assert done.inputs > 20
