"""Settings that a user changes by name, ``NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints


def with_options(texts: Sequence[str], *settings: Any, fixed: Collection[str] = ()) -> tuple[Any, ...]:
    """The settings, dataclasses whose fields have different names, with some of their fields replaced.

    Args:
        texts: What to replace, each ``NAME=VALUE``.
        settings: What it is replaced in.
        fixed: Fields that are set in another way.

    Raises:
        ValueError: a text is not NAME=VALUE, none has such a field, or the value is none of its type.
    """
    changes: list[dict[str, Any]] = [{} for _ in settings]
    known = [[field.name for field in fields(one) if field.name not in fixed] for one in settings]
    for text in texts:
        name, is_given, value = text.partition("=")
        owner = next((i for i, names in enumerate(known) if name in names), None)
        if not is_given or owner is None:
            listed = ", ".join(name for names in known for name in names)
            raise ValueError(f"--set {text}: expected NAME=VALUE with one of the names: {listed}")
        changes[owner][name] = _value(text, get_type_hints(type(settings[owner]))[name], value)
    return tuple(replace(one, **changed) for one, changed in zip(settings, changes, strict=True))


def _value(text: str, kind: Any, value: str) -> Any:
    if get_origin(kind) is UnionType:
        kind = int if value.isdecimal() else str
    if get_origin(kind) is Literal or kind is bool:
        choices = {"true": True, "false": False} if kind is bool else {str(one): one for one in get_args(kind)}
        if value not in choices:
            raise ValueError(f"--set {text}: expected one of: {', '.join(choices)}")
        return choices[value]
    try:
        return kind(value)
    except ValueError:
        expected = {int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"--set {text}: expected {expected}") from None
