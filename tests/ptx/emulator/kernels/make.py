"""Makes the PTX fixtures in this folder from the .cu sources beside them: python make.py [name ...].

Needs nvcc: of a CUDA toolkit on the PATH, or of the wheels nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt,
nvidia-cuda-cccl and nvidia-cuda-runtime in this Python's environment (no GPU, no driver); and, for sources that include
CuTe, the wheel nvidia-cutlass. Sources in a folder named after a target (sm_90a, sm_100a, sm_120a) are compiled for it,
those beside this file for sm_80.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def find_nvcc() -> str:
    """The compiler's path."""
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        for compiler in sorted(Path(folder).glob("cu*/bin/nvcc")):
            return str(compiler)
    compiler_on_path = shutil.which("nvcc")
    if compiler_on_path is None:
        raise SystemExit("no nvcc: install a CUDA toolkit, or the wheels that make.py names at its head")
    return compiler_on_path


def find_cutlass() -> Path:
    """The headers of CUTLASS, of the wheel nvidia-cutlass."""
    wheel = importlib.util.find_spec("cutlass_library")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        if (headers := Path(folder) / "source" / "include").is_dir():
            return headers
    raise SystemExit("no headers of CUTLASS: install the wheel nvidia-cutlass")


def make(nvcc: str, source: Path) -> None:
    """Compile one source; the result lies beside it."""
    architecture = (source.parent.name if source.parent != HERE else "sm_80").replace("sm_", "compute_")
    flags = ["-ptx", f"-arch={architecture}", "-std=c++17", "--extended-lambda", "-diag-suppress=20054,550"]
    if "#include <cute/" in source.read_text():
        flags += ["--expt-relaxed-constexpr", "-I", str(find_cutlass())]
    command = [nvcc, *flags, source.name, "-o", source.with_suffix(".ptx").name]
    subprocess.run(command, cwd=source.parent, check=True)


if __name__ == "__main__":
    names = sys.argv[1:]
    for path in sorted(HERE.rglob("*.cu")):
        if not names or path.stem in names:
            make(find_nvcc(), path)
