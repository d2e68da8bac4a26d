"""The wheel that a user installs: built from the source distribution, tried where nothing else of the project is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("s_tir"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]

#: Releases of apache-tvm beside which the wheel must work as a drop-in; None is the one that is installed here.
RELEASES = (None, "0.26.0")


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is: first the source distribution, then the wheel from that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    assert source.stat().st_size < 10e6
    return path


@pytest.fixture(scope="module", params=RELEASES)
def fresh(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel; it sees the libraries of this one, and nothing of the project."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    wanted = [wheel, *([f"apache-tvm=={request.param}"] if request.param else [])]
    run(python, "-m", "pip", "install", "--no-deps", *wanted, cwd=folder)
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A path in a .pth file comes last, and the .pth file of an editable install is not read there.
    (purelib / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tvm_gnn_cost"}
    for name in ("py.typed", "extraction.so", "checkpoints/default.safetensors"):
        assert f"tvm_gnn_cost/{name}" in names
    assert [name for name in names if name.endswith("LICENSE")]


def test_it_runs_where_nothing_else_of_the_project_is(fresh: Path, tmp_path: Path) -> None:
    home = run(fresh, "-c", "import tvm_gnn_cost; print(tvm_gnn_cost.__file__)", cwd=tmp_path)
    assert Path(home).is_relative_to(fresh.parents[1])
    assert "tune" in run(fresh.parent / "tvm-gnn-cost", "--help", cwd=tmp_path)
    script = shutil.copy(ROOT / "examples" / "meta_schedule_drop_in.py", tmp_path)
    assert "4 programs, the fastest takes" in run(fresh, script, 4, cwd=tmp_path)
