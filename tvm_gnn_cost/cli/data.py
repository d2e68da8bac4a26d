"""Commands on measured programs: collect, check-data, import-log, extract and embed."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import (
    HardwareOption,
    JsonOption,
    KeyOption,
    SchedulerOption,
    StoreArgument,
    TargetOption,
    TrackerOption,
    shapes_by_name,
)
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


class SpaceOption(StrEnum):
    """The values of ``--space``."""

    package = "package"
    tvm = "tvm"


def collect(
    workloads: Annotated[
        list[str],
        typer.Argument(
            help="Networks (names, .onnx files, package.module:function), operators (dense/0), or the groups training, "
            "held-out and layers."
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder of the collection; an existing collection is resumed.")],
    random: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Number of random samples of each task's design space.")
    ] = 12,
    guided: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Number of samples of each task that the guide picks.")
    ] = 8,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the samples.")] = 0,
    patience: Annotated[
        float,
        typer.Option(
            min=0,
            max=1e6,
            help="Maximum number of seconds for which a batch is repeated while other processes are busy.",
        ),
    ] = 20,
    space: Annotated[
        SpaceOption,
        typer.Option(help="package: the design space of tune; tvm: that of TVM's own tune_relax and tune_tir."),
    ] = SpaceOption.package,
    guide: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="xgb, which learns from the random samples; gnn or a checkpoint, for the programs that it ranks best "
            "and may overestimate.",
        ),
    ] = "xgb",
    scheduler: SchedulerOption = None,
    hardware: Annotated[
        str, typer.Option(help="For auto-scheduler: the name of this machine's folder of measure records.")
    ] = "cpu",
    tracker: TrackerOption = "",
    key: KeyOption = "",
    target: TargetOption = "",
    json: JsonOption = None,
) -> None:
    """Measures programs of many tasks to train a cost model on, on this machine or on those of an RPC tracker.

    The folder becomes a MetaSchedule database with a card, or a folder in TenSet's layout. A program that fails to
    build or to run is recorded as failed. Ctrl-C is safe at any time: the same command resumes.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Note, Stage

    with exit_codes(f"run the same command to resume {folder}"), json_result(json) as write:
        with Display("tasks") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.collect(
                workloads,
                folder,
                random=random,
                guided=guided,
                seed=seed,
                patience_s=patience,
                space=space.value,
                guide=guide,
                scheduler=scheduler,
                hardware=hardware,
                tracker=tracker,
                key=key,
                target=target,
                progress=display,
            )
            now = done.measured_now + done.failed_now
            display(Note(f"{folder}: {done.programs} programs, {done.failed} failed; {now} of them measured now"))
        counts = {"tasks": done.tasks, "measured": done.measured_now, "failed": done.failed_now}
        write({"folder": str(folder), **counts, "left_out": done.left_out})


def check_data(
    folder: Annotated[Path, typer.Argument(help="Folder of a MetaSchedule collection, see 'collect'.")],
    limit: Annotated[
        float, typer.Option(min=0, help="Coefficient of variation of the repeats above which a task is listed.")
    ] = 0.1,
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove the programs of these tasks; 'collect' measures them again.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Lists the tasks of a collection whose repeated measurements disagree, because other processes ran meanwhile."""
    from tvm_gnn_cost.datasets.check_data import check_data
    from tvm_gnn_cost.files import check_input_folder

    with exit_codes(), json_result(json) as write:
        check_input_folder(folder)
        result = check_data(folder, limit, drop=drop)
        for task, value in result.noisy:
            console.print(f"{value:.3f}  {task}", soft_wrap=True)
        console.print(
            f"{len(result.noisy)} of {result.tasks} tasks have repeats with a coefficient of variation above "
            f"{limit:g}; {result.dropped} programs removed"
        )
        write({"folder": str(folder), **asdict(result)})


def import_log(
    log: Annotated[Path, typer.Argument(help="A log of auto_scheduler: measure records, one per line.")],
    folder: Annotated[Path, typer.Argument(help="The folder in TenSet's layout, to which records are added.")],
    network: Annotated[
        str, typer.Option(help="The network that was tuned: a name, an .onnx file or package.module:function.")
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", help="NAME=1,3,224,224: the shape of an input with dynamic dimensions; may be repeated."
        ),
    ] = None,
    hardware: Annotated[str, typer.Option(help="Name for the machine that measured.")] = "log",
    json: JsonOption = None,
) -> None:
    """Converts a log of auto_scheduler to a folder that extract and evaluate read.

    The tasks are extracted from the network again, and matched with the log's by their shapes and operators; tasks
    without a match are reported and skipped. It runs in the environment of make auto-scheduler.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_folder, check_input_file
    from tvm_gnn_cost.importing.names import check_network
    from tvm_gnn_cost.progress import Stage

    with exit_codes(), json_result(json) as write:
        check_input_file(log)
        check_folder(folder)
        check_network(network)
        shapes = shapes_by_name(shape or ())
        with Display("tasks") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.import_log(log, folder, network, shapes=shapes, hardware=hardware, progress=display)
        print_left_out(done.problems)
        console.print(
            f"{done.records} records added to {folder}, of {done.tasks} of the network's {done.network_tasks} tasks; "
            f"{len(done.problems)} left out"
        )
        counts = {"records": done.records, "tasks": done.tasks, "network_tasks": done.network_tasks}
        write({"folder": str(folder), **counts, "left_out": len(done.problems)})


class DetailOption(StrEnum):
    """The values of ``--detail``."""

    tree = "tree"
    statements = "statements"


def extract(
    collection: Annotated[
        Path,
        typer.Argument(help="Folder of a MetaSchedule database (collect and tune write one) or in TenSet's layout."),
    ],
    store: Annotated[Path, typer.Argument(help="Folder of the data set store; an existing store is extended.")],
    detail: Annotated[
        DetailOption, typer.Option(help="statements for the model gnn, tree for tpgnn.")
    ] = DetailOption.statements,
    features: Annotated[
        bool, typer.Option(help="Also extract TVM's features, which the XGBoost baseline needs.")
    ] = True,
    hardware: HardwareOption = None,
    dask: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address of a Dask scheduler whose workers extract, tcp://HOST:8786."),
    ] = "",
    json: JsonOption = None,
) -> None:
    """Extracts graphs of measured programs into a store, which train and evaluate read.

    Broken lines and records that cannot be replayed are reported and skipped.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_folder, check_input_folder
    from tvm_gnn_cost.progress import Stage

    with exit_codes(f"run the same command to resume {store}"), json_result(json) as write:
        check_input_folder(collection)
        check_folder(store)
        with Display("programs") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.extract(
                collection,
                store,
                detail=detail.value,
                features=features,
                hardware=hardware,
                dask=dask,
                progress=display,
            )
        print_left_out(done.problems)
        console.print(
            f"{done.added} programs added to {store}, {done.known} were already there, {len(done.problems)} left out"
        )
        write({"store": str(store), "added": done.added, "known": done.known, "left_out": len(done.problems)})


def embed(
    store: StoreArgument,
    picture: Annotated[Path, typer.Argument(help="File for the 2-D plot of the node types (.png or .svg).")],
    dim: Annotated[int, typer.Option(min=2, max=1024, help="Length of the vectors.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random walks.")] = 0,
    json: JsonOption = None,
) -> None:
    """Trains FastText vectors of the node types and plots them; not needed before train."""
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
