"""Makes the TVM that the bitblas wheel carries importable in this virtual environment; ``make ansor`` runs it.

TVM dropped ``auto_scheduler`` in 2025, and no older TVM is on the package index under its own name. The one in
bitblas 0.1.0.post1 (0.17.dev0 with LLVM and Relay) is built for CUDA: its library wants the CUDA runtime, which comes
from wheels, and the driver, which a machine without a GPU lacks. Where there is none a stub takes its place, whose
every function returns an error: that is what a driver without devices does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE = Path(sysconfig.get_paths()["purelib"])
TVM = SITE / "bitblas" / "3rdparty" / "tvm"
CUDA_RUNTIMES = ("nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
STUB = SITE / "libcuda_stub.so"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

#: Python runs this line at every start of this environment, in the builder's worker processes too. The libraries are
#: loaded here because the dynamic linker finds by name what is loaded already, and is told of folders only before.
START = (
    "import ctypes, os; "
    "os.environ.setdefault('TVM_LIBRARY_PATH', {library!r}); "
    # Each compilation would try a download three times.
    "os.environ.setdefault('TOPHUB_LOCATION', 'NONE'); "
    "list(map(ctypes.CDLL, {libraries!r}))"
)


def has_driver() -> bool:
    """Whether this machine has the CUDA driver."""
    # Without site: the line of an earlier installation would load the stub under the driver's name.
    load = [sys.executable, "-S", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"]
    return subprocess.run(load, capture_output=True, check=False).returncode == 0


def driver_functions() -> list[str]:
    """The driver's functions that TVM's library leaves undefined."""
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", TVM / "build" / "libtvm.so"], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"\bU (cu[A-Z]\w*)$", symbols, re.MULTILINE)


def build_stub() -> None:
    """Compiles the driver that has no device."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        sys.exit("error: there is no C compiler (cc); install one (gcc or clang), or set CC")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stub.c"
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in driver_functions()))
        subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", STUB], check=True)


def main() -> None:
    """Builds the stub where it is needed and writes the line that Python runs at its start."""
    libraries = [str(SITE / name) for name in CUDA_RUNTIMES]
    if not has_driver():
        build_stub()
        libraries.insert(0, str(STUB))
    start = START.format(library=str(TVM / "build"), libraries=libraries)
    (SITE / "tvm_of_bitblas.pth").write_text(f"{TVM / 'python'}\n{start}\n")


if __name__ == "__main__":
    main()
