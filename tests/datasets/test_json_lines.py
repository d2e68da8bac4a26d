from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from tvm_gnn_cost.datasets.json_lines import find_file, parsed_lines, parsed_objects, unpack
from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.errors import InputError

LINES = b'{"a": 1}\n[2]\n{"a": \nnull\n\n"\xff"\n{"b": 3}\n'


@pytest.fixture(params=["log.jsonl", "log.jsonl.gz", "log.jsonl.xz"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(LINES))
    return path


def test_compressed_files_are_unpacked(file: Path) -> None:
    other = file.with_name("other.gz")
    other.write_bytes(b"not of the folder's layout")
    unpack(file.parent, ["*.jsonl"])
    assert {path.name: path.read_bytes() for path in file.parent.iterdir()} == {
        "log.jsonl": LINES,
        "other.gz": other.read_bytes(),
    }


def test_a_file_that_has_grown_since_it_was_unpacked_stays(tmp_path: Path) -> None:
    packed, grown = tmp_path / "log.jsonl.gz", tmp_path / "log.jsonl"
    packed.write_bytes(gzip.compress(LINES))
    grown.write_bytes(LINES + b"1\n")
    unpack(tmp_path, ["*.jsonl"])
    assert packed.exists()
    assert grown.read_bytes() == LINES + b"1\n"


def test_a_damaged_file_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.xz"
    path.write_bytes(lzma.compress(LINES)[:-9])
    with pytest.raises(InputError, match=r"log\.jsonl\.xz is cut off or damaged .*; get it again"):
        unpack(tmp_path, ["*.jsonl"])
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_broken_lines_are_reported_and_skipped(file: Path) -> None:
    problems: list[Problem] = []
    found = list(parsed_lines(file, problems))
    assert found == [(1, {"a": 1}), (2, [2]), (3, None), (4, None), (5, None), (6, None), (7, {"b": 3})]
    assert [problem.line for problem in problems] == [3, 4, 5, 6]
    assert {problem.file for problem in problems} == {file}
    assert problems[0].reason.startswith("not JSON (")
    assert problems[1].reason == "holds nothing (null)"


def test_only_objects_are_yielded(file: Path) -> None:
    problems: list[Problem] = []
    assert list(parsed_objects(file, problems)) == [(1, {"a": 1}), (7, {"b": 3})]
    assert [problem.line for problem in problems] == [2, 3, 4, 5, 6]
    assert problems[0].reason == "expected a JSON object"


def test_a_missing_file_has_no_objects() -> None:
    problems: list[Problem] = []
    assert list(parsed_objects(None, problems)) == []
    assert not problems


def test_a_line_nested_too_deeply_is_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("[" * 100_000 + "\n1\n")
    problems: list[Problem] = []
    assert list(parsed_lines(path, problems)) == [(1, None), (2, 1)]
    assert problems[0].reason.startswith("not JSON (")


@pytest.mark.parametrize("cut", [5, -1, -8])
def test_what_stands_before_the_damage_of_a_gzip_file_is_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.jsonl.gz"
    # An uncompressed block, so that the lines before the end can be read.
    path.write_bytes(gzip.compress(b"1\n2\n", compresslevel=0)[:cut])
    problems: list[Problem] = []
    found = list(parsed_lines(path, problems))
    assert found == ([] if cut == 5 else [(1, 1), (2, 2)])
    assert [problem.line for problem in problems] == [0]
    assert "cut off or damaged" in problems[0].reason


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_is_not_compressed_is_reported(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log.jsonl{suffix}"
    path.write_bytes(b"1\n2\n")
    problems: list[Problem] = []
    assert list(parsed_lines(path, problems)) == []
    assert "cut off or damaged" in str(problems[0])


def test_the_plain_file_is_preferred_to_the_compressed_one(tmp_path: Path) -> None:
    assert find_file(tmp_path, "log.jsonl") is None
    (tmp_path / "log.jsonl.gz").touch()
    assert find_file(tmp_path, "log.jsonl") == tmp_path / "log.jsonl.gz"
    (tmp_path / "log.jsonl").touch()
    assert find_file(tmp_path, "log.jsonl") == tmp_path / "log.jsonl"
    (tmp_path / "folder").mkdir()
    assert find_file(tmp_path, "folder") is None
