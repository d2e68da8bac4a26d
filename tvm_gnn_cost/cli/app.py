"""The command line. Commands import torch and TVM only when they run, so that ``--help`` is fast."""

from __future__ import annotations

import warnings

import typer

from tvm_gnn_cost.cli.data import check_data, collect, embed, extract, import_log
from tvm_gnn_cost.cli.evaluate import evaluate
from tvm_gnn_cost.cli.explain import explain
from tvm_gnn_cost.cli.tpugraphs import app as tpugraphs
from tvm_gnn_cost.cli.train import train
from tvm_gnn_cost.cli.tune import report, tune

app = typer.Typer(
    name="tvm-gnn-cost",
    help="A learned cost model for TVM: measure programs, train on them, and tune networks with it.",
    epilog="Exit codes: 0 done, 1 the work failed, 2 bad input, 130 interrupted (run it again to resume).",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command, epilog in (
    (collect, "Example: `tvm-gnn-cost collect held-out training data/my-cpu`"),
    (check_data, "Example: `tvm-gnn-cost check-data data/my-cpu --drop`"),
    (import_log, "Example: `tvm-gnn-cost import-log tuned.json data/theirs --network resnet-18`"),
    (extract, "Example: `tvm-gnn-cost extract data/my-cpu work/store`"),
    (embed, "Example: `tvm-gnn-cost embed work/store types.png`"),
    (train, "Example: `tvm-gnn-cost train work/store my-model.safetensors`"),
    (evaluate, "Example: `tvm-gnn-cost evaluate work/store --model my-model.safetensors --model random`"),
    (explain, "Example: `tvm-gnn-cost explain work/resnet-18-gnn --html why.html`"),
    (tune, "Example: `tvm-gnn-cost tune my.onnx --minutes 5`"),
    (report, "Example: `tvm-gnn-cost report work/resnet-18-gnn`"),
):
    app.command(epilog=epilog)(command)
app.add_typer(tpugraphs)


def main() -> None:
    """The entry point of ``tvm-gnn-cost``."""
    # torch.export and Lightning raise warnings that only their authors can act on.
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    app()
