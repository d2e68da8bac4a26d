"""Everything that the package reads from a file, as functions of bytes.

Each returns, or raises InputError or OSError: anything else is a bug. Formats with checksums would refuse nearly every
changed byte, so for these the bytes are what the checksums protect, and the target puts a valid file around it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from tests import synthetic
from tests.tpugraphs.modules import layout_run, small_module, tile_run
from tests.tpugraphs.published import layout_fields, tile_fields
from tvm_gnn_cost.datasets.records import parsed_objects
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.datasets.tenset import RecordLine, parse_record, record_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.inputs import read_inputs
from tvm_gnn_cost.measuring.card import read_card
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import read_tasks, read_weighted_tasks
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.tpugraphs.format.encoding import encode
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.tpugraphs.format.protos import HloModuleProto, ModuleTuningData, TuningData
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import read_prepared
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, Ranker
from tvm_gnn_cost.training.fit import new_checkpoint
from tvm_gnn_cost.training.scale import Scale
from tvm_gnn_cost.tuning.report import headline, tables, write_report
from tvm_gnn_cost.tuning.result import load_result

#: What a function may raise for bad input.
EXPECTED = (InputError, OSError)


@dataclass(frozen=True)
class Target:
    """A way into the package.

    Attributes:
        run: Reads bytes; the folder is for files.
        seeds: Makes the bytes that the fuzzer starts with, given a folder for files.
        is_json: Whether the bytes hold JSON, of which values are changed too.
        needs: The part of TVM that it needs; none if empty.
    """

    run: Callable[[bytes, Path], object]
    seeds: Callable[[Path], list[bytes]]
    is_json: bool = False
    needs: str = ""

    def reads(self, data: bytes, folder: Path) -> bool:
        """Whether the bytes are read and not refused with a sentence."""
        try:
            self.run(data, folder)
        except EXPECTED as error:
            if not str(error):
                raise AssertionError("an error must say what is wrong") from error
            return False
        return True


# Lines of text and JSON.

_RECORD = {
    "i": [['["k", [1, 8]]', "llvm -keys=cpu", [1, 2], "", 0, []], [[], [["SP", 2, 0, 64, [1, 8], 1]]]],
    "r": [[0.001, 0.0011], 0, 0.1, 1700000000],
    "v": "v0.6",
}


def _lines(data: bytes, folder: Path) -> None:
    """A log of measure records; the first byte chooses the compression."""
    pack = (lambda content: content, gzip.compress, lzma.compress)
    path = folder / ("log.json", "log.json.gz", "log.json.xz")[data[0] % 3 if data else 0]
    path.write_bytes(data[1:] if data and data[0] & 4 else pack[data[0] % 3 if data else 0](data[1:]))
    problems: list[Any] = []
    list(parsed_objects(path, problems))
    assert all(str(path) in str(problem) for problem in problems)
    for line in record_lines(path):
        parse_record(line)


def _record(data: bytes, _folder: Path) -> None:
    parse_record(RecordLine(Path("log.json"), 1, data.decode("utf-8", "replace")))


def _card(data: bytes, folder: Path) -> None:
    (folder / "card.json").write_bytes(data)
    read_card(folder / "card.json", {"machine": dict, "target": str, "runs": list})


def _result(data: bytes, folder: Path) -> None:
    (folder / "tuning.json").write_bytes(data)
    result = load_result(folder)
    # What is read must be shown too.
    assert headline(result)
    assert tables(result)
    result.as_json()
    write_report(folder)


def _pickle(data: bytes, folder: Path) -> None:
    path = folder / "all_tasks.pkl"
    path.write_bytes(data)
    for read in (read_tasks, read_weighted_tasks):
        try:
            read(path)
        except InputError as error:
            if str(path) not in str(error):
                raise AssertionError("an error must name the file") from error


# Arrays. A zip archive holds each with its checksum, so a target changes one array and packs the others beside it.


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def _pack(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


@cache
def _published(kind: str) -> dict[str, bytes]:
    fields = layout_fields(nodes=6, configs=3) if kind == "layout" else tile_fields(nodes=4, configs=3)
    return {name: _npy(array) for name, array in fields.items()}


def _with_changed(members: dict[str, bytes], data: bytes) -> dict[str, bytes]:
    """The members with the one that the first byte chooses replaced by the bytes behind it; 255 leaves it out."""
    names = sorted(members)
    chosen = names[(data[0] if data else 0) % len(names)]
    if data[1:2] == b"\xff":
        return {name: content for name, content in members.items() if name != chosen}
    return members | {chosen: data[1:]}


def _changes(members: dict[str, bytes]) -> list[bytes]:
    return [bytes([number]) + members[name] for number, name in enumerate(sorted(members))]


def _npz(data: bytes, folder: Path) -> None:
    kind = "layout" if data[:1] < b"\x80" else "tile"
    path = folder / "g.npz"
    _pack(path, _with_changed(_published(kind), data))
    graph = read_graph(path)
    for chunk in graph.configs(2):
        assert chunk.dtype in (np.int8, np.float32)
    assert len(graph.node_opcode) == len(graph.node_feat)


def _npz_seeds(_folder: Path) -> list[bytes]:
    layouts = _changes(_published("layout"))
    tiles = [bytes([0x80 + one[0]]) + one[1:] for one in _changes(_published("tile"))]
    # The number of a field is taken modulo the number of fields.
    return layouts + tiles


def _archive(data: bytes, folder: Path) -> None:
    """The bytes of a whole archive."""
    (folder / "g.npz").write_bytes(data)
    with suppress(*EXPECTED):
        list(read_graph(folder / "g.npz").configs())
    (folder / "inputs.npz").write_bytes(data)
    assert all(array.shape is not None for array in read_inputs(folder / "inputs.npz").values())


def _archive_seeds(folder: Path) -> list[bytes]:
    for kind in ("layout", "tile"):
        _pack(folder / f"{kind}.npz", _published(kind))
    np.savez_compressed(folder / "inputs.npz", x=np.ones((2, 3), np.float32))
    return [(folder / name).read_bytes() for name in ("layout.npz", "tile.npz", "inputs.npz")]


@cache
def _prepared_members(folder: Path, kind: str) -> tuple[dict[str, bytes], bytes]:
    path = folder / f"{kind}-published.npz"
    _pack(path, _published(kind))
    assert list(prepare_files([path], folder / "made", []))
    made = folder / "made" / path.name
    with zipfile.ZipFile(made) as archive:
        members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    return members, made.with_suffix(".npy").read_bytes()


def _prepared(data: bytes, folder: Path) -> None:
    kind = "layout" if data[:1] < b"\x80" else "tile"
    members, configs = _prepared_members(folder, kind)
    if data[:1] in (b"\x7f", b"\xff"):
        configs = data[1:]
    else:
        members = _with_changed(members, data)
    _pack(folder / "g.npz", members)
    (folder / "g.npy").write_bytes(configs)
    graph = read_prepared(folder, "g")
    graph.configs(np.arange(len(graph.config_rows)))


def _prepared_seeds(folder: Path) -> list[bytes]:
    found = []
    for kind, base in (("layout", 0), ("tile", 0x80)):
        members, configs = _prepared_members(folder, kind)
        found += [bytes([base + one[0]]) + one[1:] for one in _changes(members)]
        found.append(bytes([base + 0x7F]) + configs)
    return found


# Protobuf messages.

_SOURCES = ("hlo", "layout", "tile")


def _protos(data: bytes, folder: Path) -> None:
    path = folder / "m.pb"
    path.write_bytes(data[1:])
    out = folder / "encoded"
    try:
        for one in encode(path, out, _SOURCES[data[0] % 3 if data else 0]).files:  # type: ignore[arg-type]
            if one.configs:
                list(read_graph(one.path).configs())
    finally:
        for made in out.glob("*"):
            made.unlink()


def _protos_seeds(_folder: Path) -> list[bytes]:
    runs = [layout_run(7, [[1, 0], [], [0, 1, 2]]), layout_run(0, [[]], error=True), layout_run(5, [])]
    layouts = ModuleTuningData(module=small_module(), runs=runs, config_index_to_node=[3])
    tiles = TuningData(modules=[{"module": small_module(), "runs": [tile_run(30, True), tile_run(20)]}])
    messages = (HloModuleProto.FromString(small_module().SerializeToString()), layouts, tiles)
    return [bytes([number]) + message.SerializeToString() for number, message in enumerate(messages)]


# Checkpoints: a safetensors header in JSON, and our JSON in it. The bytes are our JSON; the tensors stay.


@cache
def _small_checkpoint(folder: Path) -> tuple[dict[str, torch.Tensor], bytes]:
    config = replace(PRESETS["gnn"], hidden=8, layers=1, head=(8,))
    path = folder / "small.safetensors"
    new_checkpoint(config, synthetic.vectors(), synthetic.programs(2, 3), seed=0).save(path)
    return _parts(path)


@cache
def _small_ranker(folder: Path) -> tuple[dict[str, torch.Tensor], bytes]:
    make, settings = MODELS["tgraph"]
    config = settings(kind="layout", channels=8)
    net = make(config)
    scale = Scale(np.zeros(134), np.ones(134))
    path = folder / "small-ranker.safetensors"
    Ranker("tgraph", config, scale, net.state_dict(), 16, card={"collection": "layout:xla:random"}).save(path)
    return _parts(path)


def _parts(path: Path) -> tuple[dict[str, torch.Tensor], bytes]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        info = file.metadata()["tvm_gnn_cost"].encode()
        return {name: file.get_tensor(name) for name in file.keys()}, info  # noqa: SIM118


def _write_checkpoint(path: Path, tensors: dict[str, torch.Tensor], info: bytes) -> None:
    path.write_bytes(save(tensors, metadata={"tvm_gnn_cost": info.decode("utf-8", "replace")}))


def _checkpoint(data: bytes, folder: Path) -> None:
    tensors, _ = _small_checkpoint(folder)
    path = folder / "c.safetensors"
    _write_checkpoint(path, tensors, data)
    Scorer(Checkpoint.load(path)).score(synthetic.graphs(1))


def _ranker(data: bytes, folder: Path) -> None:
    tensors, _ = _small_ranker(folder)
    path = folder / "r.safetensors"
    _write_checkpoint(path, tensors, data)
    Ranker.load(path).build()


def _safetensors(data: bytes, folder: Path) -> None:
    """The bytes of a whole file."""
    path = folder / "c.safetensors"
    path.write_bytes(data)
    Checkpoint.load(path)


def _safetensors_seeds(folder: Path) -> list[bytes]:
    small = save({"x": torch.zeros(2), "y": torch.ones(1, dtype=torch.int8)}, metadata={"tvm_gnn_cost": "{}"})
    _small_checkpoint(folder)
    return [small, (folder / "small.safetensors").read_bytes()]


# Stores. Pages have checksums; the bytes are our JSON in the metadata, or a column's values.


@cache
def _small_table(folder: Path) -> Any:
    path = GraphStore(folder / "small-store").append(synthetic.programs(2, 2, failed=1), keys=list("abcd"))
    return pq.read_table(path)


def _store(data: bytes, folder: Path) -> None:
    table = _small_table(folder)
    if data[:1] < b"\x80":
        table = table.replace_schema_metadata({b"graph_store": data[1:]})
    else:
        names = ("node_type", "values", "edges", "relation", "task", "latency")
        name = names[data[0] % len(names)]
        at = table.schema.get_field_index(name)
        values = np.frombuffer(data[1 : 1 + (len(data) - 1) // 8 * 8], np.int64)
        if name in ("task", "latency"):
            column = pa.array(np.resize(values, 4) if len(values) else np.zeros(4, np.int64))
            column = column.cast(table.schema.field(at).type, safe=False)
        else:
            column = pa.array([data[1:], *table.column(name).to_pylist()[1:]], pa.large_binary())
        table = table.set_column(at, name, column)
    store = folder / "store"
    store.mkdir(exist_ok=True)
    pq.write_table(table, store / "shard-00000.parquet")
    programs = GraphStore(store).load()
    assert len(programs) == 4


def _store_seeds(folder: Path) -> list[bytes]:
    table = _small_table(folder)
    found = [b"\x00" + table.schema.metadata[b"graph_store"]]
    for number, name in enumerate(("node_type", "values", "edges", "relation")):
        found.append(bytes([0x80 + (number - 0x80) % 6]) + table.column(name).to_pylist()[0])
    return [*found, b"\x84" + struct.pack("<q", 1), b"\x85" + struct.pack("<q", -1)]


def _shard(data: bytes, folder: Path) -> None:
    """The bytes of a whole shard."""
    store = folder / "shard"
    store.mkdir(exist_ok=True)
    (store / "shard-00000.parquet").write_bytes(data)
    GraphStore(store).load()


def _shard_seeds(folder: Path) -> list[bytes]:
    _small_table(folder)
    return [(folder / "small-store" / "shard-00000.parquet").read_bytes()]


def _result_seeds(_folder: Path) -> list[bytes]:
    from tests.tuning.test_result import result

    return [json.dumps({name: value for name, value in asdict(result()).items() if name != "work_dir"}).encode()]


# Databases: TVM reads a part of each.


def _database(data: bytes, folder: Path) -> None:
    from tests.fuzz import database

    database.read(data, folder)


def _database_seeds(folder: Path) -> list[bytes]:
    from tests.fuzz import database

    return database.seeds(folder)


def _text(*values: object) -> Callable[[Path], list[bytes]]:
    return lambda _folder: [json.dumps(value).encode() for value in values]


_LOG = [json.dumps(_RECORD).encode() + b"\n" + json.dumps(_RECORD | {"r": [[1e10], 4, 0, 1]}).encode() + b"\n"]

TARGETS: dict[str, Target] = {
    "record": Target(_record, _text(_RECORD, _RECORD | {"r": [[1e10], 4, 0.0, 1]}), is_json=True),
    "lines": Target(
        _lines,
        lambda _: [bytes([kind]) + _LOG[0] for kind in range(3)] + [b"\x05" + gzip.compress(_LOG[0])],
        is_json=True,
    ),
    "card": Target(
        _card,
        _text({"machine": {"processor": "x"}, "target": "llvm", "runs": [{"date": "2026-01-01"}]}),
        is_json=True,
    ),
    "result": Target(_result, _result_seeds, is_json=True),
    "database": Target(_database, _database_seeds, is_json=True, needs="s_tir"),
    "pickle": Target(
        _pickle,
        lambda _: [b"\x80\x04]\x94(K\x01K\x02e.", b"ctvm.auto_scheduler.search_task\nSearchTask\n.", b"(]]tp0\n."],
    ),
    "npz": Target(_npz, _npz_seeds),
    "archive": Target(_archive, _archive_seeds),
    "prepared": Target(_prepared, _prepared_seeds),
    "protos": Target(_protos, _protos_seeds),
    "checkpoint": Target(_checkpoint, lambda folder: [_small_checkpoint(folder)[1]], is_json=True),
    "ranker": Target(_ranker, lambda folder: [_small_ranker(folder)[1]], is_json=True),
    "safetensors": Target(_safetensors, _safetensors_seeds),
    "store": Target(_store, _store_seeds, is_json=True),
    "shard": Target(_shard, _shard_seeds),
}
