"""What either TVM has, at another place: MetaSchedule, and processes to build and run programs in."""

from __future__ import annotations

from tvm_gnn_cost.schedulers.installed import has

if has("s_tir"):
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace
    from tvm.support.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind
else:
    from tvm import meta_schedule as ms
    from tvm.contrib.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind
    from tvm.tir import Schedule
    from tvm.tir.schedule import Trace

__all__ = ["PopenPoolExecutor", "PopenWorker", "Schedule", "StatusKind", "Trace", "ms"]
