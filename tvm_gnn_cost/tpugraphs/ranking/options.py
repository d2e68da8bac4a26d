"""Changes fields of settings by their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tvm_gnn_cost.errors import InputError


def with_options(changes: Mapping[str, Any], *settings: Any, fixed: Collection[str] = ()) -> tuple[Any, ...]:
    """Replaces fields of one or more dataclasses of settings.

    Args:
        changes: New values by field name; each may be text, as from the command line.
        settings: The dataclasses; no two of them have a field of the same name.
        fixed: Fields that must not be changed here.

    Raises:
        InputError: there is no such field, or the value is not of its type or out of range.

    >>> from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings
    >>> with_options({"folds": "6", "kept": 1}, EnsembleSettings())
    (EnsembleSettings(folds=6, trained=5, kept=1),)
    """
    replaced: list[dict[str, Any]] = [{} for _ in settings]
    known = [[field.name for field in fields(one) if field.name not in fixed] for one in settings]
    for name, value in changes.items():
        owner = next((i for i, names in enumerate(known) if name in names), None)
        if value is None or owner is None:
            listed = ", ".join(name for names in known for name in names)
            given = name if value is None else f"{name}={value}"
            raise InputError(f"setting {given}: expected NAME=VALUE with one of the names: {listed}")
        replaced[owner][name] = _parse(name, get_type_hints(type(settings[owner]))[name], value)
    return tuple(replace(one, **new) for one, new in zip(settings, replaced, strict=True))


def _parse(name: str, kind: Any, value: Any) -> Any:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if get_origin(kind) is UnionType:
        kind = int if text.isdecimal() else str
    if get_origin(kind) is Literal or kind is bool:
        choices = {"true": True, "false": False} if kind is bool else {str(one): one for one in get_args(kind)}
        if text not in choices:
            raise InputError(f"setting {name}={text}: expected one of: {', '.join(choices)}")
        return choices[text]
    try:
        return kind(text)
    except ValueError:
        expected = {int: "a whole number", float: "a number"}[kind]
        raise InputError(f"setting {name}={text}: expected {expected}") from None
