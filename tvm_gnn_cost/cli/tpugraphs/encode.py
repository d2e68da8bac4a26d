"""``tvm-gnn-cost tpugraphs encode``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


class SourceOption(StrEnum):
    """Values of ``--source``."""

    layout = "layout"
    tile = "tile"
    hlo = "hlo"


def encode(
    file: Annotated[Path, typer.Argument(help="A serialized protobuf message.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the npz files to write, one per module.")],
    source: Annotated[
        SourceOption,
        typer.Option(help="ModuleTuningData (layout), TuningData (tile) or a plain HloModuleProto (hlo)."),
    ],
    json: JsonOption = None,
) -> None:
    """Converts measured XLA modules to npz files in the data set's format, with 140 features per node.

    Kernels without usable measurements are reported and skipped.
    """
    from tvm_gnn_cost.cli.display import Display

    with exit_codes(), json_result(json) as write:
        from tvm_gnn_cost import tpugraphs

        with Display("modules") as display:
            encoded = tpugraphs.encode(file, folder, source.value, progress=display)
        for npz in encoded.files:
            console.print(str(npz), soft_wrap=True)
        print_left_out(encoded.left_out)
        written = [{"file": str(npz.path), "nodes": npz.nodes, "configs": npz.configs} for npz in encoded.files]
        write({"written": written, "left_out": encoded.left_out})
