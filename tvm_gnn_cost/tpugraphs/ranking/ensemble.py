"""Several models of one kind, trained on different folds of the graphs; the best of them rank together.

TGraph's authors train models for the first 5 of 20 folds and keep the best 4 (Maksimov et al. 2024, section 2.4.3),
because some trainings fail by chance.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, write_text
from tvm_gnn_cost.tpugraphs.models.configured_graph import ModelConfig
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph
from tvm_gnn_cost.tpugraphs.ranking.fit import fit, trained_on
from tvm_gnn_cost.tpugraphs.ranking.ranker import Ranker
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings, RankerSettings

_KEPT = "kept.json"


def train_ensemble(
    collection: str,
    model: str,
    config: ModelConfig,
    graphs: Sequence[PreparedGraph],
    settings: RankerSettings,
    ensemble: EnsembleSettings,
    folder: Path,
    on_epoch: Callable[[int, int, dict[str, float]], None] = lambda _fold, _epoch, _metrics: None,
) -> list[Ranker]:
    """Trains the models of an ensemble and records which are kept; finished folds are not trained again.

    Args:
        collection: The graphs' collection, for the models' cards.
        model: One of ``ranker.MODELS``.
        config: The model's settings.
        graphs: The graphs to train and to validate on.
        settings: How each model is trained.
        ensemble: How many models are trained and kept.
        folder: Where the models go, for :func:`load_rankers`.
        on_epoch: Called after each epoch with the fold's number, from 0, the epoch's, from 1, and its metrics.

    Returns:
        The models that are kept, sorted by validation error.

    Raises:
        InputError: the folder holds models that were trained with other settings or on other graphs; see also
            :func:`~tvm_gnn_cost.tpugraphs.ranking.fit.fit` and :func:`folds`.
        WorkError: see :func:`~tvm_gnn_cost.tpugraphs.ranking.fit.fit`.
    """
    trained: list[tuple[float, str, Ranker]] = []
    parts = folds(graphs, ensemble.folds, settings.seed)
    for number, (train, validation) in enumerate(parts[: ensemble.trained]):
        path, scratch = folder / f"fold-{number}.safetensors", folder / f"fold-{number}.fit"
        if path.exists():
            ranker = _load_finished(path, collection, model, config, settings, train, validation)
        else:

            def on_fold_epoch(epoch: int, metrics: dict[str, float], number: int = number) -> None:
                on_epoch(number, epoch, metrics)

            ranker = fit(model, config, train, validation, settings, scratch, on_fold_epoch)
            ranker.card["collection"] = collection
            ranker.save(path)
        # Also removes what a killed run left.
        shutil.rmtree(scratch, ignore_errors=True)
        trained.append((ranker.training["validation_error"], path.name, ranker))
    kept = sorted(trained, key=lambda entry: entry[0])[: ensemble.kept]
    write_text(folder / _KEPT, json.dumps([name for _, name, _ in kept]))
    return [ranker for _, _, ranker in kept]


def folds(
    graphs: Sequence[PreparedGraph], count: int, seed: int
) -> list[tuple[list[PreparedGraph], list[PreparedGraph]]]:
    """Cross-validation on graphs: for each fold the graphs that train and those that validate (section 2.4.3).

    Raises:
        InputError: there are fewer graphs than folds, or fewer than two folds.
    """
    if not 2 <= count <= len(graphs):
        raise InputError(f"{count} folds of {len(graphs)} graphs; choose 2 or more, and no more than there are graphs")
    order = np.random.default_rng(seed).permutation(len(graphs))
    parts = [set(part.tolist()) for part in np.array_split(order, count)]
    return [
        ([g for i, g in enumerate(graphs) if i not in part], [g for i, g in enumerate(graphs) if i in part])
        for part in parts
    ]


def load_rankers(path: Path) -> list[Ranker]:
    """The models in a file, or those that were kept in an ensemble's folder.

    Raises:
        InputError: there are none.
    """
    if not path.is_dir():
        return [Ranker.load(path)]
    nothing = f"{path} holds no finished training; 'tvm-gnn-cost tpugraphs train' writes one"
    try:
        names = parse_json((path / _KEPT).read_text())
    except (OSError, ValueError) as error:
        raise InputError(nothing) from error
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise InputError(nothing)
    return [Ranker.load(path / name) for name in names]


def _load_finished(
    path: Path,
    collection: str,
    model: str,
    config: ModelConfig,
    settings: RankerSettings,
    train: Sequence[PreparedGraph],
    validation: Sequence[PreparedGraph],
) -> Ranker:
    """The model of a finished fold.

    Raises:
        InputError: it was trained with other settings or on other graphs.
    """
    ranker = Ranker.load(path)
    source = trained_on(train, validation)
    training = ranker.training
    agrees = {
        "another collection": ranker.collection == collection,
        "another model": (ranker.model, ranker.config) == (model, config),
        "other settings": {name: training.get(name) for name in asdict(settings)} == asdict(settings),
        "other folds": training.get("train_graphs") == source["train_graphs"],
        "other data": training.get("data") == source["data"],
    }
    differs = next((what for what, is_same in agrees.items() if not is_same), None)
    if differs is not None:
        raise InputError(f"{path} was trained on or with {differs}; choose another folder, or delete this one")
    return ranker
