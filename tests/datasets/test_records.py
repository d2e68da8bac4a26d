from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.datasets.records import (
    WORKLOADS,
    Failure,
    Problem,
    find_file,
    is_database,
    last_line,
    latency_and_noise,
    parsed_lines,
    parsed_objects,
    summarise_repeats,
    unpack,
)
from tvm_gnn_cost.errors import InputError


def test_repeats_are_summarised_by_the_fastest() -> None:
    assert summarise_repeats([3.0, 1.0, 2.0]) == (1.0, 0.5)
    assert summarise_repeats([])[0] == np.inf
    assert np.isnan(summarise_repeats([1.0])[1])


def test_one_outlier_does_not_move_the_latency() -> None:
    assert summarise_repeats([1.0, 1.0, 1.0, 1.0, 50.0])[0] == 1.0
    assert summarise_repeats([2.0, 1.5])[0] == 1.5


def test_noise_does_not_depend_on_the_unit() -> None:
    seconds = np.random.default_rng(0).random(9)
    assert summarise_repeats(seconds.tolist())[1] == pytest.approx(summarise_repeats((1e3 * seconds).tolist())[1])
    assert summarise_repeats(seconds.tolist())[1] == pytest.approx(seconds.std(ddof=1) / seconds.mean())


def test_programs_are_summarised_one_by_one() -> None:
    latency, noise = latency_and_noise([(3.0, 1.0, 2.0), (), (5.0,)])
    assert latency.tolist() == [1.0, np.inf, 5.0]
    assert (latency.dtype, noise.dtype) == (np.float64, np.float32)
    assert noise[0] == 0.5
    assert np.isnan(noise[1:]).all()
    assert [len(array) for array in latency_and_noise([])] == [0, 0]


def test_a_problem_reads_like_a_compilers_message() -> None:
    assert str(Problem(Path("data/log.json"), 12, "not JSON")) == "data/log.json:12: not JSON"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("Traceback (most recent call last):\n  File x\nInternalError: no block\n"),
            "InternalError: no block",
        ),
        (ValueError("one sentence"), "one sentence"),
        (KeyError(), "KeyError"),
        (RuntimeError(" \n"), "RuntimeError"),
    ],
)
def test_the_last_line_of_an_error_is_its_sentence(error: Exception, line: str) -> None:
    assert last_line(error) == line


def test_the_texts_are_those_of_every_store_that_was_written() -> None:
    assert {kind.name: str(kind) for kind in Failure} == {
        "INSTANTIATION_ERROR": "instantiation-error",
        "BUILD_ERROR": "build-error",
        "BUILD_TIMEOUT": "build-timeout",
        "RUN_ERROR": "run-error",
        "RUN_TIMEOUT": "run-timeout",
        "WRONG_ANSWER": "wrong-answer",
        "UNKNOWN": "unknown",
    }


def test_a_failure_is_a_text_in_json_and_back() -> None:
    assert json.dumps({"failure": Failure.RUN_TIMEOUT}) == '{"failure": "run-timeout"}'
    assert Failure(json.loads('"run-timeout"')) is Failure.RUN_TIMEOUT
    assert Failure.RUN_TIMEOUT == "run-timeout"
    assert bool(Failure.UNKNOWN)
    with pytest.raises(ValueError, match="'broken' is not a valid Failure"):
        Failure("broken")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_a_database_is_known_by_its_workloads(tmp_path: Path, suffix: str) -> None:
    assert not is_database(tmp_path)
    (tmp_path / f"{WORKLOADS}{suffix}").touch()
    assert is_database(tmp_path)


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
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


def test_broken_lines_are_reported_and_skipped(file: Path) -> None:
    problems: list[Problem] = []
    result = list(parsed_lines(file, problems))
    assert result == [(1, {"a": 1}), (2, [2]), (3, None), (4, None), (5, None), (6, None), (7, {"b": 3})]
    assert [problem.line for problem in problems] == [3, 4, 5, 6]
    assert {problem.file for problem in problems} == {file}
    assert problems[0].reason.startswith("not JSON (")
    assert problems[1].reason == "is null"


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
    result = list(parsed_lines(path, problems))
    assert result == ([] if cut == 5 else [(1, 1), (2, 2)])
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
