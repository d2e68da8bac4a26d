"""Transformers, mixers and perceptrons, whose tasks only train the cost model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762) from basic operators that TVM can import."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.reshape(batch, length, self.heads, width // self.heads).permute(0, 2, 1, 3)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = torch.softmax(query @ key.transpose(2, 3) * (width // self.heads) ** -0.5, dim=-1)
        joined = (weights @ value).permute(0, 2, 1, 3).reshape(batch, length, width)
        out: Tensor = self.out(joined)
        return out


class EncoderLayer(nn.Module):
    """A pre-norm transformer encoder layer."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


def bert_tiny() -> nn.Module:
    """One encoder layer of BERT-mini's size (256 wide); more layers would repeat its tasks."""
    return EncoderLayer(256, 4, 1024)


def bert_base() -> nn.Module:
    """One encoder layer of BERT-base's size (768 wide); more layers would repeat its tasks."""
    return EncoderLayer(768, 12, 3072)


class VisionTransformer(nn.Module):
    """ViT-tiny (Dosovitskiy et al. 2020, arXiv:2010.11929) with one layer: 192 wide, 3 heads, 16x16 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, 16)
        self.layer = EncoderLayer(192, 3, 768)
        self.head = nn.Linear(192, 1000)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        out: Tensor = self.head(self.layer(tokens).mean(dim=1))
        return out


class MixerLayer(nn.Module):
    """A layer of MLP-Mixer (Tolstikhin et al. 2021, arXiv:2105.01601)."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_mlp = nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens))
        self.channel_mlp = nn.Sequential(nn.Linear(width, width * 2), nn.GELU(), nn.Linear(width * 2, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token_mlp(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.channel_mlp(self.norm2(x))
        return out


def mlp_mixer() -> nn.Module:
    """One mixer layer over 196 tokens of width 320."""
    return MixerLayer(196, 320)


def perceptron() -> nn.Module:
    """A multi-layer perceptron, 784-512-384-10."""
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 384), nn.Sigmoid(), nn.Linear(384, 10), nn.Softmax(-1)
    )
