"""Packages that only some functions need: which extra of ``tvm-gnn-cost`` brings each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm_gnn_cost.errors import MissingPackageError

#: Module -> the smallest extra that installs it.
_EXTRA_OF = {
    "fasttext": "train",
    "google": "tpugraphs",
    "jax": "xla",
    "jinja2": "tune",
    "joblib": "tune",
    "lightning": "train",
    "matplotlib": "tune",
    "onnx": "tune",
    "onnxruntime": "compare",
    "onnxscript": "tune",
    "pyarrow": "train",
    "rich": "tune",
    "typer": "tune",
}


@contextmanager
def missing_packages_named() -> Iterator[None]:
    """Turns the failed import of an optional package inside the block into a sentence that names the extra.

    Raises:
        MissingPackageError: an optional package is not installed.

    >>> with missing_packages_named():
    ...     raise ModuleNotFoundError("No module named 'lightning'", name="lightning")
    Traceback (most recent call last):
    ...
    tvm_gnn_cost.errors.MissingPackageError: this needs the package lightning; pip install 'tvm-gnn-cost[train]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _EXTRA_OF:
            raise
        package = "protobuf" if name == "google" else name
        raise MissingPackageError(
            f"this needs the package {package}; pip install 'tvm-gnn-cost[{_EXTRA_OF[name]}]'"
        ) from error
