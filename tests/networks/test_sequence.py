from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tvm_gnn_cost.networks import sequence
from tvm_gnn_cost.networks.catalogue import TRAINING

NETWORKS = {name: value for name, value in TRAINING.items() if value[0].__module__ == sequence.__name__}
SHAPES = {
    "bert-tiny": (1, 64, 256),
    "bert-base": (1, 128, 768),
    "vit": (1, 1000),
    "mlp-mixer": (1, 196, 320),
    "perceptron": (16, 10),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_network_maps_its_input(name: str) -> None:
    assert set(NETWORKS) == set(SHAPES)
    make, shape = NETWORKS[name]
    with torch.device("meta"), torch.inference_mode():
        out = make().eval()(torch.empty(shape))
    assert tuple(out.shape) == SHAPES[name]


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    ours, theirs = sequence.Attention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(ours(x), theirs(x, x, x, need_weights=False)[0], rtol=1e-4, atol=1e-5)


def test_an_encoder_layer_is_torchs() -> None:
    torch.manual_seed(0)
    ours = sequence.EncoderLayer(12, 3, 24).eval()
    x = torch.randn(2, 5, 12)
    attended = x + ours.attention(functional.layer_norm(x, (12,)))
    hidden = functional.gelu(ours.mlp[0](functional.layer_norm(attended, (12,))))
    torch.testing.assert_close(ours(x), attended + ours.mlp[2](hidden))


def test_a_mixer_mixes_tokens_and_channels() -> None:
    torch.manual_seed(0)
    layer = sequence.MixerLayer(5, 8).eval()
    x = torch.randn(1, 5, 8)
    other = x.clone()
    other[0, 3, 2] += 1
    changed = (layer(x) - layer(other)).abs() > 1e-7
    assert changed.all()


def test_bert_has_the_size_of_its_layers() -> None:
    for network, width, hidden in ((sequence.bert_tiny(), 256, 1024), (sequence.bert_base(), 768, 3072)):
        result = sum(parameter.numel() for parameter in network.parameters())
        assert result == 4 * width * (width + 1) + 4 * width + 2 * width * hidden + width + hidden
