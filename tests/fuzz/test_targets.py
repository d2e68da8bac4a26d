from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.fuzz.runs import Fuzzed, corpus_of, fuzz
from tests.fuzz.targets import TARGETS

#: Of each target.
SECONDS = 1

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


@pytest.fixture(scope="module")
def fuzzed(request: pytest.FixtureRequest) -> dict[str, Fuzzed]:
    """Of all targets that are tested here."""
    names = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    return fuzz(sorted(set(names)), SECONDS)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs Atheris")
@pytest.mark.parametrize("name", _NAMES)
def test_new_inputs_are_read_or_refused(name: str, fuzzed: dict[str, Fuzzed]) -> None:
    assert fuzzed[name].problem is None
    assert fuzzed[name].inputs > 20
