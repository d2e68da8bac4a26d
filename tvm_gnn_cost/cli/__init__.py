"""The command line, ``tvm-gnn-cost``: one file a command, and no logic of its own."""

from __future__ import annotations

from tvm_gnn_cost.cli.app import main

__all__ = ["main"]
