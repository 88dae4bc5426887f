"""Builds the library that stands in for the driver's (stub_cuda.c), and runs programs over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """The library, as the bindings look for it."""
    if COMPILER is None:
        raise RuntimeError("there is no C compiler")
    out = folder / "libcuda.so.1"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", out, HERE / "stub_cuda.c", "-ldl"], check=True)
    return out


def run(program: str, library: Path) -> str:
    """What a Python program prints that has the library for a driver."""
    found = os.pathsep.join([str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")])
    path = os.pathsep.join([*sys.path, str(HERE)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": found, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
