"""The README and the pages in docs: their links lead somewhere, and what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import tvm_gnn_cost
from tests.command import call
from tvm_gnn_cost import tpugraphs, xla_cpu

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "LOG.md"]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("http"):
            continue
        name, _, heading = target.partition("#")
        there = (page.parent / name) if name else page
        assert there.exists(), f"{page.name} links to {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", text_of(there), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
            assert heading in anchors, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_snippets_use_public_names(page: Path) -> None:
    for block in re.findall(r"```py(?:thon)?\n(.*?)```", text_of(page), re.DOTALL):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "tvm_gnn_cost":
                assert {alias.name for alias in node.names} <= set(tvm_gnn_cost.__all__)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tvm_gnn_cost":
                assert node.attr in tvm_gnn_cost.__all__


@pytest.mark.parametrize("package", [tpugraphs, xla_cpu])
def test_the_named_functions_of_a_package_exist(package: ModuleType) -> None:
    name = package.__name__.rpartition(".")[2]
    page = text_of(ROOT / "docs" / "reference" / "python.md")
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(package.__all__)


def test_every_command_is_in_the_table_and_every_row_is_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    page = text_of(ROOT / "docs" / "reference" / "command-line.md")
    named = {
        tuple(words.split()) for words in re.findall(r"^\| `tvm-gnn-cost (tpugraphs \w+|[\w-]+)", page, re.MULTILINE)
    }
    for command in named:
        code, out, _ = call(capfd, *command, "--help")
        assert code == 0, command
        assert "Usage" in out
    _, top, _ = call(capfd, "--help")
    listed = {(name,) for name in re.findall(r"^│ ([a-z][\w-]*) ", top, re.MULTILINE)} - {("tpugraphs",)}
    assert listed
    assert listed <= named


def test_every_benchmark_and_make_target_that_is_named_exists() -> None:
    makefile = text_of(ROOT / "Makefile")
    for page in PAGES:
        if page.name in ("CHANGELOG.md", "LOG.md"):
            continue  # they name what was
        for script in re.findall(r"(?:benchmarks|tools)/[a-z]\w*\.py", text_of(page)):
            assert (ROOT / script).exists(), f"{page.name} names {script}"
        for target in re.findall(r"(?:^ {4}|`)make ([a-z][a-z-]*)", text_of(page), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} names make {target}"
