"""Dataclasses from untrusted JSON: each value is checked against its annotation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tvm_gnn_cost.errors import InputError

_Kind = TypeVar("_Kind")

#: NumPy and torch support no larger integers.
_LARGEST = 2**63 - 1

#: Maximum number of characters of a value in a message.
_SHOWN = 60


def from_json(kind: type[_Kind], value: object, where: str = "") -> _Kind:
    """A dataclass from JSON; fields are strings, numbers, booleans, lists, tuples, dicts and dataclasses of these.

    Numbers must not be NaN, and integers must fit into 64 bits.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int
    ...     names: tuple[str, ...] = ()
    >>> from_json(Size, {"width": 3, "names": ["a"]})
    Size(width=3, names=('a',))

    Args:
        kind: The dataclass; its annotations must be resolvable in its module.
        value: The result of ``json.loads``.
        where: Path of the value in the file, for error messages.

    Raises:
        InputError: a field is missing, unknown or of another type; the message names it.
    """
    if not isinstance(value, dict):
        raise InputError(
            f"expected a JSON object with the fields of {kind.__name__}{f' in {where!r}' if where else ''}, "
            f"found {_shown(value)}"
        )
    names = {field.name: field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    path = f"{where}." if where else ""
    unknown = [name for name in value if name not in names]
    if unknown:
        raise InputError(f"the field '{path}{_shown(unknown[0])[1:-1]}' is unknown")
    missing = [n for n, name in names.items() if n not in value and name.default is name.default_factory is MISSING]
    if missing:
        raise InputError(f"a field is missing: '{path}{missing[0]}'")
    hints = get_type_hints(kind)
    return kind(**{name: _converted(hints[name], given, f"{path}{name}") for name, given in value.items()})


def _converted(hint: Any, value: object, where: str) -> Any:
    """Converts a value according to its annotation."""
    if is_dataclass(hint):
        return from_json(hint, value, where)  # type: ignore[arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and NoneType in arguments:
        (other,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None else _converted(other, value, where)
    if origin in (tuple, list) and isinstance(value, list | tuple):
        return origin(_converted(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _converted(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is Any or (origin is Literal and value in arguments) or _is_plain(hint, value):
        return value
    raise InputError(f"the field '{where}' has the wrong value {_shown(value)}")


def _is_plain(hint: Any, value: object) -> bool:
    """Whether a value is a string, number or boolean of the annotated type."""
    if hint in (str, bool):
        return isinstance(value, hint)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, int):
        return hint in (int, float) and abs(value) <= _LARGEST
    return hint is float and not math.isnan(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
