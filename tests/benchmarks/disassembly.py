"""Machine code of NVIDIA GPUs as nvdisasm prints it: instructions, loops, and what they are spent on."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# What instructions do, by the first pattern that the opcode matches. "fences" wait for memory, "waits" for other work.
CLASSES = (
    ("tensor", r"(HGMMA|QGMMA|IGMMA|HMMA|IMMA|QMMA|DMMA|OMMA|UTC\w*MMA)"),
    ("fences", r"(MEMBAR|ERRBAR|CGAERRBAR|CCTL|FENCE)"),
    ("waits", r"(SYNCS\.PHASECHK|WARPGROUP|DEPBAR|LDGDEPBAR|UCGABAR_WAIT|UTMACMDFLUSH|WARPSYNC|NANOSLEEP)"),
    ("barriers", r"(BAR|SYNCS|UCGABAR|BSSY|BSYNC|ARRIVES|UTCBAR)"),
    ("copies", r"(UTMALDG|UTMASTG|UTMAREDG|UBLKCP|LDGSTS|LDG|STG|UTMACCTL)"),
    ("shared", r"(LDSM|STSM|LDS|STS|MOVM|LDTM|STTM|UTCCP)"),
    ("branches", r"(BRA|EXIT|CALL|RET|JMP|BRX|WARPREADY)"),
    ("uniform", r"(U[A-Z]|R2UR|S2UR|VOTEU|REDUX|ELECT)"),
    ("floating", r"(FADD|FMUL|FFMA|FMNMX|FSEL|FSETP|HADD|HMUL|HFMA|HMNMX|F2F|F2FP|I2F|F2I|MUFU|DADD|DMUL|DFMA)"),
    ("integer", r""),
)
NAMES = tuple(name for name, _ in CLASSES)
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);", re.M)
_LABEL = re.compile(r"^(\.L_x?_?\w+):", re.M)
_TARGET = re.compile(r"`\((\.L\w+)\)")
_SHAPE = re.compile(r"[HQI]G?MMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)|[HIQ]MMA\.(16)(8)(\d+)")


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: its address, opcode with modifiers, the label that it jumps to, and whether it is predicated."""

    address: int
    opcode: str
    target: str = ""
    guarded: bool = False

    @property
    def kind(self) -> str:
        return next(name for name, pattern in CLASSES if re.match(pattern, self.opcode))

    @property
    def products(self) -> int:
        """Multiply-adds of a matrix instruction; 0 of any other, and of those whose descriptor alone says how many."""
        shape = _SHAPE.match(self.opcode)
        if shape is None:
            return 0
        m, n, k = (int(extent) for extent in shape.groups() if extent is not None)
        return m * n * k


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of one kernel, in the order in which they lie."""

    lines: tuple[Line, ...]
    labels: dict[str, int]

    def loops(self) -> list[tuple[int, int]]:
        """(first, last) position of each loop: from a label to the last jump back to it, inner ones first.

        Behind the last exit lie blocks that are seldom needed (a wait that tries again); their jumps back end no loop.
        """
        exits = [position for position, line in enumerate(self.lines) if line.opcode == "EXIT" and not line.guarded]
        end = exits[-1] if exits else len(self.lines)
        at = {line.address: position for position, line in enumerate(self.lines)}
        found: dict[int, int] = {}
        for position, line in enumerate(self.lines):
            start = at.get(self.labels.get(line.target, -1))
            if start is not None and start < position and not start <= end < position:
                found[start] = max(position, found.get(start, 0))
        return sorted(found.items(), key=lambda loop: loop[1] - loop[0])

    def product_loop(self) -> tuple[int, int]:
        """The innermost loop that multiplies most: where the time of a matmul goes. LookupError without one."""
        inner = self._innermost("tensor", CLASSES[0][1])
        return max(inner, key=lambda loop: sum(max(line.products, line.kind == "tensor") for line in self.within(loop)))

    def sums_loop(self) -> tuple[int, int] | None:
        """The innermost loop that loads from tensor memory: a tile's sums. None in code without tensor memory."""
        if not any(line.opcode.startswith("LDTM") for line in self.lines):
            return None
        return max(self._innermost("LDTM", "LDTM"), key=lambda loop: loop[1] - loop[0])

    def _innermost(self, what: str, pattern: str) -> list[tuple[int, int]]:
        holding = [loop for loop in self.loops() if any(re.match(pattern, line.opcode) for line in self.within(loop))]
        if not holding:
            raise LookupError(f"no loop holds an instruction {what}")
        return [
            loop for loop in holding
            if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in holding)
        ]  # fmt: skip

    def copy_loop(self) -> tuple[int, int] | None:
        """The shortest loop that brings tiles and does not multiply: a producer's. None where there is none."""
        for loop in self.loops():
            opcodes = [line.opcode for line in self.within(loop)]
            multiplies = any(line.kind == "tensor" for line in self.within(loop))
            if any(o.startswith(("UTMALDG", "UBLKCP", "LDGSTS")) for o in opcodes) and not multiplies:
                return loop
        return None

    def after(self, loop: tuple[int, int]) -> tuple[Line, ...]:
        """What follows a loop, up to the jump back of the next loop around it, or to the first exit."""
        around = [other for other in self.loops() if other[0] < loop[0] and other[1] > loop[1]]
        end = min((other[1] for other in around), default=len(self.lines) - 1)
        rest = self.lines[loop[1] + 1 : end + 1]
        if not around:
            exits = [position for position, line in enumerate(rest) if line.opcode == "EXIT"]
            rest = rest[: exits[0] + 1] if exits else rest
        return rest

    def within(self, loop: tuple[int, int]) -> tuple[Line, ...]:
        return self.lines[loop[0] : loop[1] + 1]


def counted(lines: Sequence[Line]) -> Counter[str]:
    """Instructions by what they do."""
    return Counter(line.kind for line in lines)


def parse(text: str) -> Code:
    """The one kernel of nvdisasm's text."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for row in text.splitlines():
        label = _LABEL.match(row)
        if label is not None:
            waiting.append(label[1])
            continue
        found = _LINE.match(row)
        if found is None:
            continue
        address = int(found[1], 16)
        labels.update((name, address) for name in waiting)
        waiting.clear()
        target = _TARGET.search(found[4])
        lines.append(Line(address, found[3], target[1] if target else "", found[2] is not None))
    if not lines:
        raise ValueError("there is no instruction in this text")
    return Code(tuple(lines), labels)


def find_nvdisasm() -> Path | None:
    """That of the wheel nvidia-cuda-nvdisasm, else of triton's wheel, else of the shell; None where there is none."""
    for wheel in ("nvidia-cuda-nvdisasm", "triton"):
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "nvdisasm":
                return Path(str(file.locate()))
    found = shutil.which("nvdisasm")
    return None if found is None else Path(found)


def version_of(tool: Path) -> str:
    """The toolkit that a program of it says it is of: 13.5.37."""
    said = subprocess.run([str(tool), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bV(\d+\.\d+\.\d+)", said)
    return "of unknown version" if found is None else found[1]


def disassemble(cubin: bytes, nvdisasm: Path) -> Code:
    """The machine code of a cubin that holds one kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(nvdisasm), "-c", file.name], capture_output=True, text=True, check=True)
    return parse(done.stdout)
