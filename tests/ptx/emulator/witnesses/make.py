"""Makes the PTX in this folder from the sources beside it: python make.py [name ...].

Needs nvcc 13 (a CUDA toolkit on the PATH) and the headers of CUTLASS, which the package nvidia-cutlass has
(`pip install --no-deps nvidia-cutlass`); no GPU, no driver. What nvcc wrote is kept without its comments.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ("-ptx", "-arch=compute_100a", "-std=c++17", "--expt-relaxed-constexpr")


def nvcc() -> str | None:
    """The compiler's path, or None."""
    return shutil.which("nvcc")


def headers() -> Path | None:
    """The folder of CUTLASS's headers, or None."""
    package = importlib.util.find_spec("cutlass_library")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "source" / "include"
    return folder if (folder / "cute").is_dir() else None


def compiled(source: Path, compiler: str, cutlass: Path) -> str:
    """The text of a fixture: who made it, how, of what, and what came out."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        command = [compiler, *FLAGS, f"-I{cutlass}", "-w", source.name, "-o", str(out)]
        subprocess.run(command, cwd=source.parent, check=True, capture_output=True)
        text = out.read_text(encoding="utf-8")
    release = re.search(r"release [\d.]+, V[\d.]+", text)
    version = importlib.metadata.version("nvidia-cutlass")
    about = f"nvcc {release[0] if release else '?'}, headers of nvidia-cutlass {version}"
    made = f"nvcc {' '.join(FLAGS)} -I CUTLASS -w {source.name}"
    return f"// {about}\n// {made}\n{stripped(text)}\n"


def stripped(text: str) -> str:
    """The text without comments and indents."""
    lines = (re.sub(r"\s+", " ", re.sub(r"//.*", "", line)).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def main(names: list[str]) -> None:
    compiler, cutlass = nvcc(), headers()
    if compiler is None or cutlass is None:
        raise SystemExit("no nvcc on the PATH, or no nvidia-cutlass: see the head of make.py")
    for source in sorted(HERE.glob("*.cu")):
        if not names or source.stem in names:
            source.with_suffix(".ptx").write_text(compiled(source, compiler, cutlass), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
