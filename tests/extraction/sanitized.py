"""Builds the extension with the address and undefined-behaviour sanitizers and runs a script with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HAS_COMPILER = shutil.which("g++") is not None


def run_sanitized(script: Path, build: Path) -> None:
    """Fails the test where the script does, or a sanitizer reports something."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "cmake"
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        runtimes.append(path.stdout.strip())
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DTVM_GNN_COST_SANITIZE=ON", "-DCMAKE_CXX_COMPILER=g++"]
    for command in ([cmake, "-S", str(ROOT), "-B", str(build), *options], [cmake, "--build", str(build), "-j2"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr

    run = subprocess.run(
        [sys.executable, str(script), str(build / "extraction.so")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LD_PRELOAD": ":".join(runtimes),
            # Python and TVM leave memory to the end of the process.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "extracted" in run.stdout
    assert "runtime error" not in run.stderr
    assert "AddressSanitizer" not in run.stderr
