"""Changes values of a JSON document: most changed bytes of one would only be refused as no JSON."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: What a value is replaced by: limits of types, and what is empty, of another type or no number.
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 127, 255, 2**31 - 1, 2**31, -(2**31), 2**63, -(2**63) - 1, 10**30, 10**400),
    *(0.5, -0.0, 1e10, 1e-300, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", "0", "a", "\0", "é", "\ud800", "x" * 300, "llvm", "float32", [], {}, [[]], [0], [None], {"": 0}),
)


def changed_json(data: bytes, max_size: int, seed: int) -> bytes | None:
    """The bytes with one to four changes of their JSON; None if they hold none, or if the result is too large.

    JSON may stand behind other bytes, which stay, and in one of several lines, of which one is changed.

    Args:
        data: The bytes.
        max_size: Most bytes of the result.
        seed: Of the changes.
    """
    rng = random.Random(seed)
    begin = min((at for at in map(data.find, (b"{", b"[")) if at >= 0), default=-1)
    if begin < 0:
        return None
    lines = data[begin:].split(b"\n")
    chosen = rng.randrange(len(lines))
    try:
        document = [json.loads(lines[chosen])]
        for _ in range(rng.randint(1, 4)):
            _change(document, rng)
        if document:
            lines[chosen] = json.dumps(document[0]).encode()
        else:
            del lines[chosen]
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None
    changed = data[:begin] + b"\n".join(lines)
    return changed if len(changed) <= max_size else None


def _change(document: list[Any], rng: random.Random) -> None:
    """Changes one value below a list that holds the document."""
    places = list(_places(document))
    if not places:
        return
    holder, key = rng.choice(places)
    way = rng.randrange(6)
    if way == 0:
        del holder[key]
    elif way == 1:
        other, its_key = rng.choice(places)
        holder[key] = copy.deepcopy(other[its_key])
    elif way == 2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 2:
        holder[rng.choice(["", "a", f"{key}2"])] = holder.pop(key)
    elif way == 3:
        holder[key] = [holder[key]]
    elif way == 4:
        holder[key] = _near(holder[key], rng)
    else:
        holder[key] = rng.choice(_VALUES)


def _places(value: Any) -> Any:
    """Each value below a list or an object, as the one that holds it and its key there."""
    held = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, one in list(held):
        yield value, key
        yield from _places(one)


def _near(value: Any, rng: random.Random) -> Any:
    """A value that differs a little."""
    if isinstance(value, int | float):
        return rng.choice([value + 1, value - 1, -value, value * 2, value // 2 if isinstance(value, int) else int(1e9)])
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return rng.choice([value[:at], value[:at] + rng.choice('0-[]{}",: ') + value[at + 1 :], value + value])
    return rng.choice(_VALUES)
