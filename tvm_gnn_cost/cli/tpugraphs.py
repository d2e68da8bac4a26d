"""``tvm-gnn-cost tpugraphs``: the commands for XLA graphs in the TpuGraphs format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tvm_gnn_cost.cli.outcome import JsonOption, console, exit_codes, json_alone, print_left_out

if TYPE_CHECKING:
    from tvm_gnn_cost.cli.display import StepDisplay
    from tvm_gnn_cost.tpugraphs.rank import Ranked
    from tvm_gnn_cost.tpugraphs.ranker import Ranker

app = typer.Typer(
    name="tpugraphs",
    help="Rank layout and tile configurations of XLA graphs, in the format of the TpuGraphs data set.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


class SourceOption(StrEnum):
    """What ``encode --source`` takes."""

    layout = "layout"
    tile = "tile"
    hlo = "hlo"


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs encode op_tuning_data.pb npz/tile/xla/train --source tile`")
def encode(
    file: Annotated[Path, typer.Argument(help="A serialised protobuf message.")],
    folder: Annotated[Path, typer.Argument(help="Where the npz files go, one a module.")],
    source: Annotated[
        SourceOption,
        typer.Option(help="ModuleTuningData (layout), TuningData (tile) or a plain HloModuleProto (hlo)."),
    ],
    json: JsonOption = None,
) -> None:
    """Turns measured XLA modules into files as the data set publishes them: 140 features a node, edges, configurations.

    A kernel without usable measurements is named and left out.
    """
    with exit_codes(), json_alone(json) as write:
        from tvm_gnn_cost.tpugraphs.encode import encode as encode_file

        problems: list[str] = []
        written = []
        for path, nodes, configs in encode_file(file, source.value, folder, problems):
            console.print(f"{path}: {nodes} nodes, {configs} configurations", markup=False, soft_wrap=True)
            written.append({"file": str(path), "nodes": nodes, "configs": configs})
        print_left_out(problems)
        write({"written": written, "left_out": problems})


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs measure work/xla-cpu --network lstm-a --network vgg-a`")
def measure(
    folder: Annotated[Path, typer.Argument(help="Where graphs and card go; the same one resumes.")],
    network: Annotated[
        list[str] | None, typer.Option(help="A network of networks/xla.py; repeat it. [default: all]")
    ] = None,
    configs: Annotated[int, typer.Option(min=2, help="Different layouts of each network.")] = 80,
    rounds: Annotated[int, typer.Option(min=2, help="Times that each layout is measured.")] = 24,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long one measurement takes, about.")] = 0.012,
    threshold: Annotated[
        float, typer.Option(help="Drop a graph whose two halves of rounds agree less, as Kendall's tau.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of layouts, weights and order.")] = 0,
    json: JsonOption = None,
) -> None:
    """Measures layouts of small JAX networks on this CPU, through XLA, in the data set's format.

    Takes an hour for all; nothing else should run meanwhile. Needs JAX: pip install 'tvm-gnn-cost[xla]'.
    """
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(f"run the same command to go on from {folder}"), json_alone(json) as write:
        with StepDisplay("graphs") as display:
            display.status("loading")
            try:
                from tvm_gnn_cost.networks.xla import NETWORKS
                from tvm_gnn_cost.tpugraphs.measure import MeasureSettings
                from tvm_gnn_cost.tpugraphs.measure import measure as measure_networks
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] not in ("jax", "jaxlib"):
                    raise
                raise RuntimeError("measuring needs JAX: pip install 'tvm-gnn-cost[xla]'") from error
            settings = MeasureSettings(configs, rounds, seconds, threshold, seed)
            card = measure_networks(network or list(NETWORKS), folder, settings, display)
        table = Table(title=f"measured in {folder}", title_justify="left")
        for heading in ("graph", "nodes", "configurable", "configs", "fastest", "slowest", "retest tau", ""):
            table.add_column(heading, justify="left" if heading in ("graph", "") else "right")
        for name, one in card["graphs"].items():
            if "configs" in one:
                counts = [str(one[key]) for key in ("nodes", "configurable", "configs")]
                times = [f"{one[key]:.2f} ms" for key in ("fastest_ms", "slowest_ms")]
                row = [*counts, *times, f"{one['retest_tau']:.2f}"]
            else:
                row = [""] * 6
            table.add_row(name, *row, f"dropped: {one['dropped']}" if "dropped" in one else "")
        console.print(table)
        write(card)


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs prepare data work/prepared --collection layout:xla:random`")
def prepare(
    root: Annotated[Path, typer.Argument(help="The folder that holds npz or npz_all, as published.")],
    folder: Annotated[Path, typer.Argument(help="Where prepared graphs are kept; the same one resumes.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="One of the five collections; repeat it. [default: all that are there]")
    ] = None,
    prune: Annotated[
        bool, typer.Option(help="Keep the configurable nodes and their neighbours alone; small graphs can do without.")
    ] = True,
    json: JsonOption = None,
) -> None:
    """Prunes graphs, drops equal configurations and packs the rest: what training reads, a fraction of the size.

    A file that can't be read is named and left out.
    """
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(f"run the same command to go on from {folder}"), json_alone(json) as write:
        from tvm_gnn_cost.tpugraphs.collections import SPLITS, collection_kind, collections_in, graph_files
        from tvm_gnn_cost.tpugraphs.prepare import Savings, prepare_files, prepared_folder

        names = collection or collections_in(root)
        if not names:
            raise FileNotFoundError(f"{root} holds no collection; expected npz/layout/... or npz/tile/... below it")
        files = [(name, split, graph_files(root, name, split)) for name in names for split in SPLITS]
        total = sum(len(paths) for _, _, paths in files)
        if not total:
            raise FileNotFoundError(f"{root} holds no npz file of {', '.join(names)}")
        problems: list[str] = []
        saved = dict.fromkeys(names, Savings())
        with StepDisplay("graphs") as display:
            for name, split, paths in files:
                there = prepared_folder(folder, name, split)
                kind = collection_kind(name)
                for _path, savings in prepare_files(paths, there, problems, kind=kind, prunes=prune):
                    saved[name] = saved[name] + savings
                    done = sum(one.graphs for one in saved.values()) + len(problems)
                    display.extracted(done, total)
        table = Table(title=f"prepared in {folder}", title_justify="left")
        for heading in ("collection", "graphs", "nodes", "kept", "configs", "kept", "MiB", "kept", "seconds"):
            table.add_column(heading, justify="left" if heading == "collection" else "right")
        for name, one in saved.items():
            sizes = [one.graphs, one.nodes, one.kept_nodes, one.configs, one.kept_configs]
            mebibytes = [f"{size / 2**20:.1f}" for size in (one.bytes, one.kept_bytes)]
            table.add_row(name, *map(str, sizes), *mebibytes, f"{one.seconds:.1f}")
        console.print(table)
        print_left_out(problems)
        write({"collections": {name: asdict(one) for name, one in saved.items()}, "left_out": problems})


class ModelOption(StrEnum):
    """What ``train --model`` takes."""

    tgraph = "tgraph"
    cheb_sage = "cheb-sage"
    rank_classes = "rank-classes"
    gru = "gru"


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs train work/prepared layout:xla:random work/xla-random`")
def train(
    prepared: Annotated[Path, typer.Argument(help="What 'tpugraphs prepare' wrote.")],
    collection: Annotated[str, typer.Argument(help="One of the five collections: each has models of its own.")],
    folder: Annotated[Path, typer.Argument(help="Where the models go; the same one resumes.")],
    model: Annotated[ModelOption, typer.Option(help="Which model.")] = ModelOption.tgraph,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the graphs. [default: of xla 750, of nlp 1000, of tiles 18]")
    ] = None,
    configs_per_step: Annotated[
        int | None,
        typer.Option(min=2, help="Configurations that are compared at once. [default: of random 128, of others 64]"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="Graphs of which split; repeat it. [default: train and valid, as TGraph's authors do]"),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of the model or the training, say channels=64, cross_attention=false, "
            "opcodes=fasttext, loss=listmle, learning_rate=0.002, weight_decay=0; repeat it. A wrong name lists all.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the graphs, of which one validates.")] = 20,
    trained: Annotated[int, typer.Option(min=1, help="Folds of which a model is trained.")] = 5,
    kept: Annotated[int, typer.Option(min=1, help="Models that rank together, the best ones.")] = 4,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Of weights, folds and order; of several, each has its own subfolder. [default: 0]"),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Trains models of one collection by cross-validation on its graphs.

    To evaluate a model on graphs that it never saw, of which the runtimes are known, train it with --split train.
    """
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(f"run the same command to go on from {folder}"), json_alone(json) as write:
        with StepDisplay("epochs") as display:
            display.status("loading")
            from tvm_gnn_cost.tpugraphs.collections import collection_kind
            from tvm_gnn_cost.tpugraphs.ensemble import EnsembleSettings, train_ensemble
            from tvm_gnn_cost.tpugraphs.fit import recipe
            from tvm_gnn_cost.tpugraphs.options import with_options
            from tvm_gnn_cost.tpugraphs.prepare import read_all_prepared
            from tvm_gnn_cost.tpugraphs.ranker import MODELS

            kind = collection_kind(collection)
            splits = list(dict.fromkeys(split or ["train", "valid"]))
            graphs = [graph for one in splits for graph in read_all_prepared(prepared, collection, one)]
            if not graphs:
                raise FileNotFoundError(
                    f"{prepared} holds no prepared graph of {collection}, {' or '.join(splits)}; "
                    "'tvm-gnn-cost tpugraphs prepare' makes them"
                )
            seeds = list(dict.fromkeys(seed or [0]))
            default = recipe(collection, model.value, seeds[0])
            most = epochs or default.epochs
            at_once = configs_per_step or default.configs_per_step
            config, settings = with_options(
                change or [],
                MODELS[model.value][1](kind=kind),
                replace(default, epochs=most, patience=most, configs_per_step=at_once),
                fixed=("kind", "seed", "epochs", "configs_per_step"),
            )
            display.total(most * trained * len(seeds))
            errors: dict[int, list[float]] = {}
            for number in seeds:

                def tell(fold: int, epoch: int, metrics: dict[str, float]) -> None:
                    display.epoch((len(errors) * trained + fold) * most + epoch, metrics)

                ensemble = EnsembleSettings(folds, trained, kept)
                own = folder if len(seeds) == 1 else folder / f"seed-{number}"
                rankers = train_ensemble(
                    collection, model.value, config, graphs, replace(settings, seed=number), ensemble, own, tell
                )
                errors[number] = [ranker.card["training"]["validation_error"] for ranker in rankers]
                listed = ", ".join(f"{error:.3f}" for error in errors[number])
                console.print(f"{own}: {len(rankers)} models kept, validation errors {listed}", soft_wrap=True)
        write({"folder": str(folder), "graphs": len(graphs), "validation_errors": errors})


ModelsOption = Annotated[
    list[str],
    typer.Option("--model", help="COLLECTION=PATH, a model's file or what train wrote; repeat it."),
]
PermutationsOption = Annotated[
    int, typer.Option(min=1, help="How often configurations are shuffled into those compared at once.")
]


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs rank data out.csv --model layout:xla:random=work/xla-random`")
def rank(
    root: Annotated[Path, typer.Argument(help="The folder that holds npz or npz_all, as published.")],
    table: Annotated[Path, typer.Argument(help="The competition's CSV file to write.")],
    model: ModelsOption,
    split: Annotated[str, typer.Option(help="Which graphs.")] = "test",
    permutations: PermutationsOption = 10,
    json: JsonOption = None,
) -> None:
    """Ranks all configurations of the graphs of one or several collections and writes the competition's table."""
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(), json_alone(json) as write:
        if table.is_dir():
            raise ValueError(f"{table} is a folder; expected the file to write")
        problems: list[str] = []
        with StepDisplay("graphs") as display:
            display.status("loading")
            from tvm_gnn_cost.tpugraphs.submission import row, write_submission

            ranked = _ranked(root, split, _rankers(model), permutations, problems, display)
            rows = [row(name, graph, scores) for name, (graph, scores, _) in ranked]
        print_left_out(problems)
        if not rows:
            raise ValueError(f"no graph of the split '{split}' in {root} could be ranked; {table} was not written")
        count = write_submission(table, rows)
        console.print(f"{table}: {count} graphs ranked, {len(problems)} left out")
        write({"table": str(table), "graphs": count, "left_out": problems})


@app.command(epilog="Example: `tvm-gnn-cost tpugraphs evaluate data --model tile:xla=work/tiles`")
def evaluate(
    root: Annotated[Path, typer.Argument(help="The folder that holds npz or npz_all, as published.")],
    model: ModelsOption,
    split: Annotated[str, typer.Option(help="Which graphs; their runtimes must be known.")] = "valid",
    permutations: PermutationsOption = 10,
    json: JsonOption = None,
) -> None:
    """Ranks graphs whose runtimes are known and prints how well: Kendall's tau, slowdowns, the competition's score."""
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(), json_alone(json) as write:
        problems: list[str] = []
        with StepDisplay("graphs") as display:
            display.status("loading")
            from tvm_gnn_cost.tpugraphs.metrics import competition_score, graph_metrics, mean_metrics

            rankers = _rankers(model)
            graphs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in rankers}
            for name, (graph, scores, runtime) in _ranked(root, split, rankers, permutations, problems, display):
                if runtime is None:
                    problems.append(f"{graph}: its runtimes are secret")
                else:
                    graphs[name][graph] = graph_metrics(name, scores, runtime)
        print_left_out(problems)
        empty = [name for name, found in graphs.items() if not found]
        if empty:
            raise ValueError(f"no graph of {empty[0]} in {root} can be evaluated on its split '{split}'")
        collections = {name: mean_metrics(list(found.values())) for name, found in graphs.items()}
        trained_on = {name: sorted(_trained_on(name, rankers[name]) & set(graphs[name])) for name in rankers}
        for name, metrics in collections.items():
            listed = Table(title=f"{name}, {len(graphs[name])} graphs", title_justify="left")
            listed.add_column("graph", overflow="fold")
            for heading in metrics:
                listed.add_column(heading, justify="right")
            for graph, own in (*graphs[name].items(), ("mean", metrics)):
                listed.add_row(graph, *(f"{value:.3f}" for value in own.values()))
            console.print(listed)
            if trained_on[name]:
                names = ", ".join(trained_on[name])
                console.print(f"the models were trained on some of these: {names}", markup=False, soft_wrap=True)
        score = competition_score(collections)
        console.print(f"score of {len(collections)} collections: {score:.4f}")
        write(
            {
                "score": score,
                "collections": collections,
                "graphs": graphs,
                "trained_on": trained_on,
                "left_out": problems,
            }
        )


def _ranked(
    root: Path,
    split: str,
    rankers: Mapping[str, Sequence[Ranker]],
    permutations: int,
    problems: list[str],
    display: StepDisplay,
) -> Iterator[tuple[str, Ranked]]:
    """Ranks the graphs of each collection and shows how far it is; yields each with its collection."""
    from tvm_gnn_cost.tpugraphs.collections import graph_files
    from tvm_gnn_cost.tpugraphs.rank import rank_files

    files = {name: graph_files(root, name, split) for name in rankers}
    total = sum(map(len, files.values()))
    done = 0
    for name, paths in files.items():
        left_out: list[str] = []
        for ranked in rank_files(paths, rankers[name], permutations, left_out):
            done += 1
            display.extracted(done + len(left_out), total)
            yield name, ranked
        done += len(left_out)
        problems += left_out


def _trained_on(collection: str, rankers: Sequence[Ranker]) -> set[str]:
    """Names of a collection's graphs that its models learned from."""
    return {
        name
        for ranker in rankers
        if ranker.card.get("collection") == collection
        for name in ranker.card["training"]["train_graphs"]
    }


def _rankers(models: Sequence[str]) -> dict[str, list[Ranker]]:
    """The models of each collection that ``--model`` names.

    Raises:
        ValueError: one is not COLLECTION=PATH, names a collection twice, or a path without models.
    """
    from tvm_gnn_cost.tpugraphs.ensemble import load_rankers

    found: dict[str, list[Ranker]] = {}
    for text in models:
        collection, is_given, path = text.partition("=")
        if not is_given or collection in found:
            raise ValueError(f"--model {text}: expected COLLECTION=PATH, each collection once")
        found[collection] = load_rankers(Path(path))
        trained = {ranker.card.get("collection", collection) for ranker in found[collection]}
        if trained != {collection}:
            console.print(f"{path} was trained on {', '.join(sorted(trained))}, and ranks {collection}", soft_wrap=True)
    return found
