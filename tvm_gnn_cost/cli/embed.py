"""``tvm-gnn-cost embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, StoreArgument
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result


def embed(
    store: StoreArgument,
    picture: Annotated[Path, typer.Argument(help="Where the 2-D picture of the node types goes (.png or .svg).")],
    dim: Annotated[int, typer.Option(min=2, max=1024, help="Length of a vector.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of the random walks.")] = 0,
    json: JsonOption = None,
) -> None:
    """Trains FastText's node type vectors alone and draws them; 'train' trains its own."""
    with exit_codes(), json_result(json) as write:
        from tvm_gnn_cost.files import check_file, check_input_folder

        check_input_folder(store)
        check_file(picture)
        from tvm_gnn_cost.datasets.programs import SAMPLED
        from tvm_gnn_cost.datasets.store import GraphStore
        from tvm_gnn_cost.graphs.embedding import check_picture, plot_vectors, train_vectors

        check_picture(picture)
        graphs = GraphStore(store).programs().sample(SAMPLED, seed).graphs.read()
        vectors = train_vectors(graphs, dim=dim, seed=seed)
        plot_vectors(vectors, picture)
        console.print(f"{len(vectors.words)} node types, drawn in {picture}")
        write({"picture": str(picture), "types": list(vectors.words)})
