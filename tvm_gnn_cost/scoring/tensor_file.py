"""Safetensors files with tensors and JSON: unlike a pickle, loading one runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, replacing

_KEY = "tvm_gnn_cost"


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


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuses tensors that hold NaN or infinity.

    Raises:
        InputError: one does; the message names it.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(f"the tensor '{name}' holds NaN or infinity")


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, under their names without it.

    >>> import torch
    >>> list(with_prefix({"model.bias": torch.zeros(2), "extra.bias": torch.zeros(2)}, "model."))
    ['bias']
    """
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
