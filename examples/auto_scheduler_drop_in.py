"""Tunes a matrix product with auto_scheduler (Ansor) and GNNCostModel.

    .venv-auto-scheduler/bin/python examples/auto_scheduler_drop_in.py [TRIALS]

Needs a TVM up to 0.19 (make auto-scheduler sets one up).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tvm import auto_scheduler, te
from tvm.target import Target

from tvm_gnn_cost import GNNCostModel


@auto_scheduler.register_workload
def matmul(n: int) -> list[te.Tensor]:
    """C = A @ B, n by n."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def main(trials: int) -> None:
    """Tunes the product and prints the fastest latency and the seconds of the cost model."""
    task = auto_scheduler.SearchTask(func=matmul, args=(512,), target=Target("llvm"))
    # Pre-trained: it ranks the first round already, and is updated with every measured batch.
    model = GNNCostModel()
    policy = auto_scheduler.SketchPolicy(task, program_cost_model=model, verbose=0)
    with tempfile.TemporaryDirectory() as work_dir:
        records = str(Path(work_dir) / "records.json")
        options = auto_scheduler.TuningOptions(
            num_measure_trials=trials,
            num_measures_per_round=min(trials, 16),
            measure_callbacks=[auto_scheduler.RecordToFile(records)],
            verbose=0,
        )
        task.tune(options, search_policy=policy)
        measured = list(auto_scheduler.RecordReader(records))
    latencies = [min(float(cost) for cost in result.costs) for _, result in measured if result.error_no == 0]
    print(f"{len(measured)} programs, the fastest takes {1e3 * min(latencies):.3f} ms")
    print({step: f"{seconds:.2f} s" for step, seconds in model.search.timings.items()})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
