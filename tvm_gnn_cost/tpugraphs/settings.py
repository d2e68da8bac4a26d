"""Settings and their defaults; this module imports neither torch nor JAX nor NumPy, so that ``--help`` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
#: Epochs of the model that is not the paper's; chosen on measured layouts, see benchmarks/LOG.md.
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
        loss: One of ``losses.LOSSES``.
        epochs: Passes over the graphs, at most.
        patience: Stop after this many epochs without a lower validation error and keep the best epoch; a training that
            is not stopped keeps its last one.
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
        folds: Parts that the graphs are divided into; each part validates a model that is trained on the others.
        trained: Folds that a model is trained for: the first ones.
        kept: Models that are kept: those with the lowest validation errors.
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
