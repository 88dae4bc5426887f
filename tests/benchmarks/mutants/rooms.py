"""The rooms that are mutated, and the quick tests that are theirs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Room:
    """A folder of modules and the folder of its own tests, from the root of the checkout."""

    name: str
    modules: str
    tests: str

    def paths(self) -> list[str]:
        return [str(p.relative_to(ROOT)) for p in sorted((ROOT / self.modules).glob("*.py"))]

    def digest(self) -> str:
        """Changes with every module and test of the room."""
        text = hashlib.sha256()
        for folder in (self.modules, self.tests):
            for path in sorted((ROOT / folder).rglob("*.py")):
                text.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
        return text.hexdigest()[:16]


# Mutants are drawn from these, as many from each.
ROOMS = (
    Room("language", "tinygpu/language", "tests/tinygpu/language"),
    Room("program", "tinygpu/program", "tests/tinygpu/program"),
    Room("spaces", "tinygpu/spaces", "tests/tinygpu/spaces"),
    Room("constraints", "tinygpu/constraints", "tests/tinygpu/constraints"),
    Room("solver", "tinygpu/solver", "tests/tinygpu/solver"),
    Room("lowering", "ptx/lowering", "tests/ptx/lowering"),
    Room("cost", "tinygpu/cost", "tests/tinygpu/cost"),
)
# These are tried where they are asked for by name.
OTHERS = (
    Room("search", "search", "tests/search"),
    Room("rl", "search/rl", "tests/search"),
    Room("calibration", "ptx/calibration", "tests/ptx/calibration"),
    Room("source", "ptx/emulator/source", "tests/ptx/emulator"),
    Room("state", "ptx/emulator/state", "tests/ptx/emulator"),
)


def module_name(path: str) -> str:
    """tinygpu.ptx.lowering.smem for ptx/lowering/smem.py: the rooms beside the package are imported as its own."""
    parts = Path(path).with_suffix("").parts
    parts = parts if parts[0] == "tinygpu" else ("tinygpu", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
