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
from tvm_gnn_cost.tpugraphs.fit import FitSettings, fit, folds
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
    model: str,
    config: EncoderConfig,
    graphs: Sequence[PreparedGraph],
    settings: FitSettings,
    ensemble: EnsembleSettings,
    folder: Path,
    tell: Callable[[int, int, dict[str, float]], None] = lambda _fold, _epoch, _metrics: None,
) -> list[Ranker]:
    """Trains the models and writes the kept ones' names; a fold that is there, of the same settings, stays.

    Args:
        model: One of ``ranker.MODELS``.
        config: Its settings.
        graphs: Those of the training and the validation split.
        settings: How each is trained.
        ensemble: How many.
        folder: Where the models go, for :func:`load_rankers`.
        tell: Called after each epoch with the fold, the epoch's number and its metrics.

    Raises:
        ValueError: see :func:`~tvm_gnn_cost.tpugraphs.fit.fit` and :func:`~tvm_gnn_cost.tpugraphs.fit.folds`.
    """
    found: list[tuple[float, str, Ranker]] = []
    parts = folds(graphs, ensemble.folds, settings.seed)
    for number, (train, validation) in enumerate(parts[: ensemble.trained]):
        path = folder / f"fold-{number}.safetensors"
        ranker = _finished(path, model, config, settings, validation)
        if ranker is None:
            scratch = folder / f"fold-{number}.fit"

            def told(epoch: int, metrics: dict[str, float], number: int = number) -> None:
                tell(number, epoch, metrics)

            ranker = fit(model, config, train, validation, settings, scratch, told)
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
    path: Path, model: str, config: EncoderConfig, settings: FitSettings, validation: Sequence[PreparedGraph]
) -> Ranker | None:
    if not path.exists():
        return None
    ranker = Ranker.load(path)
    training = ranker.card["training"]
    known = {name: training[name] for name in asdict(settings)}
    names = [graph.name for graph in validation]
    same = (ranker.model, ranker.config, known) == (model, config, asdict(settings))
    return ranker if same and set(training["validation_graphs"]) <= set(names) else None
