from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.fuzz.runs import corpus_of, fuzz
from tests.fuzz.targets import TARGETS

#: Of each target; their processes take longer to start.
SECONDS = 3

_NAMES = [
    pytest.param(name, marks=[pytest.mark.needs(one.needs)] if one.needs else []) for name, one in TARGETS.items()
]


@pytest.mark.parametrize("name", _NAMES)
def test_the_seeds_are_read_and_the_corpus_is_read_or_refused(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    read = [target.reads(seed, tmp_path) for seed in target.seeds(tmp_path)]
    assert any(read)
    for path in corpus_of(name):
        target.reads(path.read_bytes(), tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs Atheris")
@pytest.mark.parametrize("name", _NAMES)
def test_new_inputs_are_read_or_refused(name: str) -> None:
    done = fuzz(name, SECONDS)
    assert done.problem is None
    assert done.inputs > 20
