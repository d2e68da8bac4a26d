from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.typed_json import from_json


@dataclass(frozen=True)
class Settings:
    kind: Literal["a", "b"]
    sizes: tuple[int, ...] = (1,)
    names: tuple[str, ...] = ()
    share: float = 0.5
    count: int = 3
    on: bool = True
    more: dict[str, Any] = field(default_factory=dict)


def test_settings_survive_json() -> None:
    settings = Settings("b", (4, 5), ("x",), 1.0, 7, False, {"a": 1})
    assert from_json(Settings, json.loads(json.dumps(asdict(settings)))) == settings
    # A file of an older version may lack some.
    assert from_json(Settings, {"kind": "a"}) == Settings("a")
    assert from_json(Settings, {"kind": "a", "share": 1}).share == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "c"),
        ("kind", ["a"]),
        ("sizes", 4),
        ("sizes", [4, "5"]),
        ("sizes", "45"),
        ("sizes", [True]),
        ("names", [1]),
        ("names", None),
        ("share", "0.5"),
        ("share", True),
        ("count", 2.5),
        ("count", None),
        ("count", True),
        ("on", 1),
        ("more", [1]),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"the field '{name}(\[\d\])?' has the wrong value"):
        from_json(Settings, {"kind": "a", name: value})


def test_missing_settings_are_named() -> None:
    with pytest.raises(InputError, match=r"a field is missing: .*'kind'"):
        from_json(Settings, {"count": 1})
    with pytest.raises(InputError, match="the field 'newer' is unknown"):
        from_json(Settings, {"kind": "a", "newer": 1})
    for values in (None, [], "text", 3):
        with pytest.raises(InputError, match="expected a JSON object with the fields of Settings, found"):
            from_json(Settings, values)


@dataclass(frozen=True)
class Part:
    size: int
    best: float | None = None


@dataclass(frozen=True)
class Whole:
    first: Part
    parts: list[Part]
    seconds: dict[str, float]
    last: Part | None = None


WHOLE = {"first": {"size": 1}, "parts": [{"size": 2, "best": 0.5}], "seconds": {"a": 1}, "last": None}


def test_dataclasses_hold_dataclasses() -> None:
    assert from_json(Whole, WHOLE) == Whole(Part(1), [Part(2, 0.5)], {"a": 1.0})
    assert from_json(Whole, {**WHOLE, "last": {"size": 3}}).last == Part(3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("first", 3, "expected a JSON object with the fields of Part in 'first', found 3"),
        ("first", {}, "a field is missing: 'first.size'"),
        ("parts", [{"size": 2}, {"size": "2"}], "the field 'parts[1].size' has the wrong value '2'"),
        ("parts", [{"size": 2, "best": "x"}], "the field 'parts[0].best' has the wrong value 'x'"),
        ("parts", [{"size": 2, "more": 1}], "the field 'parts[0].more' is unknown"),
        ("parts", {"size": 2}, "the field 'parts' has the wrong value {'size': 2}"),
        ("seconds", {"a": "1"}, "the field 'seconds.a' has the wrong value '1'"),
        ("last", [], "expected a JSON object with the fields of Part in 'last', found []"),
        ("first", {"size": 10**400}, "the field 'first.size' has the wrong value 1000"),
        ("first", {"size": 1, "best": 10**400}, "the field 'first.best' has the wrong value 1000"),
        ("first", {"size": 1, "best": math.nan}, "the field 'first.best' has the wrong value nan"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(Whole, {**WHOLE, field: value})
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200
