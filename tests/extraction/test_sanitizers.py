"""The extension under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and its sanitizer libraries")
def test_extraction_is_clean_under_the_sanitizers(tmp_path: Path):
    cmake = shutil.which("cmake") or "cmake"
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        runtimes.append(path.stdout.strip())
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DTVM_GNN_COST_SANITIZE=ON", "-DCMAKE_CXX_COMPILER=g++"]
    for command in ([cmake, "-S", str(ROOT), "-B", str(tmp_path), *options], [cmake, "--build", str(tmp_path), "-j2"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr

    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "exercise.py"), str(tmp_path / "extraction.so")],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "LD_PRELOAD": ":".join(runtimes),
            # Python and TVM leave memory to the end of the process.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "modules extracted" in run.stdout
    assert "runtime error" not in run.stderr
    assert "AddressSanitizer" not in run.stderr
