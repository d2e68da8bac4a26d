"""Measures layouts of JAX networks on a CPU, through XLA; what it measures says nothing of TPUs.

JAX networks flow in; npz files in the TpuGraphs format and a card that describes the measurement flow out. The public
names are loaded when they are first used, so that importing this package imports neither JAX nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.xla_cpu.measurement import measure
    from tvm_gnn_cost.xla_cpu.settings import MeasureSettings

__all__ = ["MeasureSettings", "measure"]

_MODULES = {"MeasureSettings": "settings", "measure": "measurement"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
