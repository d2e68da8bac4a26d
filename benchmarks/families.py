"""Networks of random sizes by architecture, whose tasks train the cost models.

``families:bert_3`` names the fourth size of BERT where a command takes a function of the current folder:

    cd benchmarks && tvm-gnn-cost collect $(python families.py --sizes 8) ../work/families

Sizes are those of published networks and of their smaller variants; depths are small, since the layers of a network are
the same tasks. They are not the sizes of the networks in ``zoo.py`` and ``engines.py``. The packages are those of the
``zoo`` extra.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from numbered import functions, print_names
from zoo_modules import Build, Named, Options, Stack, UNet, WithCache, hugging_face, zoo
from zoo_networks import Drawn, constant, image, integers, mask, normal, uniform

#: A network and its inputs, from a generator of random numbers.
Sized = Callable[[random.Random], tuple[Build, dict[str, Drawn]]]

#: Widths and numbers of heads of published transformers.
_TRANSFORMERS = ((128, 2), (192, 3), (256, 4), (312, 12), (320, 5), (384, 6), (384, 12), (512, 8), (640, 10), (768, 12))

#: Numbers of tokens of a text.
_LENGTHS = (7, 16, 24, 40, 48, 64, 77, 96, 120, 160, 192, 250)

_VOCABULARIES = (1000, 2048, 5000, 8000, 10003, 12288)

#: Rows of square images.
_SIZES = (64, 80, 96, 112, 128, 144, 160, 192)

#: Batches, mostly of one.
_BATCHES = (1, 1, 1, 1, 2, 3, 4, 8, 16)

#: Largest number of tokens or of rows of 16 pixels in a batch: bad schedules of larger tasks take too long.
_MOST_TOKENS = 512


def _batch(rng: random.Random, tokens: int) -> int:
    return rng.choice([batch for batch in _BATCHES if batch == 1 or batch * tokens <= _MOST_TOKENS])


def _pixels(rng: random.Random, size: int, channels: int = 3) -> dict[str, Drawn]:
    return {"pixel_values": image(_batch(rng, (size // 8) ** 2), channels, size, size)}


def _transformer(rng: random.Random) -> Options:
    """Options that most transformers have."""
    width, heads = rng.choice(_TRANSFORMERS)
    inner = width * rng.choice((2, 3, 4, 4, 4))
    return {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner, "num_hidden_layers": 2}


def _text(classes: str, outputs: Sequence[str] = ("last_hidden_state",), **fixed: Any) -> Sized:
    """An encoder of texts with masks."""

    def sized(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
        tokens, words = rng.choice(_LENGTHS), rng.choice(_VOCABULARIES)
        batch = _batch(rng, tokens)
        options = {**_transformer(rng), "vocab_size": words, "max_position_embeddings": 512, **fixed}
        inputs = {"input_ids": integers(words, batch, tokens), "attention_mask": mask(batch, tokens, tokens - 3)}
        return hugging_face(classes, list(inputs), outputs, options), inputs

    return sized


def _distilbert(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    tokens, words, options = rng.choice(_LENGTHS), rng.choice(_VOCABULARIES), _transformer(rng)
    batch = _batch(rng, tokens)
    renamed = {
        "dim": options["hidden_size"],
        "n_heads": options["num_attention_heads"],
        "hidden_dim": options["intermediate_size"],
        "n_layers": 2,
        "vocab_size": words,
    }
    inputs = {"input_ids": integers(words, batch, tokens), "attention_mask": mask(batch, tokens, tokens - 3)}
    return hugging_face("DistilBertModel:DistilBertConfig", list(inputs), ["last_hidden_state"], renamed), inputs


def _gpt_2(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    tokens, words = rng.choice(_LENGTHS), rng.choice(_VOCABULARIES)
    width, heads = rng.choice(_TRANSFORMERS)
    options = {"n_embd": width, "n_head": heads, "n_layer": 2, "vocab_size": words}
    inputs = {"input_ids": integers(words, _batch(rng, tokens), tokens)}
    return hugging_face("GPT2LMHeadModel:GPT2Config", ["input_ids"], ["logits"], options, {"use_cache": False}), inputs


def _decoder(classes: str, **fixed: Any) -> Sized:
    """A decoder of texts: a text at once, or a token and the keys and values of those before."""

    def sized(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
        words, heads, of_head = rng.choice(_VOCABULARIES), rng.choice((4, 6, 8, 12)), rng.choice((32, 48, 64))
        shared = rng.choice([groups for groups in (1, 2, 3, 4, 6, 8, 12) if heads % groups == 0])
        width = heads * of_head
        options = {
            "vocab_size": words,
            "hidden_size": width,
            "num_hidden_layers": 2,
            "num_attention_heads": heads,
            "num_key_value_heads": shared,
            "head_dim": of_head,
            "intermediate_size": rng.choice((2 * width, 3 * width, 4 * width, (8 * width // 3 + 31) // 32 * 32)),
            **fixed,
        }
        if rng.random() < 0.4:
            seen = rng.choice((15, 31, 63, 100, 200, 255))
            past = {
                f"{kind}_{layer}": normal(1, shared, seen, of_head) for layer in range(2) for kind in ("key", "value")
            }
            inputs = {"input_ids": integers(words, 1, 1), "position_ids": constant([[seen]], np.int64), **past}
            return lambda: WithCache(_causal(classes, options), 2), inputs
        tokens = rng.choice(_LENGTHS)
        inputs = {"input_ids": integers(words, _batch(rng, tokens), tokens)}
        return hugging_face(classes, ["input_ids"], ["logits"], options, {"use_cache": False}), inputs

    return sized


def _transformers() -> Any:
    return import_module("transformers")


def _causal(classes: str, options: Options) -> nn.Module:
    model, config = classes.split(":")
    network: nn.Module = getattr(_transformers(), model)(getattr(_transformers(), config)(**options))
    return network


def _t5(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    tokens, words = rng.choice(_LENGTHS), rng.choice(_VOCABULARIES)
    heads, of_head = rng.choice((4, 6, 8)), rng.choice((32, 64))
    width, batch = rng.choice((192, 256, 384, 512)), _batch(rng, tokens)
    options: Options = {"vocab_size": words, "d_model": width, "d_kv": of_head, "d_ff": rng.choice((2, 4)) * width}
    options |= {"num_layers": 2, "num_heads": heads, "decoder_start_token_id": 0}
    options |= {"feed_forward_proj": rng.choice(("relu", "gated-gelu"))}
    inputs = {"input_ids": integers(words, batch, tokens), "attention_mask": mask(batch, tokens, tokens - 3)}
    return hugging_face("T5EncoderModel:T5Config", list(inputs), ["last_hidden_state"], options), inputs


def _mamba(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    words, width = rng.choice(_VOCABULARIES), rng.choice((64, 96, 128, 192, 256))
    options = {"vocab_size": words, "hidden_size": width, "num_hidden_layers": 1, "state_size": rng.choice((8, 16))}
    inputs = {"input_ids": integers(words, 1, rng.choice((6, 12, 20)))}
    return hugging_face(
        "MambaForCausalLM:MambaConfig", ["input_ids"], ["logits"], options, {"use_cache": False}
    ), inputs


def _patches(classes: str, outputs: Sequence[str], **fixed: Any) -> Sized:
    """A vision transformer."""

    def sized(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
        patch = rng.choice((8, 14, 16))
        size = patch * rng.choice((5, 6, 7, 8, 10, 12))
        labels = {"num_labels": rng.choice((10, 40, 100, 365, 1000))} if outputs[0] == "logits" else {}
        # YOLOS takes other sizes than squares.
        sides = [size, size] if "Yolos" in classes else size
        options = {**_transformer(rng), "patch_size": patch, "image_size": sides, **labels, **fixed}
        return hugging_face(classes, ["pixel_values"], outputs, options), _pixels(rng, size)

    return sized


def _swin(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    window, heads = rng.choice((4, 5, 7)), rng.choice((1, 2, 3))
    size = 16 * window
    options = {
        "image_size": size,
        "patch_size": 4,
        "embed_dim": heads * rng.choice((16, 24, 32)),
        "depths": [2, 2, 1],
        "num_heads": [heads, 2 * heads, 4 * heads],
        "window_size": window,
        "num_labels": rng.choice((10, 100, 1000)),
    }
    classes = rng.choice(("SwinForImageClassification:SwinConfig", "Swinv2ForImageClassification:Swinv2Config"))
    return hugging_face(classes, ["pixel_values"], ["logits"], options), _pixels(rng, size)


def _segformer(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    width = rng.choice((16, 24, 32, 40))
    widths = [width, 2 * width, 5 * width, 8 * width]
    options = {"depths": [1, 1, 1, 1], "hidden_sizes": widths, "decoder_hidden_size": rng.choice((64, 128, 192))}
    size = 32 * rng.choice((2, 3, 4, 5))
    classes = "SegformerForSemanticSegmentation:SegformerConfig"
    return hugging_face(classes, ["pixel_values"], ["logits"], options), _pixels(rng, size)


def _mobilevit(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    size, width = 32 * rng.choice((3, 4, 5, 6)), rng.choice((48, 64, 80, 96))
    narrow = rng.choice((8, 12, 16, 20))
    options = {
        "image_size": size,
        "hidden_sizes": [width, width + 16 * (width // 32), 2 * width - 32],
        "neck_hidden_sizes": [16, narrow, 2 * narrow, 3 * narrow, 4 * narrow, 5 * narrow, 20 * narrow],
        "num_attention_heads": 4,
    }
    return hugging_face(
        "MobileViTForImageClassification:MobileViTConfig", ["pixel_values"], ["logits"], options
    ), _pixels(rng, size)


def _images(classes: str, options: Callable[[random.Random], Options], multiple: int = 32) -> Sized:
    """A convolutional classifier."""

    def sized(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
        size = rng.choice([size for size in _SIZES if size % multiple == 0])
        made = {"num_labels": rng.choice((10, 40, 100, 365, 1000)), **options(rng)}
        return hugging_face(classes, ["pixel_values"], ["logits"], made), _pixels(rng, size)

    return sized


def _four_stages(rng: random.Random) -> list[int]:
    return rng.choice(
        ([24, 56, 152, 368], [32, 64, 160, 384], [48, 96, 192, 432], [40, 80, 160, 320], [48, 104, 208, 440], [96] * 4)
    )


def _resnet(rng: random.Random) -> Options:
    kind, width = rng.choice(("basic", "bottleneck")), rng.choice((32, 40, 48, 80, 96))
    widths = [width * 2**stage for stage in range(4)]
    widths = widths if kind == "basic" else [2 * width for width in widths]
    return {"embedding_size": rng.choice((24, 32, 48)), "hidden_sizes": widths, "depths": [1] * 4, "layer_type": kind}


def _regnet(rng: random.Random) -> Options:
    return {
        "embedding_size": 32,
        "hidden_sizes": _four_stages(rng),
        "depths": [1, 2, 1, 1],
        "groups_width": rng.choice((8, 16)) if rng.random() < 0.8 else 1,
        "layer_type": rng.choice(("x", "y")),
    }


def _convnext(rng: random.Random) -> Options:
    return {"hidden_sizes": _four_stages(rng), "depths": [1, 1, 1, 1]}


def _efficientnet(rng: random.Random) -> Options:
    width = rng.choice((0.4, 0.6, 0.75, 1.1))
    return {
        "image_size": 128,
        "width_coefficient": width,
        "depth_coefficient": 0.3,
        # The pooling's batch norm has the channels of the last convolution.
        "hidden_dim": round(1280 * width),
    }


def _mobilenet(rng: random.Random) -> Options:
    return {"depth_multiplier": rng.choice((0.35, 0.6, 0.75, 1.3)), "image_size": 128}


def _poolformer(rng: random.Random) -> Options:
    widths = _four_stages(rng)
    return {"hidden_sizes": widths, "depths": [1, 1, 1, 1], "mlp_ratio": rng.choice((2.0, 4.0))}


def _attention_of_stages(rng: random.Random) -> Options:
    width = rng.choice((16, 24, 32))
    return {
        "hidden_sizes": [width, 2 * width, 4 * width, 8 * width],
        "depths": [1] * 4,
        "num_attention_heads": [1, 2, 4, 8],
    }


def _focalnet(rng: random.Random) -> Options:
    return {"embed_dim": rng.choice((32, 48, 64, 96)), "depths": [1, 1, 1, 1], "focal_levels": [2, 2, 2, 2]}


def _levit(rng: random.Random) -> Options:
    width = rng.choice((64, 96, 128))
    return {
        "image_size": 128,
        "hidden_sizes": [width, 2 * width, 3 * width],
        "num_attention_heads": [width // 32, width // 16, width * 3 // 32],
        "depths": [1, 1, 1],
        "key_dim": [16, 16, 16],
    }


def _wav2vec(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    channels, (width, heads) = rng.choice((48, 96, 128, 256)), rng.choice(_TRANSFORMERS[:6])
    options = {
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 3 * width,
        "num_hidden_layers": 1,
        "conv_dim": [channels] * 7,
        "feat_extract_norm": rng.choice(("group", "layer")),
        "num_conv_pos_embeddings": rng.choice((16, 32, 128)),
        "num_conv_pos_embedding_groups": width // rng.choice((16, 32, 64)) if width % 64 == 0 else 4,
    }
    inputs = {"input_values": normal(1, rng.choice((4000, 6400, 10000, 12000)))}
    return hugging_face("Wav2Vec2ForCTC:Wav2Vec2Config", ["input_values"], ["logits"], options), inputs


def _whisper(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    (width, heads), frames = rng.choice(_TRANSFORMERS[:8]), rng.choice((50, 80, 128, 200))
    mels = rng.choice((80, 128))
    config = _transformers().WhisperConfig(
        num_mel_bins=mels,
        d_model=width,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        max_source_positions=frames,
    )
    inputs = {"input_features": normal(_batch(rng, frames), mels, 2 * frames)}
    return lambda: Named(_transformers().WhisperModel(config).encoder, list(inputs), ["last_hidden_state"]), inputs


def _spectrogram(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    frames, mels = rng.choice((64, 128, 160, 256)), rng.choice((64, 80, 128))
    options = {**_transformer(rng), "max_length": frames, "num_mel_bins": mels, "num_labels": rng.choice((35, 527))}
    inputs = {"input_values": normal(_batch(rng, frames), frames, mels)}
    return hugging_face("ASTForAudioClassification:ASTConfig", ["input_values"], ["logits"], options), inputs


def _patchtst(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    channels, length = rng.choice((3, 7, 12, 21)), rng.choice((96, 192, 336))
    width = rng.choice((32, 64, 128))
    options = {
        "num_input_channels": channels,
        "context_length": length,
        "prediction_length": rng.choice((24, 48, 96)),
        "patch_length": 16,
        "patch_stride": 8,
        "d_model": width,
        "ffn_dim": 2 * width,
        "num_hidden_layers": 1,
        "loss": "mse",
    }
    classes = "PatchTSTForPrediction:PatchTSTConfig"
    return hugging_face(classes, ["past_values"], ["prediction_outputs"], options), {
        "past_values": normal(rng.choice((1, 1, 4)), length, channels)
    }


def _diffusion(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    width, size, tokens = rng.choice((32, 48, 64, 96)), rng.choice((8, 12, 16, 24)), rng.choice((12, 40, 77))
    text = rng.choice((32, 64, 128))
    options = {
        "sample_size": size,
        "block_out_channels": (width, 2 * width),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "layers_per_block": 1,
        "cross_attention_dim": text,
        "attention_head_dim": rng.choice((2, 4, 8)),
        "norm_num_groups": 16,
    }
    batch = rng.choice((1, 2))
    inputs = {
        "sample": normal(batch, 4, size, size),
        "timestep": constant([501], np.int64),
        "encoder_hidden_states": normal(batch, tokens, text),
    }
    return lambda: Named(import_module("diffusers").UNet2DConditionModel(**options), list(inputs), ["sample"]), inputs


def _autoencoder(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    width, size = rng.choice((16, 32, 48)), rng.choice((32, 40, 48, 64))
    options = {
        "block_out_channels": (width, 2 * width),
        "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
        "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
        "norm_num_groups": rng.choice((8, 16)),
        "latent_channels": 4,
        "sample_size": size,
    }
    inputs = {"sample": uniform(-1, 1, 1, 3, size, size)}
    return lambda: Named(import_module("diffusers").AutoencoderKL(**options), ["sample"], ["sample"]), inputs


def _unet(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    width, depth = rng.choice((8, 12, 24, 32)), rng.choice((2, 3))
    size = rng.choice((48, 80, 96, 112))
    return lambda: UNet(width, depth), {"x": image(_batch(rng, (size // 8) ** 2), 3, size, size)}


def _recurrent(kind: type[nn.LSTM | nn.GRU]) -> Sized:
    def sized(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
        given, width = rng.choice((16, 40, 80, 96, 200)), rng.choice((32, 48, 64, 96, 160, 192, 256))
        steps, batch, both = rng.choice((4, 6, 10)), rng.choice((1, 1, 2, 4, 8)), rng.random() < 0.3
        outputs = rng.choice((2, 10, 29, 64))
        return lambda: Stack(kind(given, width, 1, batch_first=True, bidirectional=both), outputs), {
            "x": normal(batch, steps, given)
        }

    return sized


def _separable(rng: random.Random) -> tuple[Build, dict[str, Drawn]]:
    """One-dimensional separable convolutions over time, as in QuartzNet."""
    given, widths = rng.choice((40, 64, 80)), rng.sample((64, 96, 128, 160, 256), 3)
    kernels = rng.sample((3, 5, 11, 33, 39, 63), 3)

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after, kernel in zip((given, *widths), widths, kernels, strict=False):
            layers += [nn.Conv1d(before, before, kernel, padding=kernel // 2, groups=before, bias=False)]
            layers += [nn.Conv1d(before, after, 1, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv1d(widths[-1], 29, 1))

    return build, {"x": normal(rng.choice((1, 1, 2, 4)), given, rng.choice((64, 100, 200, 400)))}


#: Name -> makes a network of the family.
FAMILIES: dict[str, Sized] = {
    "bert": _text("BertModel:BertConfig"),
    "distilbert": _distilbert,
    "modernbert": _text("ModernBertModel:ModernBertConfig", pad_token_id=0, global_attn_every_n_layers=2),
    "deberta": _text(
        "DebertaV2Model:DebertaV2Config",
        relative_attention=True,
        position_buckets=32,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        max_relative_positions=-1,
    ),
    "gpt_2": _gpt_2,
    "llama": _decoder("LlamaForCausalLM:LlamaConfig"),
    "qwen3": _decoder("Qwen3ForCausalLM:Qwen3Config"),
    "gemma_2": _decoder("Gemma2ForCausalLM:Gemma2Config"),
    "t5": _t5,
    "mamba": _mamba,
    "vit": _patches("ViTForImageClassification:ViTConfig", ["logits"]),
    "dinov2": _patches("Dinov2Model:Dinov2Config", ["last_hidden_state"]),
    "yolos": _patches("YolosForObjectDetection:YolosConfig", ["logits", "pred_boxes"], num_detection_tokens=20),
    "swin": _swin,
    "segformer": _segformer,
    "mobilevit": _mobilevit,
    "resnet": _images("ResNetForImageClassification:ResNetConfig", _resnet),
    "regnet": _images("RegNetForImageClassification:RegNetConfig", _regnet),
    "convnext": _images("ConvNextForImageClassification:ConvNextConfig", _convnext),
    "efficientnet": _images("EfficientNetForImageClassification:EfficientNetConfig", _efficientnet),
    "mobilenet_v1": _images("MobileNetV1ForImageClassification:MobileNetV1Config", _mobilenet),
    "mobilenet_v2": _images("MobileNetV2ForImageClassification:MobileNetV2Config", _mobilenet),
    "poolformer": _images("PoolFormerForImageClassification:PoolFormerConfig", _poolformer),
    "pvt_v2": _images("PvtV2ForImageClassification:PvtV2Config", _attention_of_stages),
    "focalnet": _images("FocalNetForImageClassification:FocalNetConfig", _focalnet),
    "levit": _images("LevitForImageClassification:LevitConfig", _levit, multiple=128),
    "wav2vec_2": _wav2vec,
    "whisper": _whisper,
    "spectrogram_transformer": _spectrogram,
    "patchtst": _patchtst,
    "quartznet": _separable,
    "diffusion_unet": _diffusion,
    "image_autoencoder": _autoencoder,
    "unet": _unet,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
}


def network(family: str, number: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The network of a family with a number, with random weights, and its inputs; deterministic."""
    build, inputs = FAMILIES[family](random.Random(f"{family}/{number}"))
    with tempfile.TemporaryDirectory() as folder:
        module, arrays = zoo(f"{family}_{number}", build, inputs).make(Path(folder))
    return module, tuple(map(torch.from_numpy, arrays.values()))


__getattr__ = functions(__name__, FAMILIES, network)


if __name__ == "__main__":
    print_names("families", FAMILIES, sizes=8)
