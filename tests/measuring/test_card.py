from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.card import check_same, read_card, today, with_run

FIELDS = {"machine": dict, "runs": list}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "card.json"


def test_there_may_be_no_card(path: Path) -> None:
    assert read_card(path, FIELDS) is None


def test_a_card_may_have_further_fields(path: Path) -> None:
    card = {"machine": {"processor": "Größer"}, "runs": [], "note": 3}
    path.write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")
    assert read_card(path, FIELDS) == card


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b'{"machine": {}, "ru', "not JSON"),
        (b'{"machine": {}, "runs": []} x', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'"machine runs"', "not a JSON object"),
        (b'{"machine": {}}', "its field 'runs' is missing or wrong"),
        (b'{"machine": "mine", "runs": []}', "its field 'machine' is missing or wrong"),
        (b'{"machine": {}, "runs": null}', "its field 'runs' is missing or wrong"),
    ],
)
def test_a_damaged_card_is_one_sentence_with_the_file_and_the_field(path: Path, content: bytes, reason: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{path} is not a card of measurements: {reason}.*; choose another folder$"):
        read_card(path, FIELDS)


def test_measurements_of_another_machine_do_not_mix(path: Path) -> None:
    check_same(path, "the processor", "EPYC", "EPYC")
    check_same(path, "the settings", {"a": [1]}, {"a": [1]})
    with pytest.raises(InputError, match=r"card\.json: measured with the processor EPYC, but now it is Xeon"):
        check_same(path, "the processor", "EPYC", "Xeon")
    # A card that does not say is of another machine.
    with pytest.raises(InputError, match="measured with the processor None"):
        check_same(path, "the processor", None, "Xeon")


def test_the_date_is_that_of_utc() -> None:
    before = datetime.datetime.now(datetime.UTC).date()
    found = datetime.date.fromisoformat(today())
    assert before <= found <= datetime.datetime.now(datetime.UTC).date()


@dataclass(frozen=True)
class Plan:
    """Any settings."""

    workloads: tuple[str, ...]
    random: int = 8


def test_a_run_stands_once_in_a_card_for_its_settings() -> None:
    once = with_run([], Plan(("dense/0",)))
    assert once == [{"date": today(), "workloads": ["dense/0"], "random": 8}]
    assert with_run(once, Plan(("dense/0",))) == once
    assert [run["random"] for run in with_run(once, Plan(("dense/0",), random=4))] == [8, 4]
