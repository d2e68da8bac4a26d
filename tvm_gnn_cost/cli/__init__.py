"""The command line, ``tvm-gnn-cost``: one file per command, without logic."""

from __future__ import annotations

import sys

from tvm_gnn_cost.errors import MissingPackageError
from tvm_gnn_cost.extras import missing_packages_named


def main() -> None:
    """The entry point of ``tvm-gnn-cost``."""
    try:
        with missing_packages_named():  # Typer itself is optional
            from tvm_gnn_cost.cli.app import main as run
    except MissingPackageError as error:
        sys.exit(f"error: {error}")
    run()
