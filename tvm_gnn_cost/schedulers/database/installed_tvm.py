"""MetaSchedule of the installed TVM, which has moved it."""

from __future__ import annotations

from tvm_gnn_cost.schedulers.installed import has

if has("s_tir"):
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace
else:
    from tvm import meta_schedule as ms
    from tvm.tir import Schedule
    from tvm.tir.schedule import Trace

__all__ = ["Schedule", "Trace", "ms"]
