"""A second device without a GPU: tensors that compute on the CPU, but never together with a tensor of the CPU.

Registers a device for the whole process, so tests run it in a process of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("second")

DEVICE = torch.device("second", 0)


class _OnSecond(Tensor):
    """A tensor of the second device; ``values`` holds its content on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> _OnSecond:
        made: _OnSecond = Tensor._make_wrapper_subclass(
            cls, values.size(), values.stride(), values.storage_offset(), dtype=values.dtype, device=DEVICE
        )
        made.values = values
        return made

    def __repr__(self) -> str:
        return f"second({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})


class SecondDevice(TorchDispatchMode):
    """Inside this block tensors can be made on :data:`DEVICE` and moved there and back.

    Raises:
        RuntimeError: an operation reads tensors of both devices, as CUDA would refuse.
    """

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})


def _run(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    tensors = [tensor for tensor in tree_iter((args, kwargs)) if isinstance(tensor, Tensor)]
    second = [tensor for tensor in tensors if isinstance(tensor, _OnSecond)]
    moves = op in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    if second and not moves and any(tensor.dim() and not isinstance(tensor, _OnSecond) for tensor in tensors):
        raise RuntimeError(f"{op} reads tensors of two devices")
    args, kwargs = tree_map_only(_OnSecond, lambda tensor: tensor.values, (args, dict(kwargs)))
    to = kwargs.get("device")
    if to is not None:
        kwargs["device"] = torch.device("cpu")
    result = op(*args, **kwargs)
    if torch.device(to).type != DEVICE.type if to is not None else not second:
        return result
    # An operation in place returns its first argument, and that stays the tensor it was.
    known = {id(tensor.values): tensor for tensor in second}
    return tree_map_only(Tensor, lambda one: known[id(one)] if id(one) in known else _OnSecond(one), result)
