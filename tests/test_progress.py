from __future__ import annotations

import dataclasses
import pickle
from typing import get_args

import pytest

from tvm_gnn_cost import progress
from tvm_gnn_cost.progress import Advanced, EpochFinished, Event, ProgramsMeasured, Stage, TrialsMeasured, ignore

EVENTS = [kind for kind in vars(progress).values() if dataclasses.is_dataclass(kind)]


def test_every_event_is_of_the_type_event() -> None:
    assert EVENTS
    assert set(get_args(Event)) == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_a_value(kind: type) -> None:
    fields = [field.name for field in dataclasses.fields(kind)]
    event, same, other = (kind(*[value] * len(fields)) for value in ("a", "a", "b"))
    assert event == same != other
    # Worker processes send events.
    assert pickle.loads(pickle.dumps(event)) == event
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, fields[0], "c")


def test_events_are_read_by_type_and_field() -> None:
    seen: list[Event] = []
    for event in (Stage("training"), Advanced(1, 3), EpochFinished(1, {"validation_error": 0.5})):
        seen.append(event)
        ignore(event)
    assert [event.done / event.total for event in seen if isinstance(event, Advanced)] == [1 / 3]
    assert ProgramsMeasured("dense", valid=3, failed=1).failed == 1
    assert TrialsMeasured("dense", 64, 576, 1e-3).latency == 1e-3
