"""Graph neural network cost models for tensor compilers.

A public name is loaded when it is first used, so importing this package imports neither TVM nor torch.

>>> from tvm_gnn_cost import InputError
>>> issubclass(InputError, ValueError)
True
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from tvm_gnn_cost.extras import missing_packages_named

if TYPE_CHECKING:
    from tvm_gnn_cost import tpugraphs, xla_cpu
    from tvm_gnn_cost.datasets.check_data import check_data
    from tvm_gnn_cost.datasets.store import GraphStore
    from tvm_gnn_cost.errors import InputError, WorkError, WrongTVMError
    from tvm_gnn_cost.graphs.extraction import extract_graphs
    from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
    from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import XGBBaseline
    from tvm_gnn_cost.scoring.cost_model import CostModel
    from tvm_gnn_cost.tuning.collect import collect
    from tvm_gnn_cost.tuning.evaluate import evaluate
    from tvm_gnn_cost.tuning.explain import explain
    from tvm_gnn_cost.tuning.extract import extract
    from tvm_gnn_cost.tuning.import_log import import_log
    from tvm_gnn_cost.tuning.train import train
    from tvm_gnn_cost.tuning.tune import tune

try:
    __version__ = version("tvm-gnn-cost")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "CostModel",
    "GNNCostModel",
    "GraphStore",
    "InputError",
    "WorkError",
    "WrongTVMError",
    "XGBBaseline",
    "check_data",
    "collect",
    "evaluate",
    "explain",
    "extract",
    "extract_graphs",
    "import_log",
    "tpugraphs",
    "train",
    "tune",
    "xla_cpu",
]

_HOMES = {
    "CostModel": "scoring.cost_model",
    "GraphStore": "datasets.store",
    "InputError": "errors",
    "WorkError": "errors",
    "WrongTVMError": "errors",
    "check_data": "datasets.check_data",
    "collect": "tuning.collect",
    "evaluate": "tuning.evaluate",
    "explain": "tuning.explain",
    "extract": "tuning.extract",
    "extract_graphs": "graphs.extraction",
    "import_log": "tuning.import_log",
    "train": "tuning.train",
    "tune": "tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES or name in ("tpugraphs", "xla_cpu"):
        with missing_packages_named():
            if name in _HOMES:
                return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            return import_module(f"{__name__}.{name}")
    # Each scheduler has its own; the installed TVM decides which one is meant.
    if name in ("GNNCostModel", "XGBBaseline"):
        return getattr(import_module(f"{__name__}.schedulers").package(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
