"""Rules of the tree: every subpackage, public name and command has tests, and no ten lines occur in two modules."""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from tvm_gnn_cost.cli.app import app

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "tvm_gnn_cost", ROOT / "tests"

#: Folders of tests that mirror no subpackage.
OTHER_FOLDERS = {"benchmarks", "examples", "extraction", "fuzz"}

TWIN_LINES = 10


def folders(root: Path) -> list[str]:
    """The folders that hold Python files, relative to the root."""
    return sorted({str(path.parent.relative_to(root)) for path in root.rglob("*.py")})


def nodes(folder: Path) -> Iterator[ast.AST]:
    """The syntax of the tests in a folder and below it."""
    for path in folder.rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))


@pytest.mark.parametrize("folder", folders(PACKAGE))
def test_every_folder_is_a_package_with_tests(folder: str) -> None:
    assert (PACKAGE / folder / "__init__.py").is_file()
    assert (TESTS / folder / "__init__.py").is_file()
    assert list((TESTS / folder).glob("test_*.py"))


def test_folders_of_tests_mirror_the_package() -> None:
    known = {*folders(PACKAGE), *OTHER_FOLDERS}
    assert not [name for name in folders(TESTS) if name not in known]


def test_every_public_name_is_used_in_a_test() -> None:
    used = set()
    for node in nodes(TESTS):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                used.add(name)
    packages = [".".join(("tvm_gnn_cost", *Path(folder).parts)) for folder in folders(PACKAGE)]
    # What a scheduler exports needs its TVM, and is public as a name of tvm_gnn_cost.
    public = {
        f"{name}.{public}"
        for name in packages
        if ".schedulers." not in name
        for public in getattr(importlib.import_module(name), "__all__", ())
    }
    assert len(public) > 10
    assert not sorted(name for name in public if name.rpartition(".")[2] not in used)


def test_every_command_is_called_in_a_test() -> None:
    words = {node.value for node in nodes(TESTS / "cli") if isinstance(node, ast.Constant)}

    def commands(group: click.Command) -> Iterator[str]:
        for name, command in getattr(group, "commands", {}).items():
            yield name
            yield from commands(command)

    names = set(commands(typer.main.get_command(app)))
    assert {"tune", "tpugraphs", "rank"} <= names
    assert not names - words


def code_lines(source: str) -> list[tuple[int, str]]:
    """The lines that hold code, stripped, with their numbers; no comments, no docstrings, no import statements.

    Two modules that need the same names import them in the same way, in the order of ruff, and two classes with the
    same interface document it in the same words: neither is code that could be shared.
    """
    kept: defaultdict[int, list[str]] = defaultdict(list)
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            continue
        if token.type != tokenize.NEWLINE and token.type != tokenize.ENDMARKER:
            statement.append(token)
            continue
        is_text = [part.type for part in statement] == [tokenize.STRING]
        if statement and not is_text and statement[0].string not in ("import", "from"):
            for part in statement:
                for offset, line in enumerate(part.string.splitlines()):
                    kept[part.start[0] + offset].append(line.strip())
        statement = []
    return [(number, " ".join(words)) for number, words in sorted(kept.items())]


def twins(files: dict[str, str], length: int = TWIN_LINES) -> list[str]:
    """Where two files share a run of code lines of this length."""
    first_seen: dict[tuple[str, ...], tuple[str, int]] = {}
    places: dict[tuple[str, str], str] = {}
    for name, source in files.items():
        lines = code_lines(source)
        for start in range(len(lines) - length + 1):
            run = tuple(text for _, text in lines[start : start + length])
            where = first_seen.setdefault(run, (name, lines[start][0]))
            if where[0] != name:
                places.setdefault((where[0], name), f"{where[0]}:{where[1]} and {name}:{lines[start][0]}")
    return sorted(places.values())


def test_no_ten_lines_stand_in_two_files() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    places = twins(files)
    assert not places, f"the same {TWIN_LINES} lines of code begin at\n" + "\n".join(places)


BODY = [f"x = f({number})" for number in range(TWIN_LINES)]


def test_twins_are_found_in_spite_of_comments_blank_lines_and_indentation() -> None:
    one = "\n".join(BODY)
    other = "def g():\n    '''Text.'''\n" + "".join(f"    # why\n\n    {line}  # so\n" for line in BODY)
    assert twins({"a": one, "b": f"import os\n{other}"}) == ["a:1 and b:6"]
    assert twins({"a": one, "b": one.replace("f(5)", "f(55)")}) == []
    assert twins({"a": "\n".join(BODY[:-1]), "b": one}) == []
    # Within one file much is alike by necessity, such as the layers of a network.
    assert twins({"a": f"{one}\n{one}"}) == []


def test_imports_and_docstrings_are_no_twins() -> None:
    imports = "from a import (\n" + "".join(f"    name{number},\n" for number in range(20)) + ")\n"
    text = '"""' + "\n".join(BODY) + '"""\n'
    assert twins({"a": imports + text, "b": imports + text}) == []
