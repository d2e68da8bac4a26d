"""``tvm-gnn-cost tpugraphs``: one file per command."""

from __future__ import annotations

from tvm_gnn_cost.cli.tpugraphs.commands import app

__all__ = ["app"]
