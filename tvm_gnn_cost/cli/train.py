"""``tvm-gnn-cost train``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, StoreArgument
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result


class ModelOption(StrEnum):
    """Values of ``--model``."""

    gnn = "gnn"
    tpgnn = "tpgnn"
    xgb = "xgb"


def train(
    store: StoreArgument,
    output: Annotated[Path, typer.Argument(help="The checkpoint to write (XGBoost's JSON for --model xgb).")],
    model: Annotated[
        ModelOption, typer.Option(help="gnn is the default model, tpgnn TPGNN as published, xgb TVM's XGBoost.")
    ] = ModelOption.gnn,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            "--held-out",
            help="Network to hold out of training, or a pattern with *; may be repeated. [default: the test networks]",
        ),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="huber, mse, hinge, list-mle, top1, or several joined by '+'.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of epochs; training may stop early.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="Peak learning rate.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights, the order and the validation tasks.")] = 0,
    accelerator: Annotated[str, typer.Option(help="Lightning's accelerator: cpu, gpu or auto.")] = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="Number of devices that share each step (Lightning's DDP).")] = 1,
    start: Annotated[str | None, typer.Option(help="Checkpoint to fine-tune: gnn or a path.")] = None,
    json: JsonOption = None,
) -> None:
    """Trains a cost model on a graph store. After an interruption, the same command resumes at the last epoch."""
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_file, check_input_folder
    from tvm_gnn_cost.progress import Stage
    from tvm_gnn_cost.tuning.arguments import check_cost_model

    with exit_codes("run the same command to resume"), json_result(json) as write:
        check_input_folder(store)
        check_file(output)
        if start is not None:
            check_cost_model(start, ("gnn",))
        with Display("epochs") as display:
            display(Stage("loading"))
            import tvm_gnn_cost

            trained = tvm_gnn_cost.train(
                store,
                output,
                model=model.value,
                held_out=held_out or (),
                loss=loss,
                epochs=epochs,
                learning_rate=learning_rate,
                seed=seed,
                accelerator=accelerator,
                devices=devices,
                start=start,
                progress=display,
            )
        console.print(f"wrote {output}")
        write({"output": str(output), "training": trained.card["training"]})
