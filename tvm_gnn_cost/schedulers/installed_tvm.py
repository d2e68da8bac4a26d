"""What either TVM has, at another place: MetaSchedule, and processes to run programs in."""

from __future__ import annotations

from tvm_gnn_cost.schedulers.installed import has

if has("s_tir"):
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace
    from tvm.support.popen_pool import PopenWorker
else:
    from tvm import meta_schedule as ms
    from tvm.contrib.popen_pool import PopenWorker
    from tvm.tir import Schedule
    from tvm.tir.schedule import Trace

__all__ = ["PopenWorker", "Schedule", "Trace", "ms"]
