"""Small networks of PyTorch of three kinds, and their files as a user exports them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn


class Convolutional(nn.Module):
    """Batch norms that follow their convolutions in no ``nn.Sequential``, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])
        self.classify = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norms[0](self.first(image)))
        x = x + torch.relu(self.norms[1](self.second(x)))
        return self.classify(x.mean((2, 3)))


class Transformer(nn.Module):
    """Token ids and a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.encode = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encode(self.embed(ids), src_key_padding_mask=mask == 0)


class Recurrent(nn.Module):
    """Both directions and two layers; several outputs, one of which is the last step's."""

    def __init__(self, cell: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.recur = cell(8, 6, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        steps, state = self.recur(self.embed(ids))
        return steps[:, -1], state[0] if isinstance(state, tuple) else state


def example(module: nn.Module) -> dict[str, torch.Tensor]:
    """Inputs of one of these networks, by name."""
    if isinstance(module, Convolutional):
        return {"image": torch.randn(1, 3, 12, 12)}
    ids = torch.randint(0, 50, (1, 5))
    return {"ids": ids, "mask": torch.tensor([[1, 1, 1, 0, 0]])} if isinstance(module, Transformer) else {"ids": ids}


def make(kind: type[nn.Module], **settings: Any) -> nn.Module:
    """A network ready for inference, with the same weights every time, and batch norms that do something."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = kind(**settings).eval()
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                for values, low in ((layer.running_mean, -0.5), (layer.running_var, 0.5), (layer.weight, 0.5)):
                    values.uniform_(low, 1.5)
                layer.bias.uniform_(-0.5, 0.5)
    return module


def export_onnx(module: nn.Module, path: Path, batch: int = 1, **settings: Any) -> Path:
    """Writes a network with ``torch.onnx.export``; ``dynamo=False`` needs no onnxscript."""
    if settings.get("dynamo", True):
        pytest.importorskip("onnxscript")
    inputs = {name: torch.cat([value] * batch) for name, value in example(module).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, tuple(inputs.values()), path, input_names=list(inputs), verbose=False, **settings)
    return path


def export_pt2(module: nn.Module, path: Path, inputs: tuple[torch.Tensor, ...] = (), **settings: Any) -> Path:
    """Writes a network with ``torch.export.save``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, inputs or tuple(example(module).values()), **settings), path)
    return path


def assert_close(outputs: Any, module: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """The outputs are those of PyTorch for these inputs."""
    with torch.no_grad():
        expected = module(*inputs.values())
    assert outputs is not None
    for output, wanted in zip(outputs, (expected,) if isinstance(expected, torch.Tensor) else expected, strict=True):
        np.testing.assert_allclose(output, wanted.numpy(), atol=1e-5)
