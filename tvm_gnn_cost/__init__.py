"""Graph neural network cost models for tensor compilers."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tvm-gnn-cost")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
