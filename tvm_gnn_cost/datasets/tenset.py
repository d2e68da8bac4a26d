"""TenSet's folder layout and its measure records (Zheng et al. 2021, github.com/tlc-pack/tenset).

::

    network_info/all_tasks.pkl                   all tasks, a list of SearchTasks
    network_info/((resnet_18,[]),llvm).task.pkl  a network's tasks and the number of times that each occurs in it
    measure_records/<hardware>/*.json            measure records of auto_scheduler, one on each line

Each file may be compressed, with the suffix ``.gz`` or ``.xz``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tvm_gnn_cost.datasets.records import DAMAGED, Failure, open_file
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json

#: ``MeasureErrorNo`` of ``auto_scheduler`` -> kind of failure; 0 is success.
FAILURES = {
    1: Failure.INSTANTIATION_ERROR,
    2: Failure.BUILD_ERROR,
    3: Failure.BUILD_ERROR,
    4: Failure.RUN_ERROR,
    5: Failure.WRONG_ANSWER,
    6: Failure.BUILD_TIMEOUT,
    7: Failure.RUN_TIMEOUT,
    8: Failure.UNKNOWN,
}
#: Kind of failure -> its first ``MeasureErrorNo``.
CODES = {failure: code for code, failure in reversed(FAILURES.items())}


@dataclass(frozen=True)
class RecordLine:
    """One line of a file of measure records, numbered from 1."""

    file: Path
    line: int
    text: str


@dataclass(frozen=True)
class TensetRecord:
    """A measure record without its state, which only TVM can parse.

    Attributes:
        source: Its line in the file.
        workload_key: Identifies its task.
        target: The target, as TVM wrote it.
        run_secs: Latency of each repeat in seconds; empty if the program failed.
        failure: Its :class:`~tvm_gnn_cost.datasets.records.Failure`; empty if it ran.
    """

    source: RecordLine
    workload_key: str
    target: str
    run_secs: tuple[float, ...]
    failure: str


def is_tenset(folder: Path) -> bool:
    """Whether a folder has TenSet's layout."""
    return (folder / "network_info").is_dir() or (folder / "measure_records").is_dir()


def record_files(records: Path, hardware: str | None = None) -> tuple[Path, ...]:
    """The files of measure records of one machine, sorted.

    Args:
        records: The folder ``measure_records``.
        hardware: The machine's subfolder; None if there is only one.

    Raises:
        InputError: ``hardware`` is None and there are several machines.
        FileNotFoundError: the subfolder does not exist.
    """
    result = sorted(path.name for path in records.iterdir() if path.is_dir()) if records.is_dir() else []
    if hardware is None and len(result) == 1:
        hardware = result[0]
    if hardware is None and result:
        raise InputError(f"{records} has records of several machines; hardware must be one of: {', '.join(result)}")
    if hardware not in result:
        raise FileNotFoundError(f"{records} has no folder {hardware or 'with records'}; it has: {', '.join(result)}")
    return tuple(files_ending(records / str(hardware), ".json"))


def files_ending(folder: Path, ending: str) -> list[Path]:
    """The files of a folder with a suffix, plain or compressed, sorted."""
    return sorted(path for suffix in ("", ".gz", ".xz") for path in folder.glob(f"*{ending}{suffix}"))


def record_lines(file: Path) -> Iterator[RecordLine]:
    """Yields the lines of a file of measure records, without comments and empty lines, reading one at a time.

    Raises:
        InputError: the compressed file is damaged.
    """
    with open_file(file) as lines:
        try:
            for number, raw in enumerate(lines, 1):
                text = raw.decode("utf-8", "replace").strip()
                if text and not text.startswith("#"):
                    yield RecordLine(file, number, text)
        except DAMAGED as error:
            raise InputError(f"{file} is cut off or damaged ({error}); get it again") from error


def record_file(records: Path, workload_key: str, kind: str = "llvm") -> Path:
    """The file of a task's records in a machine's folder, named as in TenSet.

    >>> record_file(Path("cpu"), '["4d0b", [1, 8]]').name
    '([4d0b,[1,8]],llvm).json'
    """
    text = f"({workload_key}, {kind})"
    return records / ("".join(character for character in text if character not in " '\"") + ".json")


def network_file(info: Path, network: str) -> Path:
    """The file of a network's tasks in ``network_info``.

    >>> network_file(Path("info"), "resnet-18").name
    '((resnet_18,[]),llvm).task.pkl'
    """
    return info / f"(({network.replace('-', '_')},[]),llvm).task.pkl"


def network_name(path: Path) -> str:
    """The network of a ``.task.pkl`` file, with its input shapes if the file's name has them.

    >>> network_name(Path("((resnet_50,[]),llvm).task.pkl"))
    'resnet_50'
    >>> network_name(Path("((resnet_50,[(1,3,224,224)]),llvm).task.pkl"))
    'resnet_50[(1,3,224,224)]'
    """
    name = path.name.partition(".task.pkl")[0]
    match = re.fullmatch(r"\(?\(?([^,()\[\]]+),(\[.*\])\)?,[^,]*\)?", name)
    if match is None:
        return name
    return match[1] if match[2] == "[]" else match[1] + match[2]


def parse_record(source: RecordLine) -> TensetRecord:
    """Parses and checks a measure record, except for its state.

    Raises:
        InputError: the line is not a measure record; the message gives the reason but not the line.
    """
    try:
        entry = parse_json(source.text)
    except ValueError as error:
        raise InputError(f"not JSON ({error})") from None
    try:
        (task, state), (costs, error_code, *_rest) = entry["i"], entry["r"]
        workload_key, target = task[0], task[1]
        steps = state[1]
    except (TypeError, ValueError, KeyError, IndexError):
        raise InputError('not a measure record: expected {"i": [task, state], "r": [costs, error, ...]}') from None
    if not isinstance(workload_key, str) or not isinstance(target, str) or not isinstance(steps, list):
        raise InputError("not a measure record: the task needs a workload key and a target, the state a list of steps")
    version = entry.get("v")
    if not (isinstance(version, str) and re.fullmatch(r"v0\.[2-6]", version)):
        raise InputError(f"record version {version!r}; v0.2 to v0.6 are known")
    if not isinstance(error_code, int) or (error_code != 0 and error_code not in FAILURES):
        raise InputError(f"error code {error_code!r} is unknown to auto_scheduler")
    if error_code:
        return TensetRecord(source, workload_key, target, (), FAILURES[error_code])
    if not isinstance(costs, list) or not costs:
        raise InputError("it has no costs: the program was never measured")
    if not all(isinstance(cost, int | float) and 0 < cost < 1e10 for cost in costs):
        raise InputError(f"costs {costs} are not all positive numbers of seconds")
    return TensetRecord(source, workload_key, target, tuple(map(float, costs)), "")
