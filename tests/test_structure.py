"""Rules about the tree itself: tests mirror the package, and no ten lines of it stand in two places."""

from __future__ import annotations

import io
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "tvm_gnn_cost", ROOT / "tests"

#: Folders of tests that mirror something else than a room of the package.
OTHER_FOLDERS = {"benchmarks", "examples", "extraction", "fuzz"}

#: Tests of no single module, and why.
SHARED_SUITES = {
    "test_init.py": "the front door, tvm_gnn_cost/__init__.py",
    "schedulers/test_init.py": "schedulers by name, schedulers/__init__.py",
    "tpugraphs/test_init.py": "the front door of tpugraphs, tpugraphs/__init__.py",
    "cli/test_cut_files.py": "what every command says to a file that is cut",
    "cli/test_bad_input.py": "what every command says to what is missing or out of range, before it loads torch",
    "cli/test_full_disk.py": "what every command says to a full disk and to misplaced files",
    "cli/test_wheel.py": "the wheel that a user installs",
    "schedulers/meta_schedule/test_gpu.py": "the values of GPU programs, extraction/kernel_memory.cc",
    "tpugraphs/test_committed_layouts.py": "the measurements in benchmarks/data",
    "test_docs.py": "the README and docs/",
    "test_structure.py": "this file",
}

TWIN_LINES = 10


def modules() -> list[Path]:
    """The modules of the package, relative to it; those that only make a folder a package excepted."""
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def test_file(module: Path) -> Path:
    return module.with_name(f"test_{module.name}")


test_file.__test__ = False  # type: ignore[attr-defined]


def test_every_module_has_its_test_file() -> None:
    assert len(modules()) > 100
    missing = [str(test_file(module)) for module in modules() if not (TESTS / test_file(module)).is_file()]
    assert not missing, f"{len(missing)} modules have no test file in tests/:\n" + "\n".join(missing)


def test_every_test_file_has_its_module() -> None:
    expected = {test_file(module) for module in modules()} | {Path(name) for name in SHARED_SUITES}
    found = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strays = sorted(str(path) for path in found - expected if path.parts[0] not in OTHER_FOLDERS)
    assert not strays, "these test files mirror no module of the package:\n" + "\n".join(strays)


def test_no_shared_suite_is_listed_in_vain() -> None:
    assert not [name for name in SHARED_SUITES if not (TESTS / name).is_file()]


@pytest.mark.parametrize("folder", sorted({str(module.parent) for module in modules()}))
def test_every_folder_is_a_package(folder: str) -> None:
    assert (PACKAGE / folder / "__init__.py").is_file()
    assert (TESTS / folder / "__init__.py").is_file()


def code_lines(source: str) -> list[tuple[int, str]]:
    """The lines that hold code, stripped, with their numbers; no comments, no docstrings, no import statements.

    Two modules that need the same names must import them alike, in the order that ruff sorts them in, and two classes
    with the same interface document it alike: neither is code that could be shared.
    """
    kept: defaultdict[int, list[str]] = defaultdict(list)
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            continue
        if token.type != tokenize.NEWLINE and token.type != tokenize.ENDMARKER:
            statement.append(token)
            continue
        is_text = [one.type for one in statement] == [tokenize.STRING]
        if statement and not is_text and statement[0].string not in ("import", "from"):
            for one in statement:
                for offset, line in enumerate(one.string.splitlines()):
                    kept[one.start[0] + offset].append(line.strip())
        statement = []
    return [(number, " ".join(words)) for number, words in sorted(kept.items())]


def twins(files: dict[str, str], length: int = TWIN_LINES) -> list[str]:
    """Where runs of so many code lines stand in two files."""
    first_seen: dict[tuple[str, ...], tuple[str, int]] = {}
    found: dict[tuple[str, str], str] = {}
    for name, source in files.items():
        lines = code_lines(source)
        for start in range(len(lines) - length + 1):
            run = tuple(text for _, text in lines[start : start + length])
            where = first_seen.setdefault(run, (name, lines[start][0]))
            if where[0] != name:
                found.setdefault((where[0], name), f"{where[0]}:{where[1]} and {name}:{lines[start][0]}")
    return sorted(found.values())


def test_no_ten_lines_stand_in_two_files() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    found = twins(files)
    assert not found, f"the same {TWIN_LINES} lines of code begin at\n" + "\n".join(found)


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
