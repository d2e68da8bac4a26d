"""Trains a model on measured layouts of XLA graphs and ranks the layouts of held-out graphs.

    python examples/rank_tpugraphs_layouts.py [FOLDER] [EPOCHS]

The measurements are from a CPU, in the TpuGraphs format; a folder with the npz files of the data set works as well.
With 100 epochs this takes about a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tvm_gnn_cost import tpugraphs, xla_cpu
from tvm_gnn_cost.tpugraphs import EnsembleSettings

DATA = Path(__file__).parent.parent / "benchmarks" / "data" / "xla-cpu"
COLLECTION = "layout:xla:random"


def main(folder: Path, epochs: int) -> None:
    """Runs the steps; each is a command of tvm-gnn-cost tpugraphs as well."""
    # With the kernels that XLA makes of each layout: the model adds up what they cost.
    prepared = tpugraphs.prepare(DATA, folder / "prepared", find_kernels=xla_cpu.find_kernels)
    print(prepared)
    tpugraphs.train(
        folder / "prepared",
        COLLECTION,
        folder / "models",
        model="kernel-costs",
        epochs=epochs,
        ensemble=EnsembleSettings(folds=6, trained=1, kept=1),
        progress=print,
    )
    models = {COLLECTION: folder / "models"}
    print(tpugraphs.evaluate(DATA, models, split="test", permutations=1, find_kernels=xla_cpu.find_kernels))
    ranking = tpugraphs.rank(DATA, models, split="test", permutations=1, find_kernels=xla_cpu.find_kernels)
    for graph in ranking.collections[COLLECTION]:
        best = int(graph.scores.argmax())
        assert graph.runtime is not None, "these runtimes are not secret"
        slower = graph.runtime[best] / graph.runtime.min() - 1
        print(f"{graph.name}: layout {best} of {len(graph.scores)} ranks first, {slower:.0%} slower than the fastest")


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path("work/example-tpugraphs"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 100,
    )
