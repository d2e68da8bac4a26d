"""PyTorch networks of the zoo: architectures of Hugging Face and stacks of ``torch.nn`` with random weights.

Configurations are small, with the structure of the published networks. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from zoo_networks import Arrays, Drawn, Zoo, constant, draw, image, integers, mask, normal, uniform

#: Makes a network with its initial weights.
Build = Callable[[], nn.Module]

#: Options of a configuration, or constant arguments.
Options = dict[str, Any]

_IDS = 64  # tokens of a text
_LABELS = 40
_CACHED = 31  # tokens that a decoder with a cache has seen


class Named(nn.Module):
    """A network with positional inputs that returns some of its named outputs."""

    def __init__(self, network: nn.Module, inputs: Sequence[str], outputs: Sequence[str], **fixed: Any) -> None:
        super().__init__()
        self.network, self.inputs, self.outputs, self.fixed = network, tuple(inputs), tuple(outputs), fixed

    def forward(self, *arrays: torch.Tensor) -> Any:
        """The outputs as a tuple, or a single output."""
        found = self.network(**dict(zip(self.inputs, arrays, strict=True)), **self.fixed)
        chosen = tuple(found[name] for name in self.outputs)
        return chosen if len(chosen) > 1 else chosen[0]


class WithCache(nn.Module):
    """A decoder of one token that takes and returns the cache of keys and values."""

    def __init__(self, network: nn.Module, layers: int) -> None:
        super().__init__()
        self.network, self.layers = network, layers

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, *cache: torch.Tensor) -> Any:
        """The logits, then the keys and the values of each layer."""
        past = import_module("transformers").DynamicCache()
        for layer in range(self.layers):
            past.update(cache[2 * layer], cache[2 * layer + 1], layer)
        found = self.network(input_ids=input_ids, position_ids=position_ids, past_key_values=past, use_cache=True)
        after = found.past_key_values.layers
        return found.logits, *(one for layer in after for one in (layer.keys, layer.values))


class Stack(nn.Module):
    """An LSTM or a GRU with a linear layer on top; also returns the last states."""

    def __init__(self, layers: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.layers = layers
        width = layers.hidden_size * (2 if layers.bidirectional else 1)
        self.top = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> Any:
        """Scores at each step, and the states."""
        found, state = self.layers(x)
        states = state if isinstance(state, tuple) else (state,)
        return self.top(found), *states


class UNet(nn.Module):
    """A U-Net as in the paper, with transposed convolutions on the way up."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(_twice(before, after) for before, after in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, 2) for before, after in pairs)
        self.merge = nn.ModuleList(_twice(before, after) for before, after in pairs)
        self.top = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> Any:
        """Scores of each pixel."""
        skipped = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skipped.append(x)
        for up, merge, other in zip(self.up, self.merge, skipped[-2::-1], strict=True):
            x = merge(torch.cat([other, up(x)], 1))
        return self.top(x)


def _twice(before: int, after: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs in (before, after):
        layers += [nn.Conv2d(inputs, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def prepared(build: Build, example: Sequence[torch.Tensor], seed: int = 0) -> nn.Module:
    """A network in evaluation mode with random weights, biases, scales and statistics.

    With initial biases and scales of 0 and 1, errors in them would not be seen. Weights are larger than initial
    weights, with which every attention is nearly a mean and the output of deep convolutions nearly constant.

    Args:
        build: Makes the network.
        example: Inputs; similar inputs give the statistics of batch normalisation.
        seed: Of the weights.
    """
    torch.manual_seed(seed)
    network = build().eval().requires_grad_(False)
    for one in network.modules():
        weight = getattr(one, "weight", None)
        if isinstance(one, nn.Linear | nn.modules.conv._ConvNd) and isinstance(weight, torch.Tensor):
            gain = 1.0 if isinstance(one, nn.Linear) else 2.0
            weight.mul_((gain / weight[0].numel()) ** 0.5 / weight.std())
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    norms = [one for one in network.modules() if isinstance(one, nn.modules.batchnorm._NormBase)]
    if norms:
        for norm in norms:
            norm.train().momentum = 1.0
        network(*(torch.cat([torch.randn_like(one) + one.flip(0, axis) for axis in (-1, -2)]) for one in example))
        for norm in norms:
            norm.eval().momentum = 0.1
    return network


def zoo(
    name: str,
    build: Build,
    inputs: dict[str, Drawn],
    package: str = "transformers",
    dtype: torch.dtype = torch.float32,
) -> Zoo:
    """A network of the zoo; of another type, the floats of its inputs are of that type too."""

    def make(_folder: Path) -> tuple[Any, Arrays]:
        arrays = draw(name, inputs)
        network = prepared(build, [torch.from_numpy(one) for one in arrays.values()]).to(dtype)
        if dtype is torch.float16:
            arrays = {one: a.astype(np.float16) if a.dtype == np.float32 else a for one, a in arrays.items()}
        return network, arrays

    return Zoo(name, package, package, make, limit=3e-4 if dtype is torch.float32 else 1e-2)


_TEXT = {"input_ids": integers(1000, 1, _IDS), "attention_mask": mask(1, _IDS, 50)}
_TOKENS = {"input_ids": integers(1000, 1, _IDS)}
_PIXELS = ["pixel_values"]
_SMALL: Options = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}
_VIT: Options = {
    "image_size": 64,
    "patch_size": 16,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}
_KV: Options = {"num_key_value_heads": 2}


def hugging_face(
    name: str, inputs: Sequence[str], outputs: Sequence[str], options: Options, fixed: Options | None = None
) -> Build:
    """An architecture of ``transformers``: ``BertModel:BertConfig`` with the configuration's options."""

    def build() -> nn.Module:
        transformers = import_module("transformers")
        model, config = name.split(":")
        made = getattr(transformers, config)(**options)
        if outputs[0] == "logits" and not hasattr(made, "vocab_size") and "num_labels" not in options:
            made.num_labels = _LABELS
        return Named(getattr(transformers, model)(made), inputs, outputs, **(fixed or {}))

    return build


def _encoder(name: str, options: Options | None = None) -> Build:
    """An encoder of texts: ids and mask."""
    return hugging_face(name, list(_TEXT), ["last_hidden_state"], {**_SMALL, **(options or {})})


def _decoder(name: str, options: Options | None = None) -> Build:
    """A decoder of texts with its head: ids alone."""
    return hugging_face(name, ["input_ids"], ["logits"], {**_SMALL, **(options or {})}, {"use_cache": False})


def _classifier(name: str, options: Options) -> Build:
    """A classifier of images, or what else gives logits for pixels."""
    return hugging_face(name, _PIXELS, ["logits"], options)


def _cached(name: str, options: Options) -> Build:
    """A decoder with keys and values as inputs and outputs."""

    def build() -> nn.Module:
        transformers = import_module("transformers")
        model, config = name.split(":")
        made = getattr(transformers, config)(**{**_SMALL, **options})
        return WithCache(getattr(transformers, model)(made), made.num_hidden_layers)

    return build


def _clip() -> nn.Module:
    transformers = import_module("transformers")
    parts = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**parts, "vocab_size": 1000, "max_position_embeddings": 32, "eos_token_id": 999}
    vision = {**parts, "image_size": 64, "patch_size": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=64)
    inputs = ["input_ids", "pixel_values", "attention_mask"]
    return Named(transformers.CLIPModel(config), inputs, ["logits_per_image", "text_embeds", "image_embeds"])


def _detr() -> nn.Module:
    transformers = import_module("transformers")
    backbone = transformers.ResNetConfig(
        hidden_sizes=[32, 64, 64, 128], depths=[1, 1, 1, 1], embedding_size=32, out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        backbone=None,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=20,
    )
    return Named(transformers.DetrForObjectDetection(config), _PIXELS, ["logits", "pred_boxes"])


def _t5(part: str) -> Build:
    def build() -> nn.Module:
        transformers = import_module("transformers")
        config = transformers.T5Config(
            vocab_size=1000, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        if part == "encoder":
            return Named(transformers.T5EncoderModel(config), list(_TEXT), ["last_hidden_state"])
        network = transformers.T5ForConditionalGeneration(config)
        return _Decoder(network, ["decoder_input_ids", "encoder_outputs", "attention_mask"])

    return build


class _Decoder(nn.Module):
    """The decoder of a pair, which gets the encoder's output."""

    def __init__(self, network: nn.Module, inputs: Sequence[str]) -> None:
        super().__init__()
        self.network, self.inputs = network, tuple(inputs)

    def forward(self, *arrays: torch.Tensor) -> Any:
        """The logits."""
        named: dict[str, Any] = dict(zip(self.inputs, arrays, strict=True))
        named["encoder_outputs"] = (named["encoder_outputs"],)
        return self.network(**named, use_cache=False).logits


def _whisper(part: str) -> Build:
    def build() -> nn.Module:
        transformers = import_module("transformers")
        config = transformers.WhisperConfig(
            vocab_size=1000,
            num_mel_bins=80,
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_source_positions=100,
            max_target_positions=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
        network = transformers.WhisperForConditionalGeneration(config)
        if part == "encoder":
            return Named(network.model.encoder, ["input_features"], ["last_hidden_state"])
        return _Decoder(network, ["decoder_input_ids", "encoder_outputs"])

    return build


def _diffusion_unet() -> nn.Module:
    diffusers = import_module("diffusers")
    network = diffusers.UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    return Named(network, ["sample", "timestep", "encoder_hidden_states"], ["sample"])


def _image_autoencoder() -> nn.Module:
    diffusers = import_module("diffusers")
    network = diffusers.AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
        latent_channels=4,
        sample_size=32,
    )
    return Named(network, ["sample"], ["sample"])


def _cache(heads: int, width: int, layers: int) -> dict[str, Drawn]:
    past = {f"{kind}_{layer}": normal(1, heads, _CACHED, width) for layer in range(layers) for kind in ("key", "value")}
    return {"input_ids": integers(1000, 1, 1), "position_ids": constant([[_CACHED]], np.int64), **past}


def _pixels(size: int, height: int | None = None) -> dict[str, Drawn]:
    return {"pixel_values": image(1, 3, height or size, size)}


_DISTILBERT: Options = {"vocab_size": 1000, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256}
_DEBERTA: Options = {
    "relative_attention": True,
    "position_buckets": 32,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "max_relative_positions": -1,
}
_GPT: Options = {"vocab_size": 1000, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 128}
_SWIN: Options = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 32,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
_EFFICIENT: Options = {"image_size": 96, "width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640}
_MOBILEVIT: Options = {
    "image_size": 64,
    "hidden_sizes": [64, 80, 96],
    "neck_hidden_sizes": [16, 16, 24, 48, 64, 80, 160],
}
_SEGFORMER: Options = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 96], "decoder_hidden_size": 64}
_YOLOS: Options = {**_VIT, "image_size": [64, 96], "num_detection_tokens": 20}
_WAV2VEC: Options = {
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 192,
    "conv_dim": [64] * 7,
    "num_conv_pos_embeddings": 32,
    "num_conv_pos_embedding_groups": 4,
}
_MAMBA: Options = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}
_PATCHTST: Options = {
    "num_input_channels": 7,
    "context_length": 96,
    "prediction_length": 24,
    "patch_length": 12,
    "patch_stride": 6,
    "d_model": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 2,
    "loss": "mse",
}

_bert = _encoder("BertModel:BertConfig")
_vit = _classifier("ViTForImageClassification:ViTConfig", _VIT)
_convnext = _classifier(
    "ConvNextForImageClassification:ConvNextConfig", {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]}
)
_resnet = _classifier(
    "ResNetForImageClassification:ResNetConfig",
    {"hidden_sizes": [64, 128, 256, 512], "depths": [1, 1, 1, 1], "layer_type": "basic"},
)


def _lstm() -> nn.Module:
    return Stack(nn.LSTM(64, 128, 2, batch_first=True), 40)


def _lstm_both_ways() -> nn.Module:
    return Stack(nn.LSTM(40, 64, 2, batch_first=True, bidirectional=True), 20)


def _gru() -> nn.Module:
    return Stack(nn.GRU(64, 128, 2), 40)


def _transformer_encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True), 2)


#: The networks of PyTorch in the zoo.
MODULES: tuple[Zoo, ...] = (
    zoo("bert", _bert, _TEXT),
    zoo("roberta", _encoder("RobertaModel:RobertaConfig", {"pad_token_id": 1}), _TEXT),
    zoo(
        "distilbert",
        hugging_face("DistilBertModel:DistilBertConfig", list(_TEXT), ["last_hidden_state"], _DISTILBERT),
        _TEXT,
    ),
    zoo("albert", _encoder("AlbertModel:AlbertConfig", {"embedding_size": 64}), _TEXT),
    zoo("deberta-v2", _encoder("DebertaV2Model:DebertaV2Config", _DEBERTA), _TEXT),
    zoo("modernbert", _encoder("ModernBertModel:ModernBertConfig", {"pad_token_id": 0}), _TEXT),
    zoo(
        "gpt-2",
        hugging_face("GPT2LMHeadModel:GPT2Config", ["input_ids"], ["logits"], _GPT, {"use_cache": False}),
        _TOKENS,
    ),
    zoo("llama", _decoder("LlamaForCausalLM:LlamaConfig", _KV), _TOKENS),
    zoo("llama-one-token", _decoder("LlamaForCausalLM:LlamaConfig"), {"input_ids": integers(1000, 1, 1)}),
    zoo("llama-cache", _cached("LlamaForCausalLM:LlamaConfig", _KV), _cache(2, 32, 2)),
    zoo("qwen2", _decoder("Qwen2ForCausalLM:Qwen2Config", _KV), _TOKENS),
    zoo("qwen3", _decoder("Qwen3ForCausalLM:Qwen3Config", {**_KV, "head_dim": 32}), _TOKENS),
    zoo("qwen3-cache", _cached("Qwen3ForCausalLM:Qwen3Config", {**_KV, "head_dim": 32}), _cache(2, 32, 2)),
    zoo("mistral", _decoder("MistralForCausalLM:MistralConfig", {**_KV, "sliding_window": 16}), _TOKENS),
    zoo("gemma-2", _decoder("Gemma2ForCausalLM:Gemma2Config", {**_KV, "head_dim": 32}), _TOKENS),
    zoo("t5-encoder", _t5("encoder"), _TEXT),
    zoo(
        "t5-decoder",
        _t5("decoder"),
        {
            "decoder_input_ids": integers(1000, 1, 16),
            "encoder_outputs": normal(1, _IDS, 128),
            "attention_mask": mask(1, _IDS, 50),
        },
    ),
    zoo("vit", _vit, _pixels(64)),
    zoo(
        "dinov2",
        hugging_face(
            "Dinov2Model:Dinov2Config",
            _PIXELS,
            ["last_hidden_state", "pooler_output"],
            {**_VIT, "image_size": 56, "patch_size": 14},
        ),
        _pixels(84),
    ),
    zoo("swin", _classifier("SwinForImageClassification:SwinConfig", _SWIN), _pixels(64)),
    zoo("convnext", _convnext, _pixels(96)),
    zoo(
        "efficientnet",
        _classifier("EfficientNetForImageClassification:EfficientNetConfig", _EFFICIENT),
        _pixels(96),
    ),
    zoo("resnet", _resnet, _pixels(96)),
    zoo(
        "mobilenet-v2",
        _classifier("MobileNetV2ForImageClassification:MobileNetV2Config", {"image_size": 96, "depth_multiplier": 0.5}),
        _pixels(96),
    ),
    zoo("mobilevit", _classifier("MobileViTForImageClassification:MobileViTConfig", _MOBILEVIT), _pixels(64)),
    zoo("segformer", _classifier("SegformerForSemanticSegmentation:SegformerConfig", _SEGFORMER), _pixels(96, 64)),
    zoo("detr", _detr, _pixels(128, 96)),
    zoo(
        "yolos",
        hugging_face("YolosForObjectDetection:YolosConfig", _PIXELS, ["logits", "pred_boxes"], _YOLOS),
        _pixels(96, 64),
    ),
    zoo(
        "clip",
        _clip,
        {"input_ids": integers(1000, 2, 32), "pixel_values": image(1, 3, 64, 64), "attention_mask": mask(2, 32, 20)},
    ),
    zoo("whisper-encoder", _whisper("encoder"), {"input_features": normal(1, 80, 200)}),
    zoo(
        "whisper-decoder",
        _whisper("decoder"),
        {"decoder_input_ids": integers(1000, 1, 12), "encoder_outputs": normal(1, 100, 64)},
    ),
    zoo(
        "wav2vec-2",
        hugging_face("Wav2Vec2ForCTC:Wav2Vec2Config", ["input_values"], ["logits"], _WAV2VEC),
        {"input_values": normal(1, 8000)},
    ),
    zoo(
        "spectrogram-transformer",
        hugging_face(
            "ASTForAudioClassification:ASTConfig",
            ["input_values"],
            ["logits"],
            {**_VIT, "max_length": 96, "num_mel_bins": 64},
        ),
        {"input_values": normal(1, 96, 64)},
    ),
    zoo(
        "mamba",
        hugging_face("MambaForCausalLM:MambaConfig", ["input_ids"], ["logits"], _MAMBA, {"use_cache": False}),
        {"input_ids": integers(1000, 1, 24)},
    ),
    zoo(
        "patchtst",
        hugging_face("PatchTSTForPrediction:PatchTSTConfig", ["past_values"], ["prediction_outputs"], _PATCHTST),
        {"past_values": normal(1, 96, 7)},
    ),
    zoo(
        "diffusion-unet",
        _diffusion_unet,
        {
            "sample": normal(1, 4, 16, 16),
            "timestep": constant([501], np.int64),
            "encoder_hidden_states": normal(1, 12, 32),
        },
        "diffusers",
    ),
    zoo("image-autoencoder", _image_autoencoder, {"sample": uniform(-1, 1, 1, 3, 32, 32)}, "diffusers"),
    zoo("u-net", UNet, {"x": image(1, 3, 64, 64)}, "torch"),
    zoo("lstm", _lstm, {"x": normal(1, 25, 64)}, "torch"),
    zoo("lstm-both-ways", _lstm_both_ways, {"x": normal(2, 12, 40)}, "torch"),
    zoo("gru", _gru, {"x": normal(25, 1, 64)}, "torch"),
    zoo("transformer-encoder", _transformer_encoder, {"x": normal(1, 32, 64)}, "torch"),
    zoo("bert-float16", _bert, _TEXT, dtype=torch.float16),
    zoo("vit-float16", _vit, _pixels(64), dtype=torch.float16),
    zoo("convnext-float16", _convnext, _pixels(96), dtype=torch.float16),
    zoo("resnet-float16", _resnet, _pixels(96), dtype=torch.float16),
    zoo("lstm-float16", _lstm, {"x": normal(1, 25, 64)}, "torch", dtype=torch.float16),
)
