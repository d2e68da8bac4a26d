"""The wheel that a user installs: built from the source distribution, tried where nothing else of the project is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from platform import machine

import pytest

pytestmark = [pytest.mark.needs("s_tir"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]

#: A path that holds no compiler: where TVM finds one, it hides that the package needs none.
NO_COMPILER = "/nonexistent"

#: Releases of apache-tvm beside which the wheel works as a drop-in, and the oldest tvm-ffi that each wants.
RELEASES = {"0.26.0": "0.1.13.post2", "0.27.0.post1": "0.1.14.post0"}

#: Scores random programs of a matrix product; prints a digest of their graphs and their scores.
SCORE = """
import hashlib
import tvm
from tvm import te
from tvm_gnn_cost import CostModel, extract_graphs

def product(n):
    a, b = (te.placeholder((n, n), name=name) for name in "AB")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})

target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
mods = [product(n) for n in (32, 64, 128)]
model = CostModel.load()
graphs = extract_graphs(mods, target, detail=model.detail)
print(hashlib.sha256(graphs.x.tobytes() + graphs.edge_index.tobytes()).hexdigest())
print([score.hex() for score in model.predict(mods, target)])
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=900, cwd=cwd, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make wheel` does, from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run("make", "-C", ROOT, "work/venv-wheel/ready", cwd=folder)
    python = ROOT / "work" / "venv-wheel" / "bin" / "python"
    run(python, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (source,) = folder.glob("*.tar.gz")
    assert source.stat().st_size < 10e6
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    run(python, unpacked / "tools" / "build_wheel.py", "--out", folder, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=RELEASES)
def fresh(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel; it sees the libraries of this one, and nothing of the project."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    wanted = [wheel, f"apache-tvm=={request.param}", f"apache-tvm-ffi=={RELEASES[request.param]}"]
    run(python, "-m", "pip", "install", "--no-deps", *wanted, cwd=folder, PATH=NO_COMPILER)
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A path in a .pth file comes last, and the .pth file of an editable install is not read there.
    (purelib / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-manylinux2014_{machine()}.manylinux_2_17_{machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tvm_gnn_cost"}
    for name in ("py.typed", "extraction.so", "checkpoints/default.safetensors"):
        assert f"tvm_gnn_cost/{name}" in names
    assert [name for name in names if name.endswith("LICENSE")]


def test_it_scores_as_this_build_does_where_there_is_no_compiler(fresh: Path, tmp_path: Path) -> None:
    home = run(fresh, "-c", "import tvm_gnn_cost; print(tvm_gnn_cost.__file__)", cwd=tmp_path)
    assert Path(home).is_relative_to(fresh.parents[1])
    assert run(fresh, "-c", SCORE, cwd=tmp_path, PATH=NO_COMPILER) == run(sys.executable, "-c", SCORE, cwd=tmp_path)


def test_a_tvm_with_another_tensorir_is_refused(wheel: Path, tmp_path: Path) -> None:
    """TVM 0.25 keeps buffers apart from variables, so that its programs would become other graphs."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", wheel, "apache-tvm==0.25.0", cwd=tmp_path)
    (tmp_path / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "libraries.pth").write_text(
        sysconfig.get_path("purelib")
    )
    code = "import tvm_gnn_cost\ntry: tvm_gnn_cost.GNNCostModel\nexcept ImportError as error: print(error)"
    assert "this needs TVM 0.26 or 0.27; found that of apache-tvm 0.25.0" in run(python, "-c", code, cwd=tmp_path)


def test_a_search_takes_it_as_its_cost_model(fresh: Path, tmp_path: Path) -> None:
    assert "tune" in run(fresh.parent / "tvm-gnn-cost", "--help", cwd=tmp_path)
    script = shutil.copy(ROOT / "examples" / "meta_schedule_drop_in.py", tmp_path)
    assert "4 programs, the fastest takes" in run(fresh, script, 4, cwd=tmp_path)
