"""Measures layouts of JAX networks on a CPU, and models which kernels XLA makes of them there; it says nothing of TPUs.

Measuring turns JAX networks into npz files in the TpuGraphs format, with a card that describes the machine.
``find_kernels`` takes a graph of such a file and its layouts, and returns the features of the kernels that XLA on a CPU
compiles each layout to, for ``tpugraphs.prepare`` and the model ``kernel-costs``. The public names are loaded when they
are first used, so that importing this package imports neither JAX nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.xla_cpu.kernels import find_kernels
    from tvm_gnn_cost.xla_cpu.measurement import measure
    from tvm_gnn_cost.xla_cpu.settings import MeasureSettings

__all__ = ["MeasureSettings", "find_kernels", "measure"]

_MODULES = {"MeasureSettings": "settings", "find_kernels": "kernels", "measure": "measurement"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
