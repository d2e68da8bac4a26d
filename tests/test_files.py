from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import (
    append_lines,
    check_file,
    check_folder,
    check_input_file,
    check_input_folder,
    drop_broken_last_line,
    keep_first_lines,
    parse_json,
    replacing,
    write_json,
    write_text,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from tvm_gnn_cost.files import replacing
with replacing(Path(sys.argv[1])) as unfinished:
    with unfinished.open("w") as file:
        file.write("new " * 100_000)
        file.flush()
        print("written", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.txt"
    for text in ("one", "two"):
        with replacing(path) as unfinished:
            unfinished.write_text(text)
        assert path.read_text() == text
    assert os.listdir(path.parent) == ["a.txt"]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("ne")
        assert path.read_text() == "old"
        # Renaming is atomic within a folder only.
        assert unfinished.parent == path.parent
        unfinished.write_text("new")
    assert path.read_text() == "new"


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("part")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_kill_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "written\n")
    assert path.read_text() == "old"
    # What the killed process left does not stand in the way, and no glob for results finds it.
    assert list(tmp_path.glob("*.txt")) == [path]
    write_text(path, "new")
    assert path.read_text() == "new"
    # It is gone when the next process writes in this folder; another one that still writes is left alone.
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_others_are_writing_and_what_only_looks_like_it_stays(tmp_path: Path) -> None:
    alive = tmp_path / f".a.{os.getppid()}.unfinished"
    names = [alive.name, ".a.unfinished", ".a.12345678901234567890.unfinished", "a.999999999.unfinished"]
    for name in [*names, ".b.999999999.unfinished"]:
        (tmp_path / name).write_text("")
    write_text(tmp_path / "b", "new")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "b"])


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    def write_to_full_disk(path: Path) -> None:
        with replacing(path) as unfinished:
            unfinished.symlink_to("/dev/full")
            unfinished.write_text("text")

    def no_space(path: Path) -> str:
        return rf"^\[Errno 28\] No space left on device: '{path}'$"

    with pytest.raises(OSError, match=no_space(tmp_path / "a.txt")):
        write_to_full_disk(tmp_path / "a.txt")
    with pytest.raises(OSError, match=no_space(Path("/dev/full"))):
        write_text(Path("/dev/full"), "text")
    (tmp_path / "log").symlink_to("/dev/full")
    with pytest.raises(OSError, match=no_space(tmp_path / "log")):
        append_lines(tmp_path / "log", ["line"])
    with pytest.raises(OSError, match=rf"^{tmp_path / 'a'}: 5 requested and 0 written$"), replacing(tmp_path / "a"):
        raise OSError("5 requested and 0 written")  # NumPy's has no number
    with pytest.raises(FileNotFoundError, match="'/other'"), replacing(tmp_path / "a"):
        raise FileNotFoundError(2, "No such file", "/other")


def test_lines_are_appended(tmp_path: Path) -> None:
    append_lines(tmp_path / "log", [])
    append_lines(tmp_path / "log", iter(["a", "größer"]))
    append_lines(tmp_path / "log", ["b"])
    assert (tmp_path / "log").read_bytes() == "a\ngrößer\nb\n".encode()


def test_what_stands_in_the_way_of_a_result_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (tmp_path / "new", tmp_path / "new" / "deep", file):
        check_file(path)
    for path in (tmp_path, tmp_path / "new" / "deep"):
        check_folder(path)
    with pytest.raises(InputError, match=f"^{tmp_path} is a folder; expected a file$"):
        check_file(tmp_path)
    for check, path in ((check_file, file / "deep" / "a"), (check_folder, file), (check_folder, file / "deep")):
        with pytest.raises(InputError, match=f"^{file} is a file; expected a folder$"):
            check(path)


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"


def test_the_file_is_on_the_disk_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    write_text(tmp_path / "a.txt", "text")
    assert order[0].startswith(".a.txt.")
    assert order[1:] == ["rename", tmp_path.name]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("redirected", [False, True])
def test_a_pipe_or_a_device_is_written_to(tmp_path: Path, redirected: bool) -> None:
    link = tmp_path / "stdout"
    link.symlink_to("/dev/stdout")
    script = "from pathlib import Path; from tvm_gnn_cost.files import write_text as w; w(Path('stdout'), 'text')"
    with (tmp_path / "out").open("w+b") as out:
        stdout = out if redirected else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", script], stdout=stdout, cwd=tmp_path, check=True)
    assert (done.stdout or (tmp_path / "out").read_bytes()) == b"text"
    assert link.is_symlink()


def test_text_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    script = r"from pathlib import Path; from tvm_gnn_cost.files import write_text as w; w(Path('a'), 'gr\xf6\xdfer')"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "a").read_bytes() == "größer".encode()


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, 2.5, None], "b": "ü"})
    assert path.read_text() == '{\n "a": [\n  1,\n  2.5,\n  null\n ],\n "b": "\\u00fc"\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text())["b"] == "ü"


@pytest.mark.parametrize(
    ("text", "kept"),
    [(b"", b""), (b"a\nb\n", b"a\nb\n"), (b"a\nb", b"a\n"), (b"part", b""), (b"a\n\xff\xfe", b"a\n"), (b"\n", b"\n")],
)
def test_only_a_broken_last_line_is_dropped(tmp_path: Path, text: bytes, kept: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    drop_broken_last_line(path)
    assert path.read_bytes() == kept


def test_there_may_be_no_file_with_a_broken_line(tmp_path: Path) -> None:
    drop_broken_last_line(tmp_path / "log")
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(("count", "kept"), [(0, b""), (1, b"a\n"), (2, b"a\n\n"), (3, b"a\n\nb"), (9, b"a\n\nb")])
def test_the_first_lines_are_kept(tmp_path: Path, count: int, kept: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n\nb")
    keep_first_lines(path, count)
    assert path.read_bytes() == kept


@pytest.mark.parametrize("text", ['{"a": "x😀 é"}', '["\\ud83d\\ude00", "\\\\ud800"]', "[1e400]"])
def test_json_is_parsed(text: str) -> None:
    value = json.loads(text)
    assert parse_json(text) == parse_json(text.encode()) == parse_json(text.encode("utf-16")) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["\\ud800"]', "a lone surrogate"),
        ('{"\\uDFFF": 1}', "a lone surrogate"),
        ('["\ud800"]', "a lone surrogate"),
        (b'["\xed\xa0\x80"]', "a lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "digits"),
        (b"\xff", "decode"),
        ("", "Expecting value"),
    ],
)
def test_what_is_no_json_is_a_value_error(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_what_is_not_there_to_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_input_file(file)
    check_input_folder(tmp_path)
    with pytest.raises(InputError, match=r"^there is no file .*none$"):
        check_input_file(tmp_path / "none")
    with pytest.raises(InputError, match="is a folder; expected a file"):
        check_input_file(tmp_path)
    with pytest.raises(InputError, match=r"^there is no folder .*none$"):
        check_input_folder(tmp_path / "none")
    with pytest.raises(InputError, match="file is a file; expected a folder"):
        check_input_folder(file)
