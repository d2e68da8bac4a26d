"""Safetensors files with tensors and JSON: unlike a pickle, loading one runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, replacing

_KEY = "tvm_gnn_cost"
_Settings = TypeVar("_Settings")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    """Writes a file atomically.

    Args:
        path: The file; its folder is created if it is missing.
        tensors: Name -> tensor.
        info: What the header holds as JSON.

    Raises:
        OSError: the file cannot be written; the message names it.
    """
    # Through memory: safetensors has an error of its own for a full disk, and its files only their owner can read.
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata={_KEY: json.dumps(info)})
    with replacing(path) as unfinished:
        unfinished.write_bytes(content)


def read_tensors(path: Path, how_to_make: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the JSON of a file that :func:`write_tensors` wrote.

    Args:
        path: The file.
        how_to_make: The command that makes such a file, for the error messages.

    Raises:
        InputError: the file is missing or damaged, or :func:`write_tensors` did not write it.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such checkpoint; '{how_to_make}' makes one")
    try:
        with safe_open(path, framework="pt") as file:
            info = parse_json((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path}: not a checkpoint ({error}); '{how_to_make}' makes one") from error
    if not isinstance(info, dict):
        raise InputError(f"{path}: a safetensors file, but not a checkpoint of tvm-gnn-cost")
    return tensors, info


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, under their names without it.

    >>> import torch
    >>> list(with_prefix({"model.bias": torch.zeros(2), "extra.bias": torch.zeros(2)}, "model."))
    ['bias']
    """
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def settings_from_json(kind: type[_Settings], values: object) -> _Settings:
    """A dataclass of numbers, texts, tuples and JSON objects from its JSON; unknown fields are ignored.

    Raises:
        InputError: ``values`` is not a JSON object, or a field is missing or has a wrong type.
    """
    if not isinstance(values, dict):
        raise InputError(f"expected a JSON object with the fields of {kind.__name__}, found {values!r}")
    hints = get_type_hints(kind)
    given = {}
    for name in (field.name for field in fields(kind) if field.name in values):  # type: ignore[arg-type]
        value = tuple(values[name]) if isinstance(values[name], list) else values[name]
        if not _fits(value, hints[name]):
            raise InputError(f"the field '{name}' has the wrong value {values[name]!r}")
        given[name] = value
    try:
        return kind(**given)
    except TypeError as error:
        raise InputError(f"a field is missing: {error}") from error


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
