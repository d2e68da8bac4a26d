"""A MetaSchedule database of which one file is bytes; needs today's TVM."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import tvm
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.database.small_database import small_tasks
from tvm_gnn_cost.datasets.records import RECORDS, WORKLOADS
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.schedulers.database.records import read_database
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin

_FILES = (WORKLOADS, RECORDS, "tasks.jsonl", "measurements.jsonl", "card.json")


@cache
def _contents(folder: Path) -> dict[str, bytes]:
    """The files of a database of two tasks with two programs each, as ``collect`` leaves them."""
    import_tensor_intrin()
    made = folder / "made-database"
    made.mkdir()
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    database = ms.database.JSONDatabase(work_dir=str(made))
    tasks, measurements = [], []
    for number, mod in enumerate(small_tasks()):
        context = ms.TuneContext(
            mod, target=target, space_generator="post-order-apply", search_strategy="replay-trace", rand_state=3
        )
        context.pre_tuning(2, 2)
        key = ms.utils.shash2hex(mod)
        tasks.append(f'{{"hash": "{key}", "name": "task-{number}", "weights": {{"network": 2}}}}\n')
        for candidate in context.generate_measure_candidates():
            record = ms.database.TuningRecord(
                candidate.sch.trace, database.commit_workload(mod), [0.001], target, candidate.args_info
            )
            database.commit_tuning_record(record)
            measurements.append(f'{{"task": "{key}", "phase": "random", "failure": ""}}\n')
        context.post_tuning()
    own = {"tasks.jsonl": "".join(tasks), "measurements.jsonl": "".join(measurements), "card.json": '{"seed": 0}'}
    packed = {name: text.encode() for name, text in own.items()}
    return packed | {name: (made / name).read_bytes() for name in (WORKLOADS, RECORDS)}


def read(data: bytes, folder: Path) -> None:
    """Reads and replays a database; the first byte chooses the file that the others are."""
    contents = _contents(folder)
    (folder / "read").mkdir(exist_ok=True)
    for number, name in enumerate(_FILES):
        is_chosen = number == (data[0] % len(_FILES) if data else 0)
        (folder / "read" / name).write_bytes(data[1:] if is_chosen else contents[name])
    database = read_database(folder / "read")
    refused = [InputError(str(problem)) for problem in database.problems]
    for record in database.records:
        database.task(record)
        try:
            candidate = database.replay(record)
        except InputError as error:
            refused.append(error)
        else:
            extract_graphs([candidate.sch.mod], detail="statements", threads=1, on_error="skip")
    if refused:
        raise refused[0]


def seeds(folder: Path) -> list[bytes]:
    """The files as they are, one at a time."""
    contents = _contents(folder)
    return [bytes([number]) + contents[name] for number, name in enumerate(_FILES)]
