"""What is not there is told in one sentence, before torch or TVM is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import assert_mistake, call
from tests.tuning.test_result import END_TO_END, result
from tvm_gnn_cost.tuning.result import NetworkTimes

MISSING = [
    ("tune nosuch.onnx", "there is no file nosuch.onnx"),
    ("tune nosuch.pt2 --trusted", "there is no file nosuch.pt2"),
    ("tune resnet-18 --inputs nosuch.npz", "there is no file nosuch.npz"),
    ("tune resnet-18 --cost-model nosuch", "cost model 'nosuch': neither gnn, xgb, random or mlp nor the path"),
    (
        "tune resnet-18 --population-size 99999999999999",
        "population_size must be between 8 and 100000, not 99999999999999",
    ),
    ("tune resnet-18 --batch-size 99999999999999", "batch_size must be between 1 and 10000, not 99999999999999"),
    ("tune resnet-18 --minutes inf", "minutes must be between 0 and 1000000, not inf"),
    ("tune resnet-18 --seed 99999999999999", "seed must be between 0 and 2147483647, not 99999999999999"),
    ("tune resnet-18 --shape x=" + "9" * 5000, "--shape x=9"),
    ("evaluate nosuch --model random", "there is no folder nosuch"),
    ("evaluate . --model nosuch", "there is no file nosuch"),
    ("evaluate . --model nosuch.json", "there is no file nosuch"),
    ("explain nosuch", "there is no folder nosuch"),
    ("explain . --cost-model nosuch", "cost model 'nosuch': neither gnn nor the path of a checkpoint file"),
    ("explain . --html .", ". is a folder; expected a file"),
    ("train nosuch out", "there is no folder nosuch"),
    ("train . out --start nosuch", "cost model 'nosuch': neither gnn nor"),
    ("train . .", ". is a folder; expected a file"),
    ("extract nosuch store", "there is no folder nosuch"),
    ("import-log nosuch out --network resnet-18", "there is no file nosuch"),
    ("import-log /dev/null out --network nosuch.onnx", "there is no file nosuch.onnx"),
    ("check-data nosuch", "there is no folder nosuch"),
    ("embed nosuch out.png", "there is no folder nosuch"),
    ("embed . out.xyz", "out.xyz: the file name must end in one of: "),
    ("report nosuch", "nosuch/tuning.json does not exist"),
]

SCRIPT = """
import sys
from tvm_gnn_cost.cli.app import app
for line in sys.stdin.read().splitlines():
    try:
        app(line.split())
    except SystemExit as ended:
        sys.stderr.flush()
        loaded = [name for name in ("torch", "tvm", "onnx") if name in sys.modules]
        print(ended.code, loaded, file=sys.stderr, flush=True)
"""


def test_what_is_missing_is_told_before_torch_is_loaded(tmp_path: Path) -> None:
    commands = "\n".join(command for command, _ in MISSING)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=commands, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["2 []"] * len(MISSING)
    for (command, sentence), said in zip(MISSING, lines[::2], strict=True):
        assert said.startswith(f"error: {sentence}"), command
    assert list(tmp_path.iterdir()) == []


def test_names_are_no_markup(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found, name = result(), "[/a]:100:"
    found.tasks[0].name = name
    found.end_to_end = END_TO_END
    found.end_to_end.networks.append(NetworkTimes(name, [2.0], 1e-7))
    try:
        found.save(tmp_path)
        code, _, err = call(capfd, "report", tmp_path)
    finally:
        found.end_to_end.networks.pop()
    assert code == 0
    assert err.count(name) >= 2


@pytest.mark.parametrize("text", ["[/nope]", ":100:", "$x$"])
def test_a_wrong_name_is_said_as_it_is(text: str, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = call(capfd, "evaluate", store, "--model", "random", "--network", text)
    assert_mistake(answer, f"network '{text}' does not occur")
