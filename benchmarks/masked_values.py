"""Pre-training without labels: a model learns to tell hidden node values from the nodes around them.

After attribute masking (Hu et al. 2020, arXiv:1905.12265): the values of some nodes are hidden, and a linear layer on
the channels of these nodes predicts them. What is kept is the model, whose encoder and convolutions learned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.training.checkpoint import Checkpoint, Scorer
from tvm_gnn_cost.training.fit import FitSettings, TaskBatches
from tvm_gnn_cost.training.loop import EpochSteps, run
from tvm_gnn_cost.training.tensor_file import with_prefix

#: Share of the nodes whose values are hidden.
_HIDDEN = 0.3


class Graphs(EpochSteps):
    """The graphs of an epoch, in the batches of a training on programs.

    Args:
        batches: The batches of programs.
    """

    def __init__(self, batches: TaskBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[GraphBatch]:
        self.batches.epoch = self.epoch
        for graphs, *_ in self.batches:
            yield graphs


class HiddenValues(lightning.LightningModule):
    """A model with the layer that predicts hidden values.

    Args:
        checkpoint: The model.
        settings: Settings of the training.
    """

    def __init__(self, checkpoint: Checkpoint, settings: FitSettings) -> None:
        super().__init__()
        self.model, self.settings = Scorer(checkpoint).model, settings
        self.predict_values = nn.Linear(checkpoint.config.hidden, len(checkpoint.value_names))

    def _error(self, batch: GraphBatch) -> Tensor:
        hidden = torch.rand(len(batch.node_type), device=batch.values.device) < _HIDDEN
        # A value that is the mean of all nodes says nothing.
        values = torch.where(hidden[:, None], self.model.mean, batch.values)
        channels = self.model.node_channels(replace(batch, values=values))
        expected = (batch.values - self.model.mean) / self.model.std
        error: Tensor = (self.predict_values(channels[hidden]) - expected[hidden]).square().mean()
        return error

    def training_step(self, batch: GraphBatch, _index: int) -> Tensor:
        """The mean squared error of the hidden values, in deviations."""
        return self._error(batch)

    def validation_step(self, batch: GraphBatch, _index: int) -> None:
        """Logs the same error."""
        self.log("validation_error", self._error(batch), batch_size=batch.size)

    def configure_optimizers(self) -> Any:
        """AdamW with the settings' learning rate."""
        return torch.optim.AdamW(self.parameters(), self.settings.learning_rate)


def learn_hidden_values(
    checkpoint: Checkpoint, train: MeasuredPrograms, validation: MeasuredPrograms, settings: FitSettings, folder: Path
) -> Checkpoint:
    """The checkpoint with a model that learned hidden values."""
    scorer = Scorer(checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        module = HiddenValues(checkpoint, settings)
    steps, validating = (
        Graphs(TaskBatches(programs, scorer, settings, shuffle=shuffle))
        for programs, shuffle in ((train, True), (validation, False))
    )
    fingerprint = json.dumps([asdict(settings), asdict(checkpoint.config)], sort_keys=True)
    found = run(module, steps, validating, settings, fingerprint, folder, lambda _epoch, _metrics: None)
    return replace(checkpoint, state=with_prefix(found.state, "model."))
