"""The page of all results, made from those that are committed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "report.py"

# The page needs no TVM; one environment is enough for it.
pytestmark = pytest.mark.needs("s_tir")


def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "index.html"
    done = run("--page", path)
    assert done.returncode == 0, done.stderr
    return path.read_text()


def test_every_committed_result_is_on_the_page(page: str) -> None:
    committed = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    commands = set(re.findall(r"--json benchmarks/results/([\w-]+)\.json", page))
    assert committed <= commands
    for title in ("Summary", "Accuracy, MetaSchedule", "Accuracy, auto_scheduler", "Networks end to end", "TpuGraphs"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("<svg") >= 8


def test_the_page_loads_nothing_and_its_links_lead_somewhere(page: str) -> None:
    without_names = re.sub(r'xmlns(?::\w+)?="[^"]*"', "", page)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', without_names)
    assert "@import" not in page
    anchors = set(re.findall(r'<section id="([^"]+)"', page))
    links = set(re.findall(r"<nav>.*?</nav>", page, re.DOTALL))
    assert {one for nav in links for one in re.findall(r'href="#([^"]+)"', nav)} == anchors


def test_a_command_makes_the_result_that_it_stands_beside(page: str) -> None:
    for python, script, name in re.findall(r"(\S+)/bin/python benchmarks/(\w+)\.py.*?/results/([\w-]+)\.json", page):
        assert (ROOT / "benchmarks" / f"{script}.py").is_file()
        assert name.partition("-")[0] == script
        assert name.endswith("-auto-scheduler") == python.endswith(".venv-auto-scheduler")


def test_without_results_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    done = run("--results", tmp_path / "results", "--page", tmp_path / "index.html")
    assert done.returncode == 0, done.stderr
    assert "<h2>Node type vectors</h2>" in (tmp_path / "index.html").read_text()
