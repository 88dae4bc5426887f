"""Which instructions have semantics, as a value and as the table of the docs."""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.floating import FLOATING
from tinygpu.ptx.emulator.instructions.integer import INTEGER
from tinygpu.ptx.emulator.run.program import INSTRUCTION_TABLES

_CONTROL = ("bra", "brx.idx", "call", "exit", "ret", "trap", "bar", "barrier")
_TITLES = {
    "integer": "integer arithmetic", "float": "floating point (f16, bf16, f32, f64 and packed pairs)",
    "bits": "logic, shifts, bit fields", "compare": "comparison and selection", "convert": "conversion",
    "move": "moves and addresses", "memory": "loads and stores", "atomic": "atomics", "warp": "lanes of a warp",
    "async": "asynchronous copies", "matrix": "matrices", "fence": "fences and hints",
    "mbarrier": "mbarriers", "cluster": "clusters", "launch": "taking over clusters",
    "control": "control and barriers",
}  # fmt: skip


def supported_instructions() -> dict[str, tuple[str, ...]]:
    """Opcodes with semantics, by class; forms that an opcode lacks raise UnsupportedInstruction by name."""
    result = {"integer": tuple(sorted(INTEGER)), "float": tuple(sorted(FLOATING))}
    for kind, table in INSTRUCTION_TABLES:
        # Names that start with % are the emulator's own: what calls of the system become.
        result[kind] = tuple(sorted(name for name in table if not name.startswith("%")))
    result["control"] = _CONTROL
    return result


def coverage_table() -> str:
    """The table of docs/emulator.md."""
    lines = ["| class | opcodes |", "| --- | --- |"]
    for kind, names in supported_instructions().items():
        lines.append(f"| {_TITLES.get(kind, kind)} | {' '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines)
