"""Interprets the name of a network, without torch, so that errors are reported at once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_input_file

#: Suffixes of files that hold a network.
NETWORK_FILES = (".onnx", ".pt2")

#: Suffixes of files with only weights, and of pickles.
_OTHER_FILES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".ts", ".jit", ".safetensors")


def is_function(name: str) -> bool:
    """Whether a name is of the form ``package.module:function``.

    >>> is_function("models.mine:small"), is_function("resnet-18")
    (True, False)
    """
    return re.fullmatch(r"[\w.]+:\w+", name) is not None


def name_of(source: Any) -> str:
    """A network's name.

    >>> [name_of(one) for one in ("resnet-18", "models/mine.onnx", "models.mine:small")]
    ['resnet-18', 'mine', 'small']
    """
    if not isinstance(source, str | os.PathLike):
        return type(source[0] if isinstance(source, tuple) else source).__name__
    text = str(source)
    if is_function(text):
        return text.partition(":")[2]
    return Path(text).stem if Path(text).suffix.lower() in (*NETWORK_FILES, *_OTHER_FILES) else text


def check_network(source: Any) -> None:
    """Refuses a file that is missing or is not a network. Functions, names and objects pass.

    Raises:
        InputError: the file does not exist, is not a network, or its name is not Unicode.
    """
    if not isinstance(source, str | os.PathLike) or is_function(str(source)):
        return
    path = Path(source)
    try:
        str(source).encode()
    except UnicodeEncodeError:
        raise InputError(f"the network's name {str(source)!r} is not Unicode; rename the file") from None
    if path.suffix.lower() in NETWORK_FILES:
        check_input_file(path)
    elif path.suffix.lower() in _OTHER_FILES:
        raise InputError(
            f"{path} holds weights or a pickled object, which cannot be loaded safely; export the network in "
            "PyTorch with torch.onnx.export or torch.export.save and pass that file"
        )
    elif path.is_file():
        raise InputError(f"{path} is not a network; expected a file that ends in .onnx or .pt2")
