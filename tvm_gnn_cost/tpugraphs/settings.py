"""Settings and their defaults; this module imports neither torch nor JAX nor NumPy, so that ``--help`` is quick."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format.collections import collection_kind

#: The loss that each model is trained with by default.
MODEL_LOSS = {
    "tgraph": "hinge",
    "cheb-sage": "listmle",
    "rank-classes": "classes",
    "gru": "runtime",
    "kernel-costs": "hinge",
}

#: Epochs of TGraph's recipe by the collection's source; for tiles its 17.5 are rounded.
_EPOCHS = {"tile": 18, "xla": 750, "nlp": 1000}
#: Epochs of kernel-costs, chosen by cross-validation on measured layouts, see benchmarks/LOG.md.
_KERNEL_COSTS_EPOCHS = 100


def check_values(settings: Any, at_least: Mapping[str, float]) -> None:
    """Refuses values that a dataclass of settings cannot have.

    Args:
        settings: The dataclass; each of its fields that is a Literal must have one of that Literal's values.
        at_least: The lowest values of some of its fields.

    Raises:
        InputError: a field has another value.
    """
    for name, kind in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise InputError(f"{name} is {value}; expected one of: {', '.join(map(str, get_args(kind)))}")
    for name, bound in at_least.items():
        if not getattr(settings, name) >= bound:
            raise InputError(f"{name} is {getattr(settings, name)}; expected {bound} or more")


@dataclass(frozen=True)
class RankerSettings:
    """How a model is trained.

    Raises:
        InputError: a value is out of range.

    Attributes:
        loss: One of ``ranking.losses.LOSSES``.
        epochs: Maximum number of passes over the graphs.
        patience: Stop after this many epochs without a lower validation error and keep the best epoch; a training that
            is not stopped early keeps its last epoch.
        configs_per_step: Configurations of a graph in one step, drawn anew each time.
        validation_configs: A graph with more configurations than this validates with a fixed sample of this many.
        learning_rate: The highest learning rate.
        warm_up: Share of the steps in which the learning rate rises.
        weight_decay: AdamW's weight decay, of all weights except biases.
        gradient_clip: Norm to which a step's gradient is clipped.
        log_features: Standardise the logarithms of node features.
        seed: Seeds weights, orders and draws.
        accelerator: Lightning's: ``cpu``, ``gpu`` or ``auto``.
        devices: Lightning's number of devices.
    """

    loss: str = "hinge"
    epochs: int = 750
    patience: int = 750
    configs_per_step: int = 64
    validation_configs: int = 1000
    learning_rate: float = 1e-3
    warm_up: float = 0.05
    weight_decay: float = 1e-5
    gradient_clip: float = 1.0
    log_features: bool = False
    seed: int = 0
    accelerator: str = "cpu"
    devices: int | str = 1

    def __post_init__(self) -> None:
        check_values(
            self,
            {"epochs": 1, "patience": 1, "configs_per_step": 2, "validation_configs": 2, "weight_decay": 0, "seed": 0},
        )
        for name in ("learning_rate", "gradient_clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; expected more than 0")
        if not 0 <= self.warm_up < 1:
            raise InputError(f"warm_up is {self.warm_up}; expected a share below 1")


@dataclass(frozen=True)
class EnsembleSettings:
    """How many models are trained, and on what.

    Raises:
        InputError: a value is out of range.

    Attributes:
        folds: Folds of the cross-validation.
        trained: Number of folds, from the first, that a model is trained for.
        kept: Size of the ensemble: the models with the lowest validation errors are kept.
    """

    folds: int = 20
    trained: int = 5
    kept: int = 4

    def __post_init__(self) -> None:
        check_values(self, {"folds": 2, "trained": 1, "kept": 1})


def recipe(collection: str, model: str, seed: int = 0) -> RankerSettings:
    """How a model of a collection is trained by default (TGraph, Maksimov et al. 2024, section 2.4).

    Args:
        collection: One of the five collections.
        model: One of :data:`MODEL_LOSS`.
        seed: Seeds weights, orders and draws.

    Raises:
        InputError: there is no such collection or model.

    >>> settings = recipe("layout:xla:random", "tgraph")
    >>> settings.epochs, settings.configs_per_step, settings.loss
    (750, 128, 'hinge')
    """
    if model not in MODEL_LOSS:
        raise InputError(f"unknown model '{model}'; one of: {', '.join(MODEL_LOSS)}")
    kind = collection_kind(collection)
    source, _, search = collection.partition(":")[2].partition(":")
    epochs = _EPOCHS["tile" if kind == "tile" else source]
    at_once = 128 if search == "random" else 64
    if model == "kernel-costs":
        return RankerSettings(
            *(MODEL_LOSS[model], _KERNEL_COSTS_EPOCHS, _KERNEL_COSTS_EPOCHS, at_once), learning_rate=3e-3, seed=seed
        )
    return RankerSettings(MODEL_LOSS[model], epochs=epochs, patience=epochs, configs_per_step=at_once, seed=seed)


def with_options(changes: Mapping[str, Any], *settings: Any, fixed: Collection[str] = ()) -> tuple[Any, ...]:
    """Replaces fields of one or more dataclasses of settings.

    Args:
        changes: New values by field name; each may be text, as from the command line.
        settings: The dataclasses; no two of them have a field of the same name.
        fixed: Fields that must not be changed here.

    Raises:
        InputError: there is no such field, or the value is not of its type or out of range.

    >>> with_options({"folds": "6", "kept": 1}, EnsembleSettings())
    (EnsembleSettings(folds=6, trained=5, kept=1),)
    """
    replaced: list[dict[str, Any]] = [{} for _ in settings]
    known = [[field.name for field in fields(part) if field.name not in fixed] for part in settings]
    for name, value in changes.items():
        owner = next((i for i, names in enumerate(known) if name in names), None)
        if value is None or owner is None:
            listed = ", ".join(name for names in known for name in names)
            given = name if value is None else f"{name}={value}"
            raise InputError(f"setting {given}: expected NAME=VALUE with one of the names: {listed}")
        replaced[owner][name] = _parse(name, get_type_hints(type(settings[owner]))[name], value)
    return tuple(replace(part, **new) for part, new in zip(settings, replaced, strict=True))


def _parse(name: str, kind: Any, value: Any) -> Any:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if get_origin(kind) is UnionType:
        kind = int if text.isdecimal() else str
    if get_origin(kind) is Literal or kind is bool:
        choices = {"true": True, "false": False} if kind is bool else {str(choice): choice for choice in get_args(kind)}
        if text not in choices:
            raise InputError(f"setting {name}={text}: expected one of: {', '.join(choices)}")
        return choices[text]
    try:
        return kind(text)
    except ValueError:
        expected = {int: "an integer", float: "a number"}[kind]
        raise InputError(f"setting {name}={text}: expected {expected}") from None
