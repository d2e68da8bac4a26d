"""The networks of ``engines.py``, by family: those of the catalogue and of the zoo, some of the latter larger.

The zoo's own sizes are made for a check of outputs. Where they take a fraction of a millisecond, the published size or
the one of a user's machine is taken instead. All have batch 1; ``BATCHES`` are some of them with 4 and 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tvm_gnn_cost.networks.catalogue import workload
from zoo_files import FILES, exported, packaged
from zoo_modules import MODULES, Named, Options, WithCache, hugging_face, zoo
from zoo_networks import Arrays, Drawn, Zoo, constant, draw, image, integers, mask, normal

_ZOO = {one.name: one for one in (*FILES, *MODULES)}


def _catalogue(name: str) -> Zoo:
    """A network of the package's catalogue, with initial weights."""

    def make(_folder: Path) -> tuple[Any, Arrays]:
        torch.manual_seed(0)
        module, shape = workload(name)
        return module.eval(), draw(name, {"x": image(*shape)})

    return Zoo(name, "torch", "torch", make)


def _onnx_export(name: str, original: str) -> Zoo:
    """A network of the catalogue as PyTorch exports it to ONNX."""
    own = _catalogue(original)

    def make(folder: Path) -> tuple[Any, Arrays]:
        network, arrays = own.make(folder)
        return (path := folder / f"{name}.onnx"), exported(network, arrays, path)

    return Zoo(name, "torch, exported to ONNX", "torch", make)


def _model(
    name: str, classes: str, options: Options, inputs: Mapping[str, Drawn], outputs: str = "logits", **fixed: Any
) -> Zoo:
    """An architecture of ``transformers``, ``ViTModel:ViTConfig``, in another size."""
    return zoo(name, hugging_face(classes, list(inputs), [outputs], options, fixed), dict(inputs))


def _batched(original: Zoo, batch: int) -> Zoo:
    """A PyTorch network with so many copies of its inputs, each shifted by a little."""

    def make(folder: Path) -> tuple[Any, Arrays]:
        network, arrays = original.make(folder)
        rng = np.random.default_rng(batch)
        for name, array in arrays.items():
            copies = np.repeat(array, batch, axis=0)
            is_real = copies.dtype.kind == "f"
            arrays[name] = copies + 0.1 * rng.standard_normal(copies.shape).astype(np.float32) if is_real else copies
        return network, arrays

    return Zoo(f"{original.name}-batch-{batch}", original.source, original.package, make)


def _efficientnet() -> torch.nn.Module:
    """EfficientNet with a global average; transformers' window is larger than the image, which OpenVINO refuses."""
    network = hugging_face(
        "EfficientNetForImageClassification:EfficientNetConfig", list(_IMAGE), ["logits"], _EFFICIENT
    )()
    network.get_submodule("network.efficientnet").pooler = torch.nn.AdaptiveAvgPool2d(1)
    return network


def _llama_cache() -> torch.nn.Module:
    transformers = import_module("transformers")
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    return WithCache(network, _LLAMA["num_hidden_layers"])


def _whisper_encoder() -> torch.nn.Module:
    transformers = import_module("transformers")
    sizes = {"d_model": 384, "encoder_attention_heads": 6, "max_source_positions": 300}
    return Named(
        transformers.WhisperModel(transformers.WhisperConfig(**sizes)).encoder, list(_MEL), ["last_hidden_state"]
    )


def _ids(words: int, tokens: int) -> dict[str, Drawn]:
    return {"input_ids": integers(words, 1, tokens)}


_IMAGE = {"pixel_values": image(1, 3, 224, 224)}
_MEL = {"input_features": normal(1, 80, 600)}
_EFFICIENT: Options = {
    "image_size": 224,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_dim": 1280,
    "num_labels": 1000,
}
_VIT: Options = {
    "hidden_size": 192,
    "num_hidden_layers": 6,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "num_labels": 1000,
}
_SWIN: Options = {"embed_dim": 48, "depths": [2, 2, 2, 2], "num_heads": [3, 6, 12, 24], "num_labels": 1000}
_GPT: Options = {"n_embd": 384, "n_layer": 4, "n_head": 6}
_BERT: Options = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_LLAMA: Options = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1376,
}
_SEEN = 127  # tokens in the cache
_PAST = {
    f"{kind}_{layer}": normal(1, _LLAMA["num_key_value_heads"], _SEEN, 64)
    for layer in range(_LLAMA["num_hidden_layers"])
    for kind in ("key", "value")
}

#: Family -> its networks.
FAMILIES: dict[str, tuple[Zoo, ...]] = {
    "convolutional": (
        _catalogue("resnet-18"),
        _ZOO["resnet-50"],
        _catalogue("inception-v3"),
        _ZOO["densenet-121"],
        _ZOO["nudenet"],
    ),
    "depthwise and mobile": (
        _catalogue("mobilenet-v2"),
        _onnx_export("mobilenet-v2-onnx", "mobilenet-v2"),
        zoo("efficientnet-b0", _efficientnet, _IMAGE),
        _ZOO["shufflenet"],
        _ZOO["page-orientation"],
        Zoo(
            *("text-reader-320", "rapidocr_onnxruntime", "rapidocr_onnxruntime"),
            lambda _folder: (
                packaged("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
                draw("text-reader-320", {"x": image(1, 3, 48, 320)}),
            ),
        ),
    ),
    "vision transformers": (
        _model("vit-197", "ViTForImageClassification:ViTConfig", _VIT, _IMAGE),
        _model(
            "dinov2-257",
            "Dinov2Model:Dinov2Config",
            {**_VIT, "patch_size": 14, "image_size": 224},
            _IMAGE,
            "last_hidden_state",
        ),
        _model("swin-224", "SwinForImageClassification:SwinConfig", _SWIN, _IMAGE),
        _model("segformer-224", "SegformerForSemanticSegmentation:SegformerConfig", {}, _IMAGE),
        _model(
            "mobilevit-256",
            "MobileViTForImageClassification:MobileViTConfig",
            {},
            {"pixel_values": image(1, 3, 256, 256)},
        ),
    ),
    "language models": (
        _model("gpt-2-50257", "GPT2LMHeadModel:GPT2Config", _GPT, _ids(50257, 32), use_cache=False),
        _model(
            "bert-128",
            "BertModel:BertConfig",
            _BERT,
            {**_ids(30522, 128), "attention_mask": mask(1, 128, 100)},
            "last_hidden_state",
        ),
        _model("llama-32000", "LlamaForCausalLM:LlamaConfig", _LLAMA, _ids(32000, 32), use_cache=False),
        zoo(
            "llama-32000-cache",
            _llama_cache,
            {"input_ids": integers(32000, 1, 1), "position_ids": constant([[_SEEN]], np.int64), **_PAST},
        ),
        _ZOO["mamba"],
    ),
    "audio and one-dimensional": (
        _model(
            "wav2vec-2-16000",
            "Wav2Vec2ForCTC:Wav2Vec2Config",
            {"num_hidden_layers": 2},
            {"input_values": normal(1, 16000)},
        ),
        zoo("whisper-encoder-300", _whisper_encoder, _MEL),
        _ZOO["basic-pitch"],
        _ZOO["spectrogram-transformer"],
        _ZOO["magika"],
    ),
    "recurrent": (
        _ZOO["captcha-reader"],
        _ZOO["silero-vad-16k"],
        _ZOO["silero-vad-sequence"],
        _ZOO["lstm"],
        _ZOO["gru"],
    ),
}

_ONE = {network.name: network for networks in FAMILIES.values() for network in networks}

#: Some of them with larger batches, which run only if ``--only`` names them.
BATCHES = (
    _batched(_ONE["resnet-18"], 4),
    _batched(_ONE["mobilenet-v2"], 16),
    _batched(_ONE["vit-197"], 4),
    _batched(_ONE["bert-128"], 16),
    _batched(_ONE["wav2vec-2-16000"], 4),
)

#: All of them, by name.
NETWORKS = _ONE | {network.name: network for network in BATCHES}
