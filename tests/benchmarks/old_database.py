"""A MetaSchedule database in the form of TVM 0.16, written node by node: elementwise additions on a GPU."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Sizes of the tasks' arrays.
SIZES = (4096, 8192, 16384, 32768)
#: Threads of a block of each program of a task.
THREADS = (32, 64, 128, 256, 512)


class _Nodes:
    """The nodes of a module's JSON; every method returns the number of a new one as text."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]

    def add(self, type_key: str, **fields: Any) -> str:
        self.nodes.append({"type_key": type_key, **fields})
        return str(len(self.nodes) - 1)

    def node(self, type_key: str, **attributes: str) -> str:
        return self.add(type_key, attrs=attributes | {"span": "0"})

    def text(self, content: str) -> str:
        return self.add("runtime.String", repr_str=content)

    def array(self, *items: str) -> str:
        return self.add("Array", data=[int(item) for item in items])

    def integer(self, value: int) -> str:
        return self.node("IntImm", dtype="int64", value=str(value))

    def variable(self, name: str, dtype: str = "int64") -> str:
        return self.node("tir.Var", dtype=dtype, name=self.text(name))

    def buffer(self, name: str, size: int) -> str:
        return self.node("tir.Buffer", dtype="float32", name=self.text(name), shape=self.array(self.integer(size)))


def module_json(size: int) -> str:
    """The module ``b[i] = a[i] + 1`` as a line of ``database_workload.json`` holds it."""
    graph = _Nodes()
    loop, axis = graph.variable("i"), graph.variable("v_i")
    a, b = graph.buffer("a", size), graph.buffer("b", size)
    empty, nothing = graph.array(), graph.add("Map")
    whole = graph.node("Range", min=graph.integer(0), extent=graph.integer(size))
    one = graph.node("Range", min=axis, extent=graph.integer(1))
    read, written = (graph.node("tir.BufferRegion", buffer=buffer, region=graph.array(one)) for buffer in (a, b))
    loaded = graph.node("tir.BufferLoad", dtype="float32", buffer=a, indices=graph.array(axis))
    number = graph.node("FloatImm", dtype="float32", value="1.0")
    store = graph.node(
        "tir.BufferStore",
        buffer=b,
        value=graph.node("tir.Add", dtype="float32", a=loaded, b=number),
        indices=graph.array(axis),
    )
    iteration = graph.node("tir.IterVar", dom=whole, var=axis, iter_type="0", thread_tag=graph.text(""))

    def realize(name: str, iterations: str, values: str, reads: str, writes: str, body: str) -> str:
        block = graph.node(
            "tir.Block",
            iter_vars=iterations,
            reads=reads,
            writes=writes,
            name_hint=graph.text(name),
            body=body,
            init="0",
            alloc_buffers=empty,
            match_buffers=empty,
            annotations=nothing,
        )
        true = graph.node("IntImm", dtype="bool", value="1")
        return graph.node("tir.BlockRealize", iter_values=values, predicate=true, block=block)

    inner = realize("b", graph.array(iteration), graph.array(loop), graph.array(read), graph.array(written), store)
    around = graph.node(
        "tir.For",
        loop_var=loop,
        min=graph.integer(0),
        extent=graph.integer(size),
        kind="0",
        body=inner,
        annotations=nothing,
        thread_binding="0",
    )
    params = [graph.variable(f"var_{name}", "handle") for name in ("a", "b")]
    buffer_map = graph.add("Map", data=[int(params[0]), int(a), int(params[1]), int(b)])
    function = graph.node(
        "tir.PrimFunc",
        params=graph.array(*params),
        body=realize("root", empty, empty, empty, empty, around),
        buffer_map=buffer_map,
    )
    main = graph.node("GlobalVar", name_hint=graph.text("main"))
    root = graph.node("IRModule", functions=graph.add("Map", data=[int(main), int(function)]))
    content = json.dumps({"root": int(root), "nodes": graph.nodes, "b64ndarrays": []}).encode()
    return base64.b64encode(len(content).to_bytes(8, "little") + content).decode()


def trace(size: int, threads: int) -> list[Any]:
    """The trace of a program with so many threads a block, in the words of that time."""
    instructions = [
        ["GetBlock", [], ["b", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [2, 1024], ["v2", "v3"]],
        ["Split", ["l1", "v2", "v3"], [1], ["l4", "l5"]],
        ["Bind", ["l4"], ["blockIdx.x"], []],
        ["Bind", ["l5"], ["threadIdx.x"], []],
    ]
    return [instructions, [[2, [size // threads, threads]]]]


def write_old_database(folder: Path, sizes: Sequence[int] = SIZES) -> None:
    """Writes a task for each size, with a program for each of :data:`THREADS` and one that failed."""
    target = {"kind": "cuda", "arch": "sm_80", "keys": ["cuda", "gpu"], "max_threads_per_block": 1024}
    records = []
    for number, size in enumerate(sizes):
        arguments = [["TENSOR", "float32", [size]]] * 2
        for threads in THREADS:
            records.append([number, [trace(size, threads), [1e-6 * threads], target, arguments]])
        records.append([number, [trace(size, 1), [1e10], target, arguments]])
    workloads = [[str(size), module_json(size)] for size in sizes]
    for name, lines in (("database_workload.json", workloads), ("database_tuning_record.json", records)):
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
