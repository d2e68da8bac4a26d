"""Trains the models of a collection: one ensemble per seed, by cross-validation on the prepared graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.progress import Advanced, EpochFinished, Progress, ignore
from tvm_gnn_cost.tpugraphs.format.collections import check_split, collection_kind
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import read_all_prepared
from tvm_gnn_cost.tpugraphs.ranking.ensemble import train_ensemble
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, Ranker
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings, recipe, with_options


@dataclass(frozen=True)
class TrainResult:
    """The result of :func:`train`.

    Attributes:
        graphs: Number of graphs that trained or validated.
        folders: The folder of each seed's models.
        rankers: The models that were kept of each seed, sorted by validation error.
    """

    graphs: int
    folders: dict[int, Path]
    rankers: dict[int, list[Ranker]]

    @property
    def validation_errors(self) -> dict[int, list[float]]:
        """The validation errors of the models that were kept of each seed."""
        return {
            seed: [ranker.training["validation_error"] for ranker in rankers] for seed, rankers in self.rankers.items()
        }

    def __str__(self) -> str:
        return "\n".join(
            f"{self.folders[seed]}: {len(errors)} models kept, validation errors "
            + ", ".join(f"{error:.3f}" for error in errors)
            for seed, errors in self.validation_errors.items()
        )


def train(
    prepared: str | os.PathLike[str],
    collection: str,
    folder: str | os.PathLike[str],
    *,
    model: str = "tgraph",
    epochs: int | None = None,
    configs_per_step: int | None = None,
    changes: Mapping[str, Any] | None = None,
    splits: Sequence[str] = ("train", "valid"),
    ensemble: EnsembleSettings | None = None,
    seeds: Sequence[int] = (0,),
    progress: Progress = ignore,
) -> TrainResult:
    """Trains models of one collection by cross-validation on its prepared graphs.

    The defaults are TGraph's recipe (Maksimov et al. 2024, arXiv 2405.16623). Called again with the same arguments, it
    resumes where it was interrupted.

    Args:
        prepared: The folder that :func:`~tvm_gnn_cost.tpugraphs.prepare` wrote.
        collection: One of the five collections.
        folder: Where the models go; with several seeds each has a subfolder.
        model: ``tgraph``, ``cheb-sage``, ``rank-classes``, ``gru`` or ``kernel-costs``, which needs graphs
            that were prepared with kernels.
        epochs: Passes over the graphs; by default the recipe's: 750 for xla, 1000 for nlp, 18 for tiles, and 100 for
            ``kernel-costs``.
        configs_per_step: Configurations that are compared at once; by default the recipe's: 128 for the random
            collections, 64 for the others.
        changes: Other settings of the model or its training by name, such as ``{"channels": 64}``: the fields of the
            model's settings and of :class:`~tvm_gnn_cost.tpugraphs.settings.RankerSettings`.
        splits: The graphs of these splits train and validate. To evaluate on ``valid``, train on ``train`` alone.
        ensemble: How many models are trained and kept.
        seeds: Seeds of weights, folds and order; each trains an ensemble.
        progress: Receives the number of epochs and each epoch's metrics.

    Raises:
        InputError: a name or a setting is wrong, there are fewer graphs than folds, or the folder holds models that
            were trained with other settings or data.
        FileNotFoundError: there is no prepared graph of the collection.
        WorkError: a training diverged in its first epoch.
    """
    prepared, folder = Path(prepared), Path(folder)
    check_folder(folder)
    kind = collection_kind(collection)
    default = recipe(collection, model)
    splits = list(dict.fromkeys(splits))
    for split in splits:
        check_split(split)
    seeds = list(dict.fromkeys(seeds))
    if not seeds:
        raise InputError("seeds is empty; expected at least one seed")
    graphs = [graph for split in splits for graph in read_all_prepared(prepared, collection, split)]
    if not graphs:
        raise FileNotFoundError(
            f"{prepared} holds no prepared graph of {collection}, {' or '.join(splits)}; "
            "'tvm-gnn-cost tpugraphs prepare' writes them"
        )
    most = default.epochs if epochs is None else epochs
    at_once = default.configs_per_step if configs_per_step is None else configs_per_step
    config, settings = with_options(
        changes or {},
        MODELS[model][1](kind=kind),
        replace(default, epochs=most, patience=most, configs_per_step=at_once),
        fixed=("kind", "seed", "epochs", "configs_per_step"),
    )
    ensemble = ensemble or EnsembleSettings()
    trainings = ensemble.trained * len(seeds)
    progress(Advanced(0, most * trainings))
    folders = {seed: folder if len(seeds) == 1 else folder / f"seed-{seed}" for seed in seeds}
    rankers: dict[int, list[Ranker]] = {}

    def on_epoch(fold: int, epoch: int, metrics: Mapping[str, float]) -> None:
        progress(EpochFinished((len(rankers) * ensemble.trained + fold) * most + epoch, metrics))

    for seed in seeds:
        seeded = replace(settings, seed=seed)
        rankers[seed] = train_ensemble(collection, model, config, graphs, seeded, ensemble, folders[seed], on_epoch)
    return TrainResult(len(graphs), folders, rankers)
