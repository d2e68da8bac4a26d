"""Ranks layout and tile configurations of XLA graphs in the TpuGraphs format (Phothilimthana et al. 2023); no TVM.

``encode`` writes npz files from XLA's protobufs, ``prepare`` turns npz files into prepared graphs, ``train`` learns
models from these, and ``rank`` and ``evaluate`` score npz files with the models. The public names are loaded when they
are first used, so that importing this package imports neither torch nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.tpugraphs.format.encoding import encode
    from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare
    from tvm_gnn_cost.tpugraphs.ranking.evaluation import evaluate
    from tvm_gnn_cost.tpugraphs.ranking.rank import rank
    from tvm_gnn_cost.tpugraphs.ranking.training import train
    from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings

__all__ = ["EnsembleSettings", "encode", "evaluate", "prepare", "rank", "train"]

_MODULES = {
    "EnsembleSettings": "settings",
    "encode": "format.encoding",
    "evaluate": "ranking.evaluation",
    "prepare": "preparation.prepare",
    "rank": "ranking.rank",
    "train": "ranking.training",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
