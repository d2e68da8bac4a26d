"""The fixtures of the tests of databases; most are for today's TVM."""

from __future__ import annotations

from tvm_gnn_cost.installed import has

if has("s_tir"):
    from tests.schedulers.database.small_database import copy, database, graph_store  # noqa: F401
else:
    collect_ignore = ["test_features.py", "test_folder.py", "test_records.py"]
