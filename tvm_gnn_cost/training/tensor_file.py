"""Tensors and what describes them in one safetensors file, so that loading one runs no code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_KEY = "tvm_gnn_cost"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    """Writes the file; whoever reads it meanwhile sees the old one or the new one, never a part.

    Args:
        path: The file; its folder is made.
        tensors: By name.
        info: What is JSON in its header.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            temporary,
            metadata={_KEY: json.dumps(info)},
        )
        temporary.chmod(0o644)  # safetensors lets the owner alone read it
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path, how_to_make: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file that :func:`write_tensors` wrote, and its JSON.

    Args:
        path: The file.
        how_to_make: The command that makes one, for the messages.

    Raises:
        ValueError: the file is missing or is none.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such checkpoint; '{how_to_make}' makes one")
    try:
        with safe_open(path, framework="pt") as file:
            info = json.loads((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a checkpoint ({error}); '{how_to_make}' makes one") from error
    if info is None:
        raise ValueError(f"{path}: a safetensors file, but not a checkpoint of tvm-gnn-cost")
    return tensors, info


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin so, without the beginning."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
