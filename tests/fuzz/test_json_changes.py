from __future__ import annotations

import json

from tests.fuzz.json_changes import changed_json

DOCUMENT = {"i": [["k", 1], [2.5, None]], "v": "v0.6"}


def test_changes_are_json_and_depend_on_the_seed() -> None:
    found = [changed_json(json.dumps(DOCUMENT).encode(), 10_000, seed) for seed in range(300)]
    for one in found:
        assert one is not None
        json.loads(one or b"null")
    assert len(set(found)) > 200
    assert found[7] == changed_json(json.dumps(DOCUMENT).encode(), 10_000, 7)


def test_one_line_changes_and_what_stands_before_stays() -> None:
    lines = [json.dumps({"line": number}).encode() for number in range(3)]
    for seed in range(50):
        found = changed_json(b"\x02" + b"\n".join(lines), 10_000, seed)
        assert found is not None
        assert found.startswith(b"\x02")
        assert len(set(found[1:].split(b"\n")) & set(lines)) >= 2


def test_other_bytes_and_results_that_are_too_large_are_left_to_the_fuzzer() -> None:
    assert changed_json(b"\x00\x01", 100, 0) is None
    assert changed_json(b"[1, ", 100, 0) is None
    assert changed_json(b"[1, 2, 3]", 1, 0) is None
