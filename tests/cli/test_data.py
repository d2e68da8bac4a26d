from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import synthetic
from tests.command import assert_mistake, call, call_json
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.collect import collect


@pytest.mark.needs("tvm")
def test_collect_counts_and_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--random", 2, "--guided", 0, "--patience", 0, "--scheduler", scheduler().name)
    found = call_json(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert found["folder"] == str(tmp_path / "data")
    assert found["tasks"] == 1
    assert found["measured"] + found["failed"] == 2
    code, _, err = call(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert code == 0
    assert f"{tmp_path / 'data'}: 2 programs, {found['failed']} failed; 0 of them measured now" in err


@pytest.mark.needs("tvm")
def test_collect_names_mistakes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = scheduler().name
    answer = call(capfd, "collect", "nosuch", tmp_path / "data", "--scheduler", name)
    assert_mistake(answer, "'nosuch'")
    other = "auto-scheduler" if name == "meta-schedule" else "meta-schedule"
    answer = call(capfd, "collect", "softmax/0", tmp_path / "data", "--scheduler", other)
    assert_mistake(answer, "failed: this needs ", code=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("auto_scheduler")
def test_the_name_of_the_hardware_is_a_folders(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--scheduler", "auto-scheduler", "--hardware", "../elsewhere")
    answer = call(capfd, "collect", "softmax/0", tmp_path / "data", *options)
    assert_mistake(answer, "hardware '../elsewhere' cannot name a folder")


def test_noisy_tasks_are_listed_and_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = {"calm": [1.0, 1.01], "noisy": [1.0, 2.0]}
    for name, lines in {
        "database_tuning_record.json": [[0, [[], values, {}, []]] for values in seconds.values()],
        "measurements.jsonl": [{"task": task} for task in seconds],
        "tasks.jsonl": [{"hash": task, "name": task.upper()} for task in seconds],
    }.items():
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, _, err = call(capfd, "check-data", tmp_path)
    assert code == 0
    assert "0.333  NOISY" in err
    found = call_json(capfd, "check-data", tmp_path, "--drop")
    assert found["noisy"] == [["NOISY", pytest.approx(1 / 3)]]
    assert (found["tasks"], found["dropped"]) == (2, 1)


def test_check_data_rejects_another_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "check-data", tmp_path), "has no database_tuning_record.json")


@pytest.mark.needs("auto_scheduler")
def test_a_log_becomes_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.schedulers.auto_scheduler.small_tasks import files_of

    log = tmp_path / "tuned.json"
    log.write_text(files_of("mobilenet", 3)[0].read_text())
    count = len(log.read_text().splitlines())
    found = call_json(capfd, "import-log", log, tmp_path / "data", "--network", "mobilenet", "--hardware", "theirs")
    network_tasks = found.pop("network_tasks")
    assert network_tasks > 1
    assert found == {"folder": str(tmp_path / "data"), "records": count, "tasks": 1, "left_out": 0}
    assert len(list((tmp_path / "data" / "measure_records" / "theirs").iterdir())) == 1


@pytest.mark.needs("auto_scheduler")
def test_import_log_names_mistakes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.json").write_text("no record\n")
    assert_mistake(
        call(capfd, "import-log", tmp_path / "log.json", tmp_path / "data", "--network", "mobilenet"),
        "has no measure record of auto_scheduler",
    )
    code, _, err = call(capfd, "import-log", tmp_path / "none.json", tmp_path / "data", "--network", "mobilenet")
    assert code == 2
    assert "none.json" in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "collection"
    collect(["softmax/0"], out, random=3, guided=0, turns=1, patience_s=0)
    return out


@pytest.mark.needs("tvm")
def test_extract_adds_each_program_once(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    first = call_json(capfd, "extract", folder, store)
    assert first == {"store": str(store), "added": 3, "known": 0, "left_out": 0}
    again = call_json(capfd, "extract", folder, store)
    assert (again["added"], again["known"]) == (0, 3)
    assert GraphStore(store).detail() == "statements"
    assert_mistake(call(capfd, "extract", folder, store, "--detail", "tree"), "holds graphs of detail 'statements'")


@pytest.mark.needs("tvm")
def test_a_folder_without_records_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capfd, "extract", tmp_path, tmp_path / "store")
    assert code == 2
    what = "a MetaSchedule database" if scheduler().name == "meta-schedule" else "in TenSet's layout"
    assert f"{tmp_path} is not {what}" in err
    assert "Traceback" not in err


@pytest.mark.needs("auto_scheduler")
def test_a_machine_that_is_not_there_is_named(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "extract", folder, tmp_path / "store", "--hardware", "t4"), "has no folder t4")


def test_embed_draws_the_types(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = call_json(capfd, "embed", store, tmp_path / "types.png")
    assert set(synthetic.TYPES) <= set(found["types"])
    assert (tmp_path / "types.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_an_unknown_format_is_a_mistake(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = call(capfd, "embed", store, tmp_path / "types.docx")
    assert_mistake(answer, "types.docx: the file name must end in one of: ")
