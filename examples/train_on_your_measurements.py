"""Measures programs on this machine, trains a cost model on them and ranks the programs of a held-out network.

    python examples/train_on_your_measurements.py [FOLDER] [PROGRAMS_PER_TASK]

With 12 programs per task this takes about ten minutes. Everything is kept in the folder, so that an interrupted run
resumes. For a model that is worth using, measure the group "training" (hours) instead of these few operators.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm_gnn_cost

#: Operators to train on, and the held-out network of each scheduler.
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

    output, xgb_output = folder / "model.safetensors", folder / "xgb.json"
    # TenSet's layout writes names with underscores; these have none.
    model = tvm_gnn_cost.train(folder / "store", output, held_out=[network], epochs=20)
    xgb = tvm_gnn_cost.train(folder / "store", xgb_output, model="xgb", held_out=[network])
    models = {"this model": model, "XGBoost": xgb, "random": "random"}
    result = tvm_gnn_cost.evaluate(folder / "store", models, networks=[network])
    for name, evaluation in result.models.items():
        print(f"pairwise accuracy {evaluation.metrics['pairwise_accuracy']:.3f}: {name}")


if __name__ == "__main__":  # the builder's workers import this file
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path("work/example"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 12,
    )
