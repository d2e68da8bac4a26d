"""Ranks layout and tile configurations of XLA graphs in the TpuGraphs format (Phothilimthana et al. 2023); no TVM.

The public names are loaded when they are first used, so that importing this package imports neither torch nor JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.tpugraphs.encoding import encode
    from tvm_gnn_cost.tpugraphs.evaluation import evaluate
    from tvm_gnn_cost.tpugraphs.measurement import measure
    from tvm_gnn_cost.tpugraphs.preparation import prepare
    from tvm_gnn_cost.tpugraphs.ranking import rank
    from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings, MeasureSettings
    from tvm_gnn_cost.tpugraphs.training import train

__all__ = ["EnsembleSettings", "MeasureSettings", "encode", "evaluate", "measure", "prepare", "rank", "train"]

_MODULES = {
    "EnsembleSettings": "settings",
    "MeasureSettings": "settings",
    "encode": "encoding",
    "evaluate": "evaluation",
    "measure": "measurement",
    "prepare": "preparation",
    "rank": "ranking",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
