from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.command import console_of_test
from tvm_gnn_cost.cli.outcome import exit_codes, json_result, print_left_out
from tvm_gnn_cost.errors import InputError, WorkError, WrongTVMError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("wrong [option]"), 2, "error: wrong [option]"),
        (FileNotFoundError("no file"), 2, "error: no file"),
        (WorkError("the run failed"), 1, "failed: the run failed"),
        (WrongTVMError("this needs a TVM"), 1, "failed: this needs a TVM"),
        (KeyboardInterrupt(), 130, "interrupted; run it again"),
    ],
)
def test_an_expected_error_is_one_sentence_and_a_code(
    error: BaseException, code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with console_of_test(), pytest.raises(typer.Exit) as ended, exit_codes("run it again"):
        raise error
    assert ended.value.exit_code == code
    assert capfd.readouterr().err == text + "\n"


@pytest.mark.parametrize("error", [ValueError("numpy's"), RuntimeError("torch's"), ImportError("a broken package")])
def test_any_other_error_is_a_bug_and_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), exit_codes():
        raise error


def test_json_on_stdout_is_alone_there() -> None:
    code = (
        "import os; from pathlib import Path; from tvm_gnn_cost.cli.outcome import json_result\n"
        "with json_result(Path('-')) as write:\n"
        "    os.write(1, b'C++ prints this\\n'); print('and Python this'); write({'a': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"a": 1}
    assert done.stderr == "C++ prints this\nand Python this\n"


def test_a_file_that_cannot_be_written_is_found_out_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, sentence in (
        (tmp_path / "file" / "result.json", f"^{tmp_path / 'file'} is a file; expected a folder$"),
        (tmp_path, f"^{tmp_path} is a folder; expected a file$"),
    ):
        with pytest.raises(InputError, match=sentence), json_result(path):
            raise AssertionError("the work must not begin")


def test_json_goes_to_a_file(tmp_path: Path) -> None:
    with json_result(tmp_path / "deep" / "result.json") as write:
        write({"a": [1]})
    assert json.loads((tmp_path / "deep" / "result.json").read_text()) == {"a": [1]}


def test_what_was_left_out_is_named_up_to_twenty(capfd: pytest.CaptureFixture[str]) -> None:
    with console_of_test():
        print_left_out([f"line {i}" for i in range(23)])
    err = capfd.readouterr().err
    assert err.count("left out: line") == 20
    assert "and 3 more" in err
