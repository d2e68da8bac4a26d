from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.datasets.tenset import (
    FAILURES,
    RecordLine,
    is_tenset,
    network_name,
    parse_record,
    record_files,
    record_lines,
)
from tvm_gnn_cost.errors import InputError

KEY = '["d7b65649a4dd54becea0a52aabbc5af5", 1, 1000, 1, 1000]'


def line(text: str) -> RecordLine:
    return RecordLine(Path("log.json"), 1, text)


def record(version: object = "v0.6", code: object = 0, costs: object = (0.5, 0.25)) -> str:
    return json.dumps({"i": [[KEY, "llvm"], [[], []]], "r": [costs, code, 1.0, 7], "v": version})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("((resnet_18,[]),llvm).task.pkl", "resnet_18"),
        ("((squeezenet_v1.1,[]),llvm).task.pkl", "squeezenet_v1.1"),
        ("((resnet_50,[(1,3,224,224)]),cuda).task.pkl", "resnet_50[(1,3,224,224)]"),
        ("mine.task.pkl", "mine"),
        ("((resnet_18,[]),llvm).task.pkl.xz", "resnet_18"),
    ],
)
def test_network_names(name: str, expected: str) -> None:
    assert network_name(Path("network_info") / name) == expected


@pytest.mark.parametrize("version", ["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"])
def test_versions(version: str) -> None:
    source = line(record(version))
    result = parse_record(source)
    assert (result.workload_key, result.target, result.run_secs, result.failure) == (KEY, "llvm", (0.5, 0.25), "")
    assert result.source is source


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (1, "instantiation-error"),
        (2, "build-error"),
        (3, "build-error"),
        (4, "run-error"),
        (5, "wrong-answer"),
        (6, "build-timeout"),
        (7, "run-timeout"),
        (8, "unknown"),
    ],
)
def test_error_codes(code: int, failure: str) -> None:
    result = parse_record(line(record(code=code, costs=[1e10])))
    assert (result.run_secs, result.failure) == ((), failure)
    assert FAILURES[code] is Failure(failure)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"i": [', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not a measure record"),
        ("7", "not a measure record"),
        ('"text"', "not a measure record"),
        ("{}", "not a measure record"),
        ('{"i": [["key"], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "not a measure record"),
        ('{"i": [["key", "llvm"], [[]]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "not a measure record"),
        ('{"i": [["key", "llvm"], [[], []]], "r": [[1]], "v": "v0.6"}', "not a measure record"),
        ('{"i": [[1, "llvm"], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "workload key"),
        ('{"i": [["key", 1], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "workload key and a target"),
        ('{"i": [["key", "llvm"], [[], {}]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "the state a list of steps"),
        (record("v0.1"), "version 'v0.1'"),
        (record(None), "version None"),
        (record(code=9), "error code 9"),
        (record(code="0"), "error code '0'"),
        (record(costs=[]), "no costs"),
        (record(costs=1.0), "no costs"),
        (record(costs=[-1]), "not all positive"),
        (record(costs=[0]), "not all positive"),
        (record(costs=["1"]), "not all positive"),
        (record(costs=[float("nan")]), "not all positive"),
        (record(costs=[1.0, float("inf")]), "not all positive"),
        # What auto_scheduler writes for a program that failed.
        (record(costs=[1e10]), "not all positive"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_record(line(text))


def test_comments_and_empty_lines_are_no_records(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_bytes(b"# made by\n\n{}\n  \n \xff\n[1]")
    results = list(record_lines(file))
    assert [(item.line, item.text) for item in results] == [(3, "{}"), (5, "\ufffd"), (6, "[1]")]
    assert {item.file for item in results} == {file}


def test_a_compressed_file_is_read_and_a_damaged_one_named(tmp_path: Path) -> None:
    text = b'{"n": 1}\n' * 500
    (tmp_path / "cpu").mkdir()
    for name, content in {"a.json": text, "b.json.gz": gzip.compress(text), "c.json.xz": lzma.compress(text)}.items():
        (tmp_path / "cpu" / name).write_bytes(content)
    files = record_files(tmp_path)
    assert [path.name for path in files] == ["a.json", "b.json.gz", "c.json.xz"]
    assert [sum(1 for _ in record_lines(path)) for path in files] == [500, 500, 500]
    for path in files[1:]:
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(InputError, match=rf"{path.name} is cut off or damaged"):
            list(record_lines(path))


def test_the_layout_is_known_by_either_folder(tmp_path: Path) -> None:
    assert not is_tenset(tmp_path)
    assert not is_tenset(tmp_path / "missing")
    (tmp_path / "a" / "network_info").mkdir(parents=True)
    (tmp_path / "b" / "measure_records").mkdir(parents=True)
    assert is_tenset(tmp_path / "a")
    assert is_tenset(tmp_path / "b")


def test_the_files_of_one_machine_are_found(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "notes.txt"):
        path = tmp_path / "epyc" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "card.json").touch()
    expected = (tmp_path / "epyc" / "a.json", tmp_path / "epyc" / "b.json")
    assert record_files(tmp_path) == record_files(tmp_path, "epyc") == expected
    (tmp_path / "e5").mkdir()
    assert record_files(tmp_path, "epyc") == expected
    with pytest.raises(InputError, match="records of several machines; hardware must be one of: e5, epyc"):
        record_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no folder m1; it has: e5, epyc"):
        record_files(tmp_path, "m1")
    with pytest.raises(FileNotFoundError, match="has no folder with records"):
        record_files(tmp_path / "missing")
