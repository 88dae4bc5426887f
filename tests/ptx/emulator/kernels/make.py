"""Makes the PTX fixtures in this folder from the .cu sources beside them: python make.py [name ...]. Needs nvcc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURE = "compute_80"


def make(source: Path) -> None:
    """Compile one source; the result lies beside it."""
    target = source.with_suffix(".ptx").name
    command = ["nvcc", "-ptx", f"-arch={ARCHITECTURE}", "-std=c++17", source.name, "-o", target]
    subprocess.run(command, cwd=HERE, check=True)


if __name__ == "__main__":
    names = sys.argv[1:]
    for path in sorted(HERE.glob("*.cu")):
        if not names or path.stem in names:
            make(path)
