"""A plain log is made of the project's own records: their keys are changed as another version of TVM writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tvm_gnn_cost.datasets.tenset import parse_record
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tuning.import_log import ImportLogResult, import_log

pytestmark = pytest.mark.needs("auto_scheduler")

RECORDS = 3


def foreign(line: str) -> str:
    """The record with a key of another version: another hash, and sizes that are not nested."""
    entry = json.loads(line)
    _, *shapes = json.loads(entry["i"][0][0])
    entry["i"][0][0] = json.dumps(["f00d", *(size for shape in shapes for size in shape)])
    entry["i"][0][1] = "llvm -keys=cpu -link-params=0"
    return json.dumps(entry)


@pytest.fixture(scope="module", autouse=True)
def extracted_once() -> Iterator[None]:
    """The tests share MobileNet's tasks: extracting them takes ten seconds."""
    from tvm_gnn_cost.schedulers.auto_scheduler import SCHEDULER

    kind, known = type(SCHEDULER), {}
    extract = kind.tasks

    def tasks(self: Any, network: Any, target: Any) -> Any:
        key = network.name, str(target)
        if key not in known:
            known[key] = extract(self, network, target)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "tasks", tasks)
        yield


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """The project's files of records of some of MobileNet's tasks."""
    from tests.schedulers.auto_scheduler.small_tasks import files_of

    return files_of("mobilenet", 3)


@pytest.fixture(scope="module")
def log(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of MobileNet, of a task that it does not have, and a line that is none."""
    from tests.schedulers.auto_scheduler.small_tasks import files_of

    path = tmp_path_factory.mktemp("log") / "tuned.json"
    own = [foreign(line) for file in files for line in file.read_text().splitlines()[:RECORDS]]
    stray = foreign(files_of("resnet_18", 1)[0].read_text().splitlines()[0])
    path.write_text("# a comment\n" + "\n".join([*own, stray, "no record"]) + "\n")
    return path


@pytest.fixture(scope="module")
def imported(log: Path, tmp_path_factory: pytest.TempPathFactory) -> ImportLogResult:
    return import_log(log, tmp_path_factory.mktemp("imported") / "data", "mobilenet", hardware="theirs", jobs=1)


def test_tasks_are_matched_whatever_their_keys(imported: ImportLogResult, files: list[Path]) -> None:
    assert (imported.records, imported.tasks) == (RECORDS * len(files), len(files))
    assert imported.network_tasks >= imported.tasks > 1
    written = sorted((imported.folder / "measure_records" / "theirs").iterdir())
    assert [file.name for file in written] == sorted(file.name for file in files)
    for file in written:
        (original,) = [one for one in files if one.name == file.name]
        ours = [json.loads(line) for line in original.read_text().splitlines()[:RECORDS]]
        theirs = [json.loads(line) for line in file.read_text().splitlines()]
        assert [one["i"][1] for one in theirs] == [one["i"][1] for one in ours]
        assert [one["r"] for one in theirs] == [one["r"] for one in ours]
        assert {one["i"][0][0] for one in theirs} == {ours[0]["i"][0][0]}


def test_what_does_not_belong_is_named(imported: ImportLogResult, log: Path) -> None:
    lines = len(log.read_text().splitlines())
    broken, stray = imported.problems
    assert str(broken).startswith(f"{log}:{lines}: not JSON")
    assert str(stray).startswith(f"{log}:{lines - 1}: no task of mobilenet has tensors of its shapes")


def test_the_folder_can_be_evaluated(imported: ImportLogResult) -> None:
    from tvm_gnn_cost.tuning.evaluate import evaluate

    done = evaluate(imported.folder, ["gnn", "random"], networks=["mobilenet"])
    assert done.problems == ()
    assert sum(task.programs for task in done.models["random"].tasks) == imported.records


def test_a_log_imported_twice_is_there_once(imported: ImportLogResult, log: Path) -> None:
    before = {path: path.read_text() for path in (imported.folder / "measure_records").rglob("*.json")}
    again = import_log(log, imported.folder, "mobilenet", hardware="theirs", jobs=1)
    assert again.records == 0
    assert {path: path.read_text() for path in (imported.folder / "measure_records").rglob("*.json")} == before
    assert all(parse_record(line) for file in before for line in _lines(file))


def _lines(file: Path) -> list[Any]:
    from tvm_gnn_cost.datasets.tenset import record_lines

    return list(record_lines(file))


def test_a_record_of_another_program_of_the_same_shapes_is_not_taken(files: list[Path], tmp_path: Path) -> None:
    # Steps for stages that the task does not have.
    line = json.loads(foreign(files[0].read_text().splitlines()[0]))
    line["i"][1][1] = [["SP", 99, 0, 1, [1], 1]]
    log = tmp_path / "log.json"
    log.write_text(json.dumps(line) + "\n")
    with pytest.raises(
        InputError, match=r"no record of .*log\.json matches a task of mobilenet\n.*apply to no task of"
    ):
        import_log(log, tmp_path / "data", "mobilenet", hardware="theirs")
    assert not (tmp_path / "data").exists()


def test_a_log_without_records_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text("# nothing\n")
    with pytest.raises(InputError, match=r"log\.json has no measure record of auto_scheduler$"):
        import_log(log, tmp_path / "data", "mobilenet")
    log.write_text("[]\n")
    with pytest.raises(InputError, match=r"log\.json:1: not a measure record"):
        import_log(log, tmp_path / "data", "mobilenet")
    with pytest.raises(FileNotFoundError):
        import_log(tmp_path / "none.json", tmp_path / "data", "mobilenet")
