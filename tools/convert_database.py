"""Converts a MetaSchedule database of TVM 0.16 into one of today's TVM, which reads its elementary TensorIR.

Types, fields and schedule primitives of that TVM had other names. A module's JSON is a list of nodes that refer to each
other by number: each becomes an object of today. In traces only the names of instructions change. Prints the counts of
tasks, programs and valid programs as JSON.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import RECORDS, WORKLOADS, find_file, open_file
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.schedulers.database.records import FAILED_RUN_SECS

#: Types with two operands, which are called as they were.
_BINARY = ("Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Min", "Max", "And", "Or", "LT", "LE", "GT", "EQ", "NE")


def convert(old: Path, new: Path, programs_per_task: int, folds: int) -> dict[str, int]:
    """Writes programs of a database of TVM 0.16 as a database of today's TVM; programs that failed are left out.

    Args:
        old: The folder of the old database.
        new: The folder of the new one, which is created.
        programs_per_task: Maximum number of programs of a task, taken at equal distances in the order of the search.
        folds: The tasks are assigned in rotation to this many networks, ``fold-0``, ``fold-1`` and so on, so that a
            model can be trained on some and tested on others.

    Returns:
        The number of ``tasks`` and ``programs`` that were written, and of ``valid`` programs in the old database.

    Raises:
        InputError: the folder holds no such database, or a workload with a node of a type that is not supported.
    """
    records: dict[int, list[Any]] = {}
    valid = 0
    for number, (trace, seconds, target, arguments) in _lines(old, RECORDS):
        if seconds and max(seconds) < FAILED_RUN_SECS:
            valid += 1
            records.setdefault(number, []).append([trace, seconds, target, arguments])
    names, modules = zip(*(_module(text) for _, text in _lines(old, WORKLOADS)), strict=True)
    tasks = [
        {"hash": ms.utils.shash2hex(modules[number]), "name": names[number], "weights": {f"fold-{i % folds}": 1}}
        for i, number in enumerate(sorted(records))
    ]
    chosen = []
    for number, own in sorted(records.items()):
        count = min(programs_per_task, len(own))
        for trace, *rest in (own[i * len(own) // count] for i in range(count)):
            chosen.append([number, [_trace(trace), *rest]])
    new.mkdir(parents=True)
    for name, entries in (
        (WORKLOADS, [ms.database.Workload(module).as_json() for module in modules]),
        (RECORDS, chosen),
        ("tasks.jsonl", tasks),
    ):
        write_text(new / name, "".join(f"{json.dumps(entry)}\n" for entry in entries))
    return {"tasks": len(tasks), "programs": len(chosen), "valid": valid}


def _lines(folder: Path, name: str) -> Iterator[Any]:
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder} is no MetaSchedule database: it has no {name} (or {name}.gz or .xz)")
    with open_file(path) as lines:
        yield from map(json.loads, lines)


def _trace(trace: Sequence[Any]) -> list[Any]:
    instructions, decisions = trace
    today = []
    for name, inputs, attributes, outputs in instructions:
        if name == "GetBlock":
            name = "GetSBlock"
        if name == "Split":
            attributes = [*attributes, False]  # whether it does without predicates
        today.append([name, inputs, attributes, outputs])
    return [today, decisions]


def _module(text: str) -> tuple[str, tvm.IRModule]:
    """A name and the module of a line of ``database_workload.json``: eight bytes with its length, then its JSON."""
    graph = json.loads(base64.b64decode(text)[8:])
    nodes = _Nodes(graph["nodes"])
    functions = dict(nodes(nodes.attributes(graph["root"])["functions"]))
    blocks = [nodes(one["attrs"]["name_hint"]) for one in graph["nodes"] if one["type_key"] == "tir.Block"]
    shape = "x".join(str(int(extent)) for extent in functions["main"].params[-1].ty.shape)
    return f"{'-'.join(name for name in blocks if name != 'root')} {shape}", tvm.IRModule(functions)


class _Nodes:
    """The nodes of a module's JSON; each becomes one object, however many refer to it."""

    def __init__(self, nodes: Sequence[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.made: dict[int, Any] = {}

    def attributes(self, number: str | int) -> dict[str, str]:
        """The attributes of a node, as text."""
        found: dict[str, str] = self.nodes[int(number)].get("attrs", {})
        return found

    def __call__(self, number: str | int) -> Any:
        """The object of a node."""
        number = int(number)
        if number not in self.made:
            self.made[number] = self._make(number)
        return self.made[number]

    def _make(self, number: int) -> Any:
        node = self.nodes[number]
        kind, attributes = node["type_key"].removeprefix("tir."), self.attributes(number)

        def of(name: str) -> Any:
            return self(attributes[name])

        if kind == "":
            return None
        if kind == "Array":
            return [self(item) for item in node.get("data", [])]
        if kind == "Map" and "keys" in node:
            return dict(zip(node["keys"], map(self, node["data"]), strict=True))
        if kind == "Map":
            items = [self(item) for item in node.get("data", [])]
            return list(zip(items[::2], items[1::2], strict=True))
        if kind in ("runtime.String", "Op"):
            return node.get("repr_str", "")
        if kind == "GlobalVar":
            return of("name_hint")
        if kind == "IntImm":
            return tirx.IntImm(attributes["dtype"], int(attributes["value"]))
        if kind == "FloatImm":
            return tirx.FloatImm(attributes["dtype"], float(attributes["value"]))
        if kind == "Var":
            return tirx.Var(of("name"), attributes["dtype"])
        if kind == "Buffer":
            return tirx.decl_buffer(of("shape"), attributes["dtype"], of("name"), layout=None)
        if kind in _BINARY:
            return getattr(tirx, kind)(of("a"), of("b"))
        if kind == "Select":
            return tirx.Select(of("condition"), of("true_value"), of("false_value"))
        if kind == "Call":
            return getattr(tirx, of("op").removeprefix("tir."))(*of("args"))
        if kind == "BufferLoad":
            return tirx.BufferLoad(of("buffer"), of("indices"))
        if kind == "BufferStore":
            return tirx.BufferStore(of("buffer"), of("value"), of("indices"))
        if kind == "BufferRegion":
            return tirx.BufferRegion(of("buffer"), of("region"))
        if kind == "Range":
            return tvm.ir.Range.from_min_extent(of("min"), of("extent"))
        if kind == "IterVar":
            return tirx.IterVar(of("dom"), of("var"), int(attributes["iter_type"]), of("thread_tag"))
        if kind == "For":
            return tirx.For(of("loop_var"), of("min"), of("extent"), int(attributes["kind"]), of("body"))
        if kind == "SeqStmt":
            return tirx.SeqStmt(of("seq"))
        if kind == "Block":
            fields = ("iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers", "match_buffers")
            return SBlock(*map(of, fields), annotations=dict(of("annotations")))
        if kind == "BlockRealize":
            return SBlockRealize(of("iter_values"), of("predicate"), of("block"))
        if kind == "PrimFunc":
            buffers = {id(parameter): buffer for parameter, buffer in of("buffer_map")}
            function = tirx.PrimFunc([buffers[id(parameter)] for parameter in of("params")], of("body"))
            return function.with_attr({"global_symbol": "main", "s_tir": True, "tirx.noalias": True})
        raise InputError(f"a workload has a {node['type_key']}, which cannot be made again; leave its line out")


def main() -> None:
    """Reads the options and converts."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    options.add_argument("old", type=Path, metavar="OLD", help="folder of the database of TVM 0.16")
    options.add_argument("new", type=Path, metavar="NEW", help="folder of the new database, which is created")
    options.add_argument("--programs-per-task", type=int, default=10**6, metavar="N", help="maximum number")
    options.add_argument("--folds", type=int, default=1, metavar="N", help="networks that the tasks are assigned to")
    arguments = options.parse_args()
    try:
        if arguments.new.exists():
            raise InputError(f"{arguments.new} exists; name a new folder")
        print(json.dumps(convert(arguments.old, arguments.new, arguments.programs_per_task, arguments.folds)))
    except (InputError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
