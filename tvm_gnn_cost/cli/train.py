"""``tvm-gnn-cost train`` and ``tvm-gnn-cost embed``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_gnn_cost.cli.outcome import JsonOption, console, exit_codes, json_alone


class ModelOption(StrEnum):
    """What ``--model`` takes."""

    gnn = "gnn"
    tpgnn = "tpgnn"
    xgb = "xgb"


StoreArgument = Annotated[Path, typer.Argument(help="A graph store, see 'extract'.")]
HeldOutOption = Annotated[
    list[str] | None,
    typer.Option("--held-out", help="A network whose tasks must not train; repeat it. [default: the test networks]"),
]


def train(
    store: StoreArgument,
    output: Annotated[Path, typer.Argument(help="The checkpoint to write (XGBoost's JSON for --model xgb).")],
    model: Annotated[ModelOption, typer.Option(help="gnn is the default model, tpgnn the published one.")] = (
        ModelOption.gnn
    ),
    held_out: HeldOutOption = None,
    loss: Annotated[
        str | None, typer.Option(help="huber, mse, hinge, list-mle, lambda-rank, top1, or several joined by '+'.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many; it stops early.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="The peak.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and validation tasks.")] = 0,
    accelerator: Annotated[str, typer.Option(help="cpu, gpu or auto.")] = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="With several, Lightning's DDP.")] = 1,
    start: Annotated[Path | None, typer.Option(help="A checkpoint to go on training from.")] = None,
    json: JsonOption = None,
) -> None:
    """Trains a cost model on a graph store. Interrupted, the same command goes on at the last epoch."""
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes("run the same command to go on"), json_alone(json) as write:
        with StepDisplay("epochs") as display:
            display.status("loading")
            from dataclasses import replace

            import numpy as np

            from tvm_gnn_cost.datasets.store import GraphStore
            from tvm_gnn_cost.models.topk_gnn import PRESETS
            from tvm_gnn_cost.networks.catalogue import networks_to_test
            from tvm_gnn_cost.training.checkpoint import Checkpoint
            from tvm_gnn_cost.training.fit import preset_settings
            from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

            programs = GraphStore(store).load(with_features=model is ModelOption.xgb)
            parts = split_programs(programs, held_out or networks_to_test(programs.networks), seed)
            if model is ModelOption.xgb:
                display.status("training")
                train_xgb(programs, parts, seed).save(output)
                card = {"train_programs": len(parts.train) + len(parts.validation)}
            else:
                given: dict[str, Any] = {"loss": loss, "epochs": epochs, "learning_rate": learning_rate}
                settings = replace(
                    preset_settings(model.value, len(np.unique(programs.task[parts.train]))),
                    seed=seed,
                    accelerator=accelerator,
                    devices=devices,
                    **{name: value for name, value in given.items() if value is not None},
                )
                display.total(settings.epochs)
                first = Checkpoint.load(start) if start else None
                unfinished = output.with_name(f"{output.name}.unfinished")
                checkpoint = train_gnn(
                    programs, parts, PRESETS[model.value], settings, unfinished, first, display.epoch
                )
                checkpoint.save(output)
                card = checkpoint.card["training"]
        console.print(f"wrote {output}", markup=False)
        write({"output": str(output), "training": card})


def embed(
    store: StoreArgument,
    picture: Annotated[Path, typer.Argument(help="Where the 2-D picture of the node types goes (.png or .svg).")],
    dim: Annotated[int, typer.Option(min=2, help="Length of a vector.")] = 16,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json: JsonOption = None,
) -> None:
    """Trains FastText's node type vectors alone and draws them; 'train' does it by itself."""
    with exit_codes(), json_alone(json) as write:
        from tvm_gnn_cost.datasets.store import GraphStore
        from tvm_gnn_cost.graphs.embedding import plot_vectors, train_vectors

        graphs = GraphStore(store).load().graphs
        vectors = train_vectors(graphs, dim=dim, seed=seed)
        plot_vectors(vectors, picture)
        console.print(f"{len(vectors.words)} node types, drawn in {picture}", markup=False)
        write({"picture": str(picture), "types": list(vectors.words)})
