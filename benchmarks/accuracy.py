"""Accuracy on networks that no model was trained on: graph models against TVM's XGBoost and trivial baselines.

Each model is trained on the training networks and operators of the data set that comes with the project, once a
seed; a seed also draws the validation tasks. Every model sees the same programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.progress import Progress

from common import DATA, WORK, console, parser, write_result
from tvm_gnn_cost.datasets.extract import extract_collection
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.networks.catalogue import HELD_OUT
from tvm_gnn_cost.training.fit import PRESET_SETTINGS
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

#: The bare tree, then each group of node values added to it alone, then all together (the default model).
_GROUPS = ("constant", "dtype", "loop", "access", "work")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "types only": (),
    **{f"types + {group}": (group,) for group in _GROUPS},
    **{f"all but {group}": tuple(g for g in _GROUPS if g != group) for group in ("loop", "access", "work")},
}


class _Bar:
    """Draws an extraction."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.bar = progress, progress.add_task(title, total=None)

    def extracted(self, done: int, total: int) -> None:
        self.progress.update(self.bar, completed=done, total=total)


def load_programs(data: Path, detail: Detail) -> MeasuredPrograms:
    """The data set's programs as graphs; extracted at the first call, which takes a minute or two."""
    store = GraphStore(WORK / f"{data.name}-{detail}")
    with Progress(console=console, transient=True) as progress:
        extract_collection(data, store, detail=detail, progress=_Bar(progress, f"extracting {data.name} ({detail})"))
    return store.load(with_features=True)


def gnn(
    preset: str, groups: tuple[str, ...] | None, programs: MeasuredPrograms, seed: int, epochs: int | None
) -> compare.Model:
    """A trained graph model of a preset, with other groups of node values if given."""
    config = PRESETS[preset] if groups is None else replace(PRESETS[preset], groups=groups)
    settings = replace(PRESET_SETTINGS[preset], seed=seed)
    if epochs is not None:
        settings = replace(settings, epochs=epochs)
    parts = split_programs(programs, HELD_OUT, seed)
    return compare.gnn(train_gnn(programs, parts, config, settings, WORK / "fit"))


def xgb(programs: MeasuredPrograms, seed: int) -> compare.Model:
    """TVM's XGBModel, trained on the same programs."""
    trees = train_xgb(programs, split_programs(programs, HELD_OUT, seed), seed)

    def predict(test: MeasuredPrograms) -> compare.Prediction:
        predicted = trees.predict(test)
        return predicted, predicted

    return predict


def _ablation(groups: tuple[str, ...], programs: MeasuredPrograms, seed: int) -> compare.Model:
    return gnn("gnn", groups, programs, seed, None)


def main() -> None:
    """Trains, evaluates, prints the tables and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA, help="a collection, see 'tvm-gnn-cost collect --help'")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--no-ablation", action="store_true", help="leave out the rows for groups of node values")
    arguments = options.parse_args()
    seeds = range(1 if arguments.quick else arguments.seeds)
    epochs = 2 if arguments.quick else None
    statements = load_programs(arguments.data, "statements")
    tree = load_programs(arguments.data, "tree")
    parts = split_programs(statements, HELD_OUT, 0)
    mean = float(statements.throughput()[np.concatenate([parts.train, parts.validation])].mean())
    trained: dict[str, Callable[[int], compare.Model]] = {
        "gnn": lambda seed: gnn("gnn", None, statements, seed, epochs),
        "tpgnn": lambda seed: gnn("tpgnn", None, tree, seed, epochs),
        "xgb": lambda seed: xgb(statements, seed),
        "node-count": lambda _seed: compare.node_count(mean),
        "constant": lambda _seed: compare.constant(mean),
        "random": compare.random,
    }
    if not (arguments.no_ablation or arguments.quick):
        for name, groups in ABLATIONS.items():
            trained[name] = partial(_ablation, groups, statements)
    tests = {name: (tree if name == "tpgnn" else statements).select(parts.test) for name in trained}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trained}
    per_network: dict[str, dict[str, list[dict[str, float]]]] = {
        network: {name: [] for name in trained} for network in HELD_OUT
    }
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("training", total=len(trained) * len(seeds))
        for name, make in trained.items():
            for seed in seeds:
                progress.update(bar, description=f"{name}, seed {seed}")
                scores, predicted = make(seed)(tests[name])
                runs[name].append(evaluate(tests[name], scores, predicted, HELD_OUT)[0])
                for network in HELD_OUT:
                    per_network[network][name].append(evaluate(tests[name], scores, predicted, (network,))[0])
                progress.advance(bar)
    models = {name: compare.summarise(found) for name, found in runs.items()}
    title = f"{', '.join(HELD_OUT)}: {len(parts.test)} programs; trained on {len(parts.train)}; {len(seeds)} seeds"
    console.print(compare.table(title, models))
    networks = {
        network: {name: compare.summarise(found) for name, found in by_model.items()}
        for network, by_model in per_network.items()
    }
    for network, rows in networks.items():
        console.print(compare.table(network, {name: rows[name] for name in ("gnn", "tpgnn", "xgb", "constant")}))
    card = json.loads((arguments.data / "card.json").read_text())
    settings = {
        "seeds": list(seeds),
        "quick": arguments.quick,
        "held_out": list(HELD_OUT),
        "train_programs": len(parts.train),
        "validation_programs": len(parts.validation),
        "test_programs": len(parts.test),
        "data_measured_on": card["machine"],
    }
    write_result(arguments.json, "accuracy", settings, {"models": models, "networks": networks})


if __name__ == "__main__":
    main()
