"""The cost models that Python's functions and the command line take: objects, paths and short names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.compare import Model, constant, gnn, node_count, random, trained_xgb
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.models.tvm_baselines import OfflineXGB
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.arguments import TVM_MODELS

#: The throughput that the trivial baselines predict.
_CONSTANT = 0.5


@dataclass(frozen=True)
class StoredModel:
    """A model that ranks stored programs.

    Attributes:
        predict: The model.
        detail: Detail of the graphs that it reads; any will do for a baseline.
        with_features: Whether it reads TVM's per-store features.
        networks: The networks whose tasks it was trained on, as far as its card says.
        check_scheduler: Raises InputError if it cannot judge programs of a scheduler.
    """

    predict: Model
    detail: Detail = "statements"
    with_features: bool = False
    networks: tuple[str, ...] = ()
    check_scheduler: Callable[[str], None] = lambda _scheduler: None


def resolved(model: Any) -> Any:
    """The object that is meant: paths and ``gnn`` are loaded, a ``GNNCostModel`` gives its ``CostModel``.

    Names of TVM's own models stay names, and other objects stay as they are.

    Raises:
        InputError: there is no such file, or it is damaged or not a model.
    """
    inner = getattr(getattr(model, "search", None), "model", None)
    if isinstance(inner, CostModel):
        return inner
    if not isinstance(model, str | os.PathLike) or model in TVM_MODELS:
        return model
    return CostModel.load(model)


def name_of_model(model: Any) -> str:
    """What a model is called in results: its name or path as given, the path it was loaded from, or its class."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    model = resolved(model)
    source = model.checkpoint.source if isinstance(model, CostModel) else None
    return type(model).__name__ if source is None else str(source)


def named_models(models: Any) -> dict[str, Any]:
    """Name -> model, from one model, several, or a mapping.

    Raises:
        InputError: there is no model, or two have the same name.
    """
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        several = [*models] if isinstance(models, Sequence) and not isinstance(models, str) else [models]
        named = {name_of_model(model): model for model in several}
        if len(named) < len(several):
            raise InputError("models: two have the same name; give them as a dict of name -> model")
    if not named:
        raise InputError("models must hold at least one model")
    return named


def stored_model(model: Any) -> StoredModel:
    """A model that ranks stored programs.

    Args:
        model: See :func:`~tvm_gnn_cost.tuning.evaluate.evaluate`.

    Raises:
        InputError: it cannot rank stored programs, or the file is missing or damaged.
        WrongTVMError: TVM's XGBoost model needs a TVM, and there is none.
    """
    if isinstance(model, str | os.PathLike):
        trivial = {"random": random(0), "constant": constant(_CONSTANT), "node-count": node_count(_CONSTANT)}
        if model in trivial:
            return StoredModel(trivial[os.fspath(model)])
        if model in TVM_MODELS:
            raise InputError(f"the model '{model}' must be trained first: train(store, output, model='xgb') makes one")
        model = package().XGBBaseline.load(model) if _is_xgboost(Path(model)) else CostModel.load(model)
    model = resolved(model)
    if isinstance(model, CostModel):
        networks = tuple(model.card.get("networks", ()))
        return StoredModel(gnn(model), model.detail, False, networks, model.check_scheduler)
    if isinstance(model, OfflineXGB):
        return StoredModel(trained_xgb(model), with_features=True)
    kind = type(model).__name__
    if kind == "RandomModel":
        return StoredModel(random(0))
    if kind == "XGBModel":
        return StoredModel(trained_xgb(package().XGBBaseline(model=model)), with_features=True)
    raise InputError(
        f"an object of type {kind} cannot rank stored programs; give a CostModel, GNNCostModel, XGBBaseline or XGBModel"
    )


def _is_xgboost(path: Path) -> bool:
    """Whether a file is XGBoost's, which begins with a brace; that of safetensors is the ninth byte."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.read(9)
    return first[:1] == b"{" and first[8:] != b"{"
