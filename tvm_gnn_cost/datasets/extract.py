"""Turns the records of a MetaSchedule database into graphs in a store; talks to TVM."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.meta_schedule import Collection, Record, read_collection
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, RaggedFeatures, TaskInfo
from tvm_gnn_cost.datasets.records import Extraction, Problem, Progress, latency_and_noise
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.extract import extract_graphs
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.measuring.preload import import_tensor_intrin


def extract_collection(
    folder: Path,
    store: GraphStore,
    *,
    detail: Detail = "tree",
    per_store_features: bool = True,
    programs_at_once: int = 512,
    progress: Progress | None = None,
) -> Extraction:
    """Replays the records of a collection and appends their graphs to a store, a shard at a time.

    Records that are in the store already are not replayed again, so an interrupted extraction goes on where it was.

    Args:
        folder: What :func:`read_collection` takes.
        store: Where the programs go.
        detail: How much of the syntax tree is kept, see ``extract_graphs``.
        per_store_features: Also extract TVM's own features, which its XGBoost model needs; slower by half.
        programs_at_once: Programs replayed and held in memory at a time, one shard of the store.
        progress: Told after every shard.

    Raises:
        FileNotFoundError: the folder holds no MetaSchedule database.
        ValueError: the store was written by another version, or with another detail.
    """
    collection = read_collection(folder)
    if store.detail() not in (None, detail):
        raise ValueError(
            f"{store.folder} holds graphs of detail '{store.detail()}', not '{detail}'; extract into another folder"
        )
    import_tensor_intrin()
    keys = [_key(collection, record) for record in collection.records]
    present = store.keys()
    new = {key: record for key, record in zip(keys, collection.records, strict=True) if key not in present}
    problems = list(collection.problems)
    known, added = len(keys) - len(new), 0
    waiting = list(new.items())
    for start in range(0, len(waiting), programs_at_once):
        chunk = waiting[start : start + programs_at_once]
        added += _extract_chunk(collection, chunk, store, detail, per_store_features, problems)
        if progress is not None:
            progress.extracted(known + start + len(chunk), len(keys))
    store.add_networks(collection.task(record) for record in collection.records)
    return Extraction(added, known, tuple(problems))


def _extract_chunk(
    collection: Collection,
    chunk: Sequence[tuple[str, Record]],
    store: GraphStore,
    detail: Detail,
    per_store_features: bool,
    problems: list[Problem],
) -> int:
    """Replays, extracts and stores one shard's worth of records; returns how many could be."""
    kept: list[tuple[str, Record, Any]] = []
    for key, record in chunk:
        try:
            kept.append((key, record, collection.replay(record)))
        except ValueError as error:
            problems.append(Problem(collection.folder / "database_tuning_record.json", record.line, str(error)))
    if not kept:
        return 0
    records = [record for _, record, _ in kept]
    graphs = extract_graphs([candidate.sch.mod for _, _, candidate in kept], detail=detail, on_error="skip")
    numbers: dict[tuple[str, str], int] = {}
    tasks: list[TaskInfo] = []
    task = np.empty(len(records), np.int32)
    for i, record in enumerate(records):
        info = collection.task(record)
        task[i] = numbers.setdefault((info.hash, info.target), len(numbers))
        if task[i] == len(tasks):
            tasks.append(info)
    features = None
    if per_store_features:
        features = _per_store_features(collection, records, [candidate for _, _, candidate in kept], task)
    run_secs = [record.run_secs for record in records]
    programs = MeasuredPrograms(
        graphs,
        tuple(tasks),
        task,
        *latency_and_noise(run_secs),
        tuple(record.failure for record in records),
        tuple(record.phase for record in records),
        features,
    )
    store.append(programs, run_secs=run_secs, keys=[key for key, _, _ in kept])
    return len(kept)


def _per_store_features(
    collection: Collection, records: Sequence[Record], candidates: Sequence[Any], task: npt.NDArray[np.int32]
) -> RaggedFeatures:
    """TVM's features; none for a program that TVM cannot lower."""
    extractor = ms.feature_extractor.PerStoreFeature()
    out: list[npt.NDArray[np.float32]] = [np.zeros((0, PER_STORE_COLUMNS), np.float32)] * len(records)
    for number in np.unique(task):
        members = np.flatnonzero(task == number).tolist()
        first = records[members[0]]
        context = ms.TuneContext(collection.workload(first).mod, target=tvm.target.Target(json.loads(first.target)))
        found = _features_of_task(extractor, context, [candidates[i] for i in members])
        for i, rows in zip(members, found, strict=True):
            out[i] = rows
    return RaggedFeatures.of(out)


def _features_of_task(extractor: Any, context: Any, candidates: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    try:
        return [rows.numpy().astype(np.float32) for rows in extractor.extract_from(context, candidates)]
    except Exception:  # One program that cannot be lowered fails the whole call; TVM has no narrower error for it.
        if len(candidates) == 1:
            return [np.zeros((0, PER_STORE_COLUMNS), np.float32)]
        return [rows for candidate in candidates for rows in _features_of_task(extractor, context, [candidate])]


def _key(collection: Collection, record: Record) -> str:
    """Names a measurement: the same record in two folders, or compressed, has the same key."""
    parts = (collection.workload(record).hash, record.target, record.trace, repr(record.run_secs), record.failure)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
