"""Builds the extension with the address and undefined-behaviour sanitizers and runs a script with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HAS_COMPILER = shutil.which("g++") is not None

#: Kept: the tests of both environments use the same build, which takes a minute.
BUILD = ROOT / "build" / "sanitized"


def run_sanitized(script: Path, *arguments: object) -> None:
    """Runs ``script LIBRARY ARGUMENTS``; fails the test if the script fails or a sanitizer reports an error."""
    build()
    _run([str(script), str(BUILD / "extraction.so"), *map(str, arguments)])


def build() -> None:
    """Builds the extension and the walker's fuzzer, if what is there is older than their sources."""
    sources = [ROOT / "CMakeLists.txt", ROOT / "tests" / "fuzz" / "walker.cc", *(ROOT / "extraction").iterdir()]
    BUILD.mkdir(parents=True, exist_ok=True)
    # The tests of both environments can run at the same time.
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = [path.stat().st_mtime if path.exists() else 0.0 for path in (BUILD / "extraction.so", BUILD / "walker")]
        if min(built) < max(path.stat().st_mtime for path in sources):
            _build()


def _build() -> None:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "cmake"
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DTVM_GNN_COST_SANITIZE=ON", "-DCMAKE_CXX_COMPILER=g++"]
    for command in ([cmake, "-S", str(ROOT), "-B", str(BUILD), *options], [cmake, "--build", str(BUILD), "-j2"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr


def _run(script: list[str]) -> None:
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        runtimes.append(path.stdout.strip())
    run = subprocess.run(
        [sys.executable, *script],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LD_PRELOAD": ":".join(runtimes),
            # Python and TVM free some of their memory only by ending the process.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "extracted" in run.stdout
    assert "runtime error" not in run.stderr
    assert "AddressSanitizer" not in run.stderr
