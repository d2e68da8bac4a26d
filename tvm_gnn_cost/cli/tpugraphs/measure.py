"""``tvm-gnn-cost tpugraphs measure``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result
from tvm_gnn_cost.xla_cpu.settings import MeasureSettings


def measure(
    folder: Annotated[Path, typer.Argument(help="Folder of the graphs and their card; an existing one is resumed.")],
    network: Annotated[
        list[str] | None, typer.Option(help="A network of xla_cpu/networks.py; may be repeated. [default: all]")
    ] = None,
    configs: Annotated[
        int, typer.Option(min=2, max=100_000, help="Number of different layouts of each network.")
    ] = MeasureSettings.configs,
    rounds: Annotated[
        int, typer.Option(min=2, max=100_000, help="Number of measurements of each layout.")
    ] = MeasureSettings.rounds,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="Approximate duration of a measurement in seconds.")
    ] = MeasureSettings.seconds,
    threshold: Annotated[
        float, typer.Option(help="Drop a graph if the halves of its rounds have a lower Kendall's tau with each other.")
    ] = MeasureSettings.threshold,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Seed of the layouts, the weights and the order.")
    ] = MeasureSettings.seed,
    json: JsonOption = None,
) -> None:
    """Measures layouts of small JAX networks with XLA **on this CPU**, not on a TPU, in the data set's format.

    Measuring all networks takes two hours; nothing else should run meanwhile. It needs JAX, from the extra [xla].
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Stage

    with exit_codes(f"run the same command to resume from {folder}"), json_result(json) as write:
        with Display("graphs") as display:
            display(Stage("loading"))
            from tvm_gnn_cost import xla_cpu

            settings = MeasureSettings(configs, rounds, seconds, threshold, seed)
            card = xla_cpu.measure(folder, network or None, settings, progress=display)
        table = Table(title=f"measured in {folder}", title_justify="left")
        for heading in ("graph", "nodes", "configurable", "configs", "fastest", "slowest", "retest tau", ""):
            table.add_column(heading, justify="left" if heading in ("graph", "") else "right")
        for name, entry in card["graphs"].items():
            if "configs" in entry:
                counts = [str(entry[key]) for key in ("nodes", "configurable", "configs")]
                times = [f"{entry[key]:.2f} ms" for key in ("fastest_ms", "slowest_ms")]
                row = [*counts, *times, f"{entry['retest_tau']:.2f}"]
            else:
                row = [""] * 6
            table.add_row(name, *row, f"dropped: {entry['dropped']}" if "dropped" in entry else "")
        console.print(table)
        write(card)
