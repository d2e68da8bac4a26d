"""Tunes a matrix product with MetaSchedule and GNNCostModel.

    python examples/meta_schedule_drop_in.py [TRIALS]

Needs TVM 0.27 (make run sets it up).
"""

from __future__ import annotations

import sys
import tempfile

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule import PooledBuilder


def matmul(n: int) -> tvm.IRModule:
    """C = A @ B, n by n, as TensorIR."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def main(trials: int) -> None:
    """Tunes the product and prints the fastest latency and the seconds of the cost model."""
    # Pre-trained: it ranks the first round already, and is updated with every measured batch.
    model = GNNCostModel()
    with tempfile.TemporaryDirectory() as work_dir:
        database = ms.tune_tir(
            matmul(512),
            target=tvm.target.Target({"kind": "llvm", "num-cores": ms.utils.cpu_count(logical=False)}),
            work_dir=work_dir,
            max_trials_global=trials,
            num_trials_per_iter=min(trials, 16),
            cost_model=model,
            # TVM's builder starts its worker processes anew for every batch.
            builder=PooledBuilder(),
        )
        latencies = [float(min(record.run_secs)) for record in database.get_all_tuning_records()]
    print(f"{len(latencies)} programs, the fastest takes {1e3 * min(latencies):.3f} ms")
    print({step: f"{seconds:.2f} s" for step, seconds in model.search.timings.items()})


if __name__ == "__main__":  # the builder's workers import this file
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
