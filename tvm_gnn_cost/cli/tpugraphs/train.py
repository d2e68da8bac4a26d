"""``tvm-gnn-cost tpugraphs train``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result
from tvm_gnn_cost.cli.tpugraphs.options import pairs
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings


class ModelOption(StrEnum):
    """Values of ``--model``."""

    tgraph = "tgraph"
    cheb_sage = "cheb-sage"
    rank_classes = "rank-classes"
    gru = "gru"
    kernel_costs = "kernel-costs"


def train(
    prepared: Annotated[Path, typer.Argument(help="The folder that 'tpugraphs prepare' wrote.")],
    collection: Annotated[str, typer.Argument(help="One of the five collections; each has its own models.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the models; an existing one is resumed.")],
    model: Annotated[
        ModelOption, typer.Option(help="Architecture; kernel-costs needs graphs prepared with --kernels.")
    ] = ModelOption.tgraph,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of epochs. [default: xla 750, nlp 1000, tiles 18; kernel-costs 100]"),
    ] = None,
    configs_per_step: Annotated[
        int | None,
        typer.Option(min=2, help="Number of configurations per training step. [default: random 128, others 64]"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Train on this split; may be repeated. [default: train and valid, as TGraph's authors do]"),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of the model or the training, such as channels=64, cross_attention=false, "
            "opcodes=fasttext, loss=listmle, learning_rate=0.002, weight_decay=0; may be repeated. "
            "An unknown name lists all.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = EnsembleSettings.folds,
    trained: Annotated[int, typer.Option(min=1, help="Number of folds to train.")] = EnsembleSettings.trained,
    kept: Annotated[
        int, typer.Option(min=1, help="Size of the ensemble: the best models are kept.")
    ] = EnsembleSettings.kept,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Seed of weights, folds and order; if repeated, each has a subfolder. [default: 0]"),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Trains models of one collection by cross-validation on its graphs.

    To evaluate a model on held-out graphs with known runtimes, train it with --split train.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Stage

    with exit_codes(f"run the same command to resume from {folder}"), json_result(json) as write:
        with Display("epochs") as display:
            display(Stage("loading"))
            from tvm_gnn_cost import tpugraphs

            result = tpugraphs.train(
                prepared,
                collection,
                folder,
                model=model.value,
                epochs=epochs,
                configs_per_step=configs_per_step,
                changes=pairs(change or []),
                splits=split or ("train", "valid"),
                ensemble=EnsembleSettings(folds, trained, kept),
                seeds=seed or (0,),
                progress=display,
            )
        console.print(str(result), soft_wrap=True)
        write(
            {
                "folder": str(folder),
                "graphs": result.graphs,
                "validation_errors": result.validation_errors,
            }
        )
