"""``tvm-gnn-cost tpugraphs``: one file per command."""

from __future__ import annotations

import typer

from tvm_gnn_cost.cli.tpugraphs.encode import encode
from tvm_gnn_cost.cli.tpugraphs.evaluate import evaluate
from tvm_gnn_cost.cli.tpugraphs.measure import measure
from tvm_gnn_cost.cli.tpugraphs.prepare import prepare
from tvm_gnn_cost.cli.tpugraphs.rank import rank
from tvm_gnn_cost.cli.tpugraphs.train import train

app = typer.Typer(
    name="tpugraphs",
    help="Rank layout and tile configurations of XLA graphs, in the format of the TpuGraphs data set.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command, example in (
    (encode, "encode op_tuning_data.pb npz/tile/xla/train --source tile"),
    (measure, "measure work/xla-cpu --network lstm-a --network vgg-a"),
    (prepare, "prepare data work/prepared --collection layout:xla:random"),
    (train, "train work/prepared layout:xla:random work/xla-random"),
    (rank, "rank data out.csv --model layout:xla:random=work/xla-random"),
    (evaluate, "evaluate data --model tile:xla=work/tiles"),
):
    app.command(epilog=f"Example: `tvm-gnn-cost tpugraphs {example}`")(command)

__all__ = ["app"]
