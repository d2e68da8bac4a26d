"""Measures programs on this machine, trains a cost model on them and ranks programs that trained nothing.

    python examples/train_on_your_measurements.py [FOLDER] [PROGRAMS_A_TASK]

With 12 programs of each task this takes about ten minutes; everything is kept in the folder, so that an interrupted run
goes on. For a model that is worth using, measure the group "training" (hours) instead of these few operators.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm_gnn_cost

#: A network to train on with some single operators, and one to test on.
TRAINED = ("dense/0", "dense/1", "conv2d/0", "conv2d/1", "softmax/0", "layer-norm/0", "pooling/0")
TESTED = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}


def main(folder: Path, programs: int) -> None:
    """Runs the four steps; each is a command of tvm-gnn-cost as well."""
    from tvm_gnn_cost.schedulers import scheduler

    network = TESTED[scheduler().name]
    measured = tvm_gnn_cost.collect([*TRAINED, network], folder / "measured", random=programs, guided=0, progress=print)
    print(f"{measured.programs} programs of {measured.tasks} tasks, {measured.failed} failed")
    extracted = tvm_gnn_cost.extract(folder / "measured", folder / "store")
    print(f"{extracted.added} programs added to the store")

    model, trees = folder / "model.safetensors", folder / "xgb.json"
    # TenSet's layout writes names with underscores; these have none.
    tvm_gnn_cost.train(folder / "store", model, held_out=[network], epochs=20)
    tvm_gnn_cost.train(folder / "store", trees, model="xgb", held_out=[network])
    done = tvm_gnn_cost.evaluate(folder / "store", [str(model), f"xgb:{trees}", "random"], networks=[network])
    for name, evaluation in done.models.items():
        print(f"{evaluation.metrics['pairwise_accuracy']:.3f} of the pairs of programs in order: {name}")


if __name__ == "__main__":  # the builder's workers import this file
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path("work/example"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 12,
    )
