"""Several models of one kind, trained on different folds of the graphs; the best of them rank together.

TGraph's authors train the first 5 of 20 folds and keep the best 4 (Maksimov et al. 2024, section 2.4.3): a training
can fail by bad luck.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tvm_gnn_cost.models.configured_graph import EncoderConfig
from tvm_gnn_cost.tpugraphs.fit import FitSettings, fit, folds, trained_on
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph
from tvm_gnn_cost.tpugraphs.ranker import Ranker

_KEPT = "kept.json"


@dataclass(frozen=True)
class EnsembleSettings:
    """How many models are trained on what.

    Attributes:
        folds: Parts of the graphs; each validates once what the others train.
        trained: Folds of which a model is trained, the first ones.
        kept: Models that are kept, those with the lowest validation error.
    """

    folds: int = 20
    trained: int = 5
    kept: int = 4


def train_ensemble(
    collection: str,
    model: str,
    config: EncoderConfig,
    graphs: Sequence[PreparedGraph],
    settings: FitSettings,
    ensemble: EnsembleSettings,
    folder: Path,
    tell: Callable[[int, int, dict[str, float]], None] = lambda _fold, _epoch, _metrics: None,
) -> list[Ranker]:
    """Trains the models and writes the kept ones' names; a fold that is there stays.

    Args:
        collection: What the graphs are of; stands in the models' cards.
        model: One of ``ranker.MODELS``.
        config: Its settings.
        graphs: Those of the training and the validation split.
        settings: How each is trained.
        ensemble: How many.
        folder: Where the models go, for :func:`load_rankers`.
        tell: Called after each epoch with the fold, the epoch's number and its metrics.

    Raises:
        ValueError: the folder holds models that were trained otherwise or on something else; see also
            :func:`~tvm_gnn_cost.tpugraphs.fit.fit` and :func:`~tvm_gnn_cost.tpugraphs.fit.folds`.
    """
    found: list[tuple[float, str, Ranker]] = []
    parts = folds(graphs, ensemble.folds, settings.seed)
    for number, (train, validation) in enumerate(parts[: ensemble.trained]):
        path = folder / f"fold-{number}.safetensors"
        if path.exists():
            ranker = _finished(path, collection, model, config, settings, train, validation)
        else:
            scratch = folder / f"fold-{number}.fit"

            def told(epoch: int, metrics: dict[str, float], number: int = number) -> None:
                tell(number, epoch, metrics)

            ranker = fit(model, config, train, validation, settings, scratch, told)
            ranker.card["collection"] = collection
            ranker.save(path)
            shutil.rmtree(scratch)
        found.append((ranker.card["training"]["validation_error"], path.name, ranker))
    kept = sorted(found, key=lambda one: one[0])[: ensemble.kept]
    (folder / _KEPT).write_text(json.dumps([name for _, name, _ in kept]))
    return [ranker for _, _, ranker in kept]


def load_rankers(path: Path) -> list[Ranker]:
    """The models that a file or the folder of an ensemble holds.

    Raises:
        ValueError: it holds none.
    """
    if not path.is_dir():
        return [Ranker.load(path)]
    try:
        names = json.loads((path / _KEPT).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: no finished training is there; 'tvm-gnn-cost tpugraphs train' makes one") from error
    return [Ranker.load(path / name) for name in names]


def _finished(
    path: Path,
    collection: str,
    model: str,
    config: EncoderConfig,
    settings: FitSettings,
    train: Sequence[PreparedGraph],
    validation: Sequence[PreparedGraph],
) -> Ranker:
    ranker = Ranker.load(path)
    training = ranker.card["training"]
    source = trained_on(train, validation)
    there = {
        "another collection": ranker.card.get("collection") == collection,
        "another model": (ranker.model, ranker.config) == (model, config),
        "other settings": {name: training.get(name) for name in asdict(settings)} == asdict(settings),
        "other folds": training["train_graphs"] == source["train_graphs"],
        "other data": training.get("data") == source["data"],
    }
    differs = next((what for what, is_same in there.items() if not is_same), None)
    if differs is not None:
        raise ValueError(f"{path} was trained on or with {differs}; choose another folder, or delete this one")
    return ranker
