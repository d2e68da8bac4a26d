"""Trains one model on prepared graphs.

The defaults are TGraph's recipe (Maksimov et al. 2024, section 2.4): each step is one graph with some of its
configurations; AdamW with a linear warm-up and one cosine decay.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.scoring.tensor_file import with_prefix
from tvm_gnn_cost.tpugraphs.format import COUNTED_TILES
from tvm_gnn_cost.tpugraphs.models.configured_graph import (
    ConfigurationModel,
    ConfiguredInput,
    EncoderConfig,
    ModelConfig,
    OpcodeTable,
    OpcodeVectors,
    RankingModel,
)
from tvm_gnn_cost.tpugraphs.models.rank_classes import RankClasses
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph
from tvm_gnn_cost.tpugraphs.ranking.losses import LOSSES
from tvm_gnn_cost.tpugraphs.ranking.metrics import slowdown
from tvm_gnn_cost.tpugraphs.ranking.opcode_vectors import opcode_vectors
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, GraphInputs, Ranker, check_kernels, score
from tvm_gnn_cost.tpugraphs.settings import RankerSettings
from tvm_gnn_cost.training.loop import EpochSteps, OnEpoch, run
from tvm_gnn_cost.training.scale import Scale

#: The input of a step and the float32[c] runtimes of its configurations.
TrainingStep = tuple[ConfiguredInput, Tensor]


class GraphSteps(EpochSteps):
    """The training steps of an epoch: each graph once, in a new order, with newly drawn configurations.

    Args:
        inputs: The graphs.
        settings: How the model is trained.
        hidden_share: Share of nodes whose opcodes each step hides.
    """

    def __init__(self, inputs: Sequence[GraphInputs], settings: RankerSettings, hidden_share: float = 0.0) -> None:
        self.inputs, self.settings, self.hidden_share = inputs, settings, hidden_share

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[TrainingStep]:
        rng = np.random.default_rng([self.settings.seed, self.epoch])
        hiding = np.random.default_rng([self.settings.seed, self.epoch, 1])
        for number in rng.permutation(len(self.inputs)).tolist():
            graph = self.inputs[number]
            runtime = _runtime(graph.graph)
            rows = rng.permutation(len(runtime))[: self.settings.configs_per_step]
            hidden = hiding.random(len(graph.opcode)) < self.hidden_share
            yield graph.with_configs(rows, hidden), torch.from_numpy(runtime[rows].astype(np.float32))


class _ValidationGraphs(IterableDataset[GraphInputs]):
    def __init__(self, inputs: Sequence[GraphInputs]) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[GraphInputs]:
        return iter(self.inputs)


class RankerModule(lightning.LightningModule):
    """A model with its loss and its optimizer."""

    def __init__(self, net: RankingModel, settings: RankerSettings) -> None:
        super().__init__()
        self.net, self.settings = net, settings

    def training_step(self, step: TrainingStep, _index: int) -> Tensor:
        """The loss of one step."""
        graph, runtime = step
        predicted = self.net.log_probabilities(graph) if isinstance(self.net, RankClasses) else self.net(graph)
        return LOSSES[self.settings.loss](predicted, runtime)

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
            error = slowdown(scores, runtime[rows], COUNTED_TILES)
        self.log("validation_error", error, batch_size=1)

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rate rises linearly and then falls along one cosine."""
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
        """Moves a training step; a validation graph stays, because :func:`~.ranker.score` moves its inputs."""
        if isinstance(batch, GraphInputs):
            return batch
        graph, runtime = batch
        return graph.to(device), runtime.to(device)


def fit(
    model: str,
    config: ModelConfig,
    train: Sequence[PreparedGraph],
    validation: Sequence[PreparedGraph],
    settings: RankerSettings,
    folder: Path,
    on_epoch: OnEpoch = lambda _epoch, _metrics: None,
) -> Ranker:
    """Trains one model.

    An interrupted training resumes from ``folder`` if it is called again with the same arguments.

    Args:
        model: One of ``ranker.MODELS``.
        config: The model's settings.
        train: Graphs to learn from; those with fewer than two different runtimes are ignored.
        validation: Other graphs; they measure how good the model is and whether the training is stopped early.
        settings: How the model is trained.
        folder: Where Lightning's checkpoints go.
        on_epoch: Called after each epoch with its number, from 1, and its metrics.

    Raises:
        InputError: there is nothing to train or to validate on, only some of the graphs were pruned, the model needs
            kernels and a graph has none, or there is no such model or loss.
        WorkError: the training diverged in its first epoch.
    """
    if model not in MODELS:
        raise InputError(f"unknown model '{model}'; one of: {', '.join(MODELS)}")
    if settings.loss not in LOSSES:
        raise InputError(f"unknown loss '{settings.loss}'; one of: {', '.join(LOSSES)}")
    if (settings.loss == "classes") != (MODELS[model][0] is RankClasses):
        raise InputError(
            f"the loss '{settings.loss}' does not fit the model '{model}': classes is only for rank-classes"
        )
    usable, valid = _usable(train), _usable(validation)
    if not usable or not valid:
        raise InputError("training needs a graph to train on and another one to validate on, each with two runtimes")
    check_kernels(model, (*usable, *valid))
    if len({graph.is_pruned for graph in (*usable, *valid)}) > 1:
        raise InputError("some of the graphs were pruned and some were not; prepare all of them in the same way")
    scale = Scale.fit((graph.numbers for graph in usable), is_log=settings.log_features)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        net = MODELS[model][0](config)
    hidden_share = 0.0
    if isinstance(net, ConfigurationModel) and isinstance(config, EncoderConfig):
        hidden_share = _show_opcodes(net.encoder.opcodes, config, usable, settings.seed)
    source = trained_on(train, validation)
    fingerprint = json.dumps([model, asdict(config), asdict(settings), source])
    steps = GraphSteps([GraphInputs(graph, scale) for graph in usable], settings, hidden_share)
    whole = _ValidationGraphs([GraphInputs(graph, scale) for graph in valid])
    module = RankerModule(net, settings)
    fitted = run(module, steps, whole, settings, fingerprint, folder, on_epoch, settings.gradient_clip)
    card = {"training": {**asdict(settings), **source, "validation_error": fitted.validation_error}}
    weights = with_prefix(fitted.state, "net.")
    return Ranker(model, config, scale, weights, settings.configs_per_step, usable[0].is_pruned, card)


def _show_opcodes(
    opcodes: OpcodeTable | OpcodeVectors, config: EncoderConfig, graphs: Sequence[PreparedGraph], seed: int
) -> float:
    """Prepares a model for the opcodes of its training graphs; returns the share of opcodes that each step hides."""
    if isinstance(opcodes, OpcodeVectors):
        opcodes.vectors[:] = torch.from_numpy(opcode_vectors(graphs, config.opcode_channels, seed))
        return 0.0
    known = np.unique(np.concatenate([graph.opcode for graph in graphs]))
    opcodes.is_known[:] = False
    opcodes.is_known[known[known < len(opcodes.is_known)]] = True
    return config.unknown_opcodes


def trained_on(train: Sequence[PreparedGraph], validation: Sequence[PreparedGraph]) -> dict[str, Any]:
    """The part of a model's card about the graphs of :func:`fit`: their names, and a digest of their content."""
    usable, valid = _usable(train), _usable(validation)
    digest = hashlib.sha256()
    for graph in (*usable, *valid):
        for array in (graph.opcode, graph.edge_index, graph.config_rows, graph.runtime):
            digest.update(np.ascontiguousarray(array).tobytes())
    names = [[graph.name for graph in graphs] for graphs in (usable, valid)]
    return {"train_graphs": names[0], "validation_graphs": names[1], "data": digest.hexdigest()[:16]}


def _runtime(graph: PreparedGraph) -> npt.NDArray[np.float64]:
    assert graph.runtime is not None, "usable graphs have runtimes"
    return graph.runtime


def _usable(graphs: Sequence[PreparedGraph]) -> list[PreparedGraph]:
    """The graphs in which two configurations can be compared."""
    return [graph for graph in graphs if graph.runtime is not None and len(np.unique(graph.runtime)) > 1]
