"""Trains a model of configurations on prepared graphs.

The defaults are TGraph's recipe (Maksimov et al. 2024, section 2.4): one graph a step with some of its configurations,
AdamW, a linear warm-up and one cosine.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.models.configured_graph import (
    ConfigurationModel,
    ConfiguredInput,
    EncoderConfig,
    OpcodeVectors,
)
from tvm_gnn_cost.models.rank_classes import RankClasses, class_loss
from tvm_gnn_cost.tpugraphs.metrics import slowdown
from tvm_gnn_cost.tpugraphs.opcode_vectors import opcode_vectors
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph
from tvm_gnn_cost.tpugraphs.ranker import MODELS, GraphInputs, Ranker, score
from tvm_gnn_cost.tpugraphs.scale import Scale
from tvm_gnn_cost.training.loop import EpochSteps, Tell, run
from tvm_gnn_cost.training.losses import list_mle
from tvm_gnn_cost.training.tensor_file import part


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained.

    Attributes:
        loss: One of :data:`LOSSES`.
        epochs: Passes over the graphs.
        patience: Stop after this many epochs without a lower validation error, and keep the best epoch; a training
            that is not stopped keeps its last one.
        configs_per_step: Configurations of a graph in one step, drawn anew each time.
        validation_configs: Of a graph with more, so many, always the same ones, validate.
        learning_rate: The peak.
        warm_up: Share of the steps in which it rises.
        weight_decay: AdamW's, of all weights but biases.
        gradient_clip: No step's gradient is longer.
        log_features: Standardise the logarithms of node features.
        seed: Of weights, order and draws.
        accelerator: Lightning's.
        devices: Lightning's.
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
        least = {"epochs": 1, "patience": 1, "configs_per_step": 2, "validation_configs": 2, "weight_decay": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {bound} or more")
        for name in ("learning_rate", "gradient_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up is {self.warm_up}; expected a share below 1")


#: Epochs of each kind of collection in TGraph's recipe; 17.5 of the tiles.
_EPOCHS = {"tile": 18, "xla": 750, "nlp": 1000}


def recipe(collection: str, model: str, seed: int) -> FitSettings:
    """How a model of a collection is trained unless told otherwise (Maksimov et al. 2024, section 2.4)."""
    kind, _, rest = collection.partition(":")
    source, _, search = rest.partition(":")
    epochs = _EPOCHS["tile" if kind == "tile" else source]
    at_once = 128 if search == "random" else 64
    return FitSettings(loss=MODEL_LOSS[model], epochs=epochs, patience=epochs, configs_per_step=at_once, seed=seed)


def hinge(scores: Tensor, runtime: Tensor) -> Tensor:
    """Pairwise hinge loss, margin 1, the mean over the pairs of which one is faster (as TGraph's code has it)."""
    return hinge_sum(scores, runtime) / (runtime[:, None] < runtime[None]).sum().clamp(min=1)


def hinge_sum(scores: Tensor, runtime: Tensor) -> Tensor:
    """The sum over the pairs (equation 8): thousands of them, so that every step is clipped to the same length."""
    faster = runtime[:, None] < runtime[None]
    loss: Tensor = (torch.relu(1 - (scores[:, None] - scores[None])) * faster).sum()
    return loss


def log_runtime(scores: Tensor, runtime: Tensor) -> Tensor:
    """Mean squared error of minus the logarithm of the runtime, up to a constant of the graph."""
    target = -runtime.log()
    loss: Tensor = ((scores - scores.mean()) - (target - target.mean())).square().mean()
    return loss


def _list_mle(scores: Tensor, runtime: Tensor) -> Tensor:
    return list_mle(scores, -runtime, torch.zeros(len(runtime), dtype=torch.long, device=runtime.device))


#: Of float32[c] scores, higher is faster, and float32[c] runtimes; ``classes`` is of a class matrix instead.
LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hinge": hinge,
    "hinge-sum": hinge_sum,
    "listmle": _list_mle,
    "runtime": log_runtime,
    "classes": class_loss,
}
#: What each model is trained with unless told otherwise.
MODEL_LOSS = {"tgraph": "hinge", "cheb-sage": "listmle", "rank-classes": "classes", "gru": "runtime"}

Step = tuple[ConfiguredInput, Tensor]


class GraphSteps(EpochSteps):
    """A step a graph, in another order each epoch: the graph with some configurations, and float32[c] runtimes."""

    def __init__(self, inputs: Sequence[GraphInputs], settings: FitSettings) -> None:
        self.inputs, self.settings = inputs, settings

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[Step]:
        rng = np.random.default_rng([self.settings.seed, self.epoch])
        for number in rng.permutation(len(self.inputs)).tolist():
            one = self.inputs[number]
            runtime = _runtime(one.graph)
            rows = rng.permutation(len(runtime))[: self.settings.configs_per_step]
            yield one.of(rows), torch.from_numpy(runtime[rows].astype(np.float32))


class _Whole(IterableDataset[GraphInputs]):
    """The graphs as they are, for validation."""

    def __init__(self, inputs: Sequence[GraphInputs]) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[GraphInputs]:
        return iter(self.inputs)


class FitModule(lightning.LightningModule):
    """The model with its loss and its optimizer."""

    def __init__(self, net: ConfigurationModel, settings: FitSettings) -> None:
        super().__init__()
        self.net, self.settings = net, settings

    def training_step(self, step: Step, _index: int) -> Tensor:
        """The loss of one step."""
        graph, runtime = step
        predicted = self.net.log_probabilities(graph) if isinstance(self.net, RankClasses) else self.net(graph)
        loss = LOSSES[self.settings.loss](predicted, runtime)
        self.log("train_loss", loss, batch_size=1, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, inputs: GraphInputs, _index: int) -> None:
        """Logs the error of one graph: half of 1 - tau for layouts, the slowdown at 5 for tiles."""
        runtime = _runtime(inputs.graph)
        rows = np.random.default_rng(0).permutation(len(runtime))[: self.settings.validation_configs]
        scores = score(self.net, inputs, rows, self.settings.configs_per_step, permutations=1)
        if not np.isfinite(scores).all():
            error = math.inf
        elif inputs.graph.kind == "layout":
            error = (1 - kendall_tau(scores, -runtime[rows])) / 2
        else:
            error = slowdown(scores, runtime[rows], 5)
        self.log("validation_error", error, batch_size=1)

    def configure_optimizers(self) -> Any:
        """AdamW; the rate rises linearly and falls with one cosine."""
        biases = [p for p in self.parameters() if p.ndim < 2]
        weights = [p for p in self.parameters() if p.ndim >= 2]
        groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, self.settings.learning_rate, weight_decay=self.settings.weight_decay)
        steps = max(1, int(self.trainer.estimated_stepping_batches))
        rise = max(1, round(self.settings.warm_up * steps))

        def rate(step: int) -> float:
            if step < rise:
                return (step + 1) / rise
            return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, _dataloader_idx: int) -> Any:
        """Moves a training step; a validation graph moves its configurations itself."""
        if isinstance(batch, GraphInputs):
            return batch
        graph, runtime = batch
        return graph.to(device), runtime.to(device)


def fit(
    model: str,
    config: EncoderConfig,
    train: Sequence[PreparedGraph],
    validation: Sequence[PreparedGraph],
    settings: FitSettings,
    folder: Path,
    tell: Tell = lambda _epoch, _metrics: None,
) -> Ranker:
    """Trains one model.

    An interrupted training goes on from ``folder`` if it is called again with the same arguments.

    Args:
        model: One of ``ranker.MODELS``.
        config: Its settings.
        train: Graphs to learn from; those with fewer than two different runtimes are left out.
        validation: Other graphs, which decide whether the training is stopped and tell how good it is.
        settings: How.
        folder: For Lightning's checkpoints.
        tell: Called after each epoch with its number and metrics.

    Raises:
        ValueError: there is nothing to train or validate on, the graphs were not prepared alike, or there is no such
            loss or model.
        RuntimeError: the training diverged in its first epoch.
    """
    if settings.loss not in LOSSES or model not in MODELS:
        what, wrong = ("loss", settings.loss) if model in MODELS else ("model", model)
        raise ValueError(f"unknown {what} '{wrong}'; one of: {', '.join(LOSSES if model in MODELS else MODELS)}")
    if (settings.loss == "classes") != (MODELS[model][0] is RankClasses):
        raise ValueError(
            f"the loss '{settings.loss}' is none for the model '{model}': classes is for rank-classes alone"
        )
    usable, valid = _usable(train), _usable(validation)
    if not usable or not valid:
        raise ValueError("training needs a graph to train on and another one to validate on, each with two runtimes")
    if len({graph.is_pruned for graph in (*usable, *valid)}) > 1:
        raise ValueError("some of the graphs were pruned and some were not; prepare them alike")
    scale = Scale.fit((graph.numbers for graph in usable), is_log=settings.log_features)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        net: ConfigurationModel = MODELS[model][0](config)
    opcodes = net.encoder.opcodes
    if isinstance(opcodes, OpcodeVectors):
        opcodes.vectors[:] = torch.from_numpy(opcode_vectors(usable, config.opcode_channels, settings.seed))
    else:
        known = np.unique(np.concatenate([graph.opcode for graph in usable]))
        opcodes.is_known[:] = False
        opcodes.is_known[known[known < len(opcodes.is_known)]] = True
    source = trained_on(train, validation)
    fingerprint = json.dumps([model, asdict(config), asdict(settings), source])
    steps = GraphSteps([GraphInputs(graph, scale) for graph in usable], settings)
    whole = _Whole([GraphInputs(graph, scale) for graph in valid])
    found = run(FitModule(net, settings), steps, whole, settings, fingerprint, folder, tell, settings.gradient_clip)
    card = {"training": {**asdict(settings), **source, "validation_error": found.validation_error}}
    weights = part(found.state, "net.")
    return Ranker(model, config, scale, weights, settings.configs_per_step, usable[0].is_pruned, card)


def trained_on(train: Sequence[PreparedGraph], validation: Sequence[PreparedGraph]) -> dict[str, Any]:
    """What a model's card says of the graphs of :func:`fit`: their names, and a digest of what is learned from them."""
    usable, valid = _usable(train), _usable(validation)
    digest = hashlib.sha256()
    for graph in (*usable, *valid):
        for part_of_it in (graph.opcode, graph.edge_index, graph.config_rows, graph.runtime):
            digest.update(np.ascontiguousarray(part_of_it).tobytes())
    names = [[graph.name for graph in graphs] for graphs in (usable, valid)]
    return {"train_graphs": names[0], "validation_graphs": names[1], "data": digest.hexdigest()[:16]}


def folds(
    graphs: Sequence[PreparedGraph], count: int, seed: int
) -> list[tuple[list[PreparedGraph], list[PreparedGraph]]]:
    """Cross-validation on graphs: for each fold the graphs that train and those that validate (section 2.4.3).

    Raises:
        ValueError: there are fewer graphs than folds, or fewer than two folds.
    """
    if not 2 <= count <= len(graphs):
        raise ValueError(f"{count} folds of {len(graphs)} graphs; choose 2 or more, and no more than there are graphs")
    order = np.random.default_rng(seed).permutation(len(graphs))
    parts = [set(some.tolist()) for some in np.array_split(order, count)]
    return [
        ([g for i, g in enumerate(graphs) if i not in chosen], [g for i, g in enumerate(graphs) if i in chosen])
        for chosen in parts
    ]


def _runtime(graph: PreparedGraph) -> npt.NDArray[np.float64]:
    assert graph.runtime is not None, "usable graphs have runtimes"
    return graph.runtime


def _usable(graphs: Sequence[PreparedGraph]) -> list[PreparedGraph]:
    """Those of which two configurations can be compared."""
    return [graph for graph in graphs if graph.runtime is not None and len(np.unique(graph.runtime)) > 1]
