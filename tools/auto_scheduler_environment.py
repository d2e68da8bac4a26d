"""Makes the TVM inside the bitblas wheel importable in this virtual environment; ``make auto-scheduler`` runs it.

TVM dropped ``auto_scheduler`` in 2025, and the package index has no older TVM under its own name. The one in bitblas
0.1.0.post1 (0.17.dev0 with LLVM and Relay) is built for CUDA. Its library needs the CUDA runtime, which wheels provide,
and the driver, which a machine without a GPU lacks. There, a stub replaces the driver: each of its functions returns
the error of a driver that finds no device.
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

#: Python runs this line whenever it starts in this environment, also in the builder's worker processes. It loads the
#: libraries because the dynamic linker looks in no folder of this environment, but finds by name what is loaded.
START = (
    "import ctypes, os; "
    "os.environ.setdefault('TVM_LIBRARY_PATH', {library!r}); "
    # Without this, each compilation tries a download three times.
    "os.environ.setdefault('TOPHUB_LOCATION', 'NONE'); "
    "list(map(ctypes.CDLL, {libraries!r}))"
)


def has_driver() -> bool:
    """Whether this machine has the CUDA driver."""
    # Without site (-S): the line of an earlier installation would load the stub under the driver's name.
    load = [sys.executable, "-S", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"]
    return subprocess.run(load, capture_output=True, check=False).returncode == 0


def driver_functions() -> list[str]:
    """The functions of the driver that TVM's library calls."""
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", TVM / "build" / "libtvm.so"], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"\bU (cu[A-Z]\w*)$", symbols, re.MULTILINE)


def build_stub() -> None:
    """Compiles a driver that finds no device."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        sys.exit("error: there is no C compiler (cc); install one (gcc or clang), or set CC")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stub.c"
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in driver_functions()))
        subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", STUB], check=True)


def main() -> None:
    """Builds the stub if there is no driver, and writes the line that Python runs when it starts."""
    libraries = [str(SITE / name) for name in CUDA_RUNTIMES]
    if not has_driver():
        build_stub()
        libraries.insert(0, str(STUB))
    start = START.format(library=str(TVM / "build"), libraries=libraries)
    (SITE / "tvm_of_bitblas.pth").write_text(f"{TVM / 'python'}\n{start}\n")


if __name__ == "__main__":
    main()
