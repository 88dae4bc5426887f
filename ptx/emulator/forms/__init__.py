"""Forms of instructions: what the assembler accepts and the emulator runs, as templates, with the target they need.

One text file a class. A line is a target and a template: in a template (a|b) is a choice, and after the space stand the
operands, in which a letter is a fresh register: p predicate, b, h, r, d, q of 8 to 128 bits, f and g of f32 and f64;
*h is a vector of as many as .v2, .v4 or .v8 says. The target is the first that the form assembles for, of sm_80, sm_89,
sm_90, sm_90a, sm_100, sm_100a, sm_103a, sm_110a, sm_120 and sm_120a.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_CHOICE = re.compile(r"\(([^()]*)\)")
# Words and choices of words, up to the first modifier.
_HEAD = re.compile(r"(?:\w|\([\w|]*\))*")
_LINE = re.compile(r"(sm_\d+[af]?) (\S+)(?: (.*))?")
# In the order in which the documentation shows them.
FORM_CLASSES: dict[str, str] = {
    "integer": "integers, logic, bit fields, video", "floating": "floating point",
    "compare": "comparison and selection", "convert": "conversion", "moves": "moves and special registers",
    "memory": "loads, stores, addresses and hints", "atomics": "atomics", "warp": "warps, barriers, fences",
    "asynchronous": "asynchronous copies, mbarriers, clusters",
    "matrices": "matrices: mma, wgmma, tcgen05", "wmma": "matrices: wmma",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """One template.

    target    the first architecture that has it
    name      opcode and modifiers
    operands  "" where there are none
    """

    target: str
    name: str
    operands: str

    @property
    def opcodes(self) -> list[str]:
        """The first word, or the words where it is a choice."""
        return expand(self._head)

    @property
    def modifiers(self) -> str:
        """What follows the first word."""
        return self.name[len(self._head) :]

    @property
    def _head(self) -> str:
        match = _HEAD.match(self.name)
        return match.group() if match else ""

    @property
    def template(self) -> str:
        return f"{self.name} {self.operands}" if self.operands else self.name


def expand(template: str) -> list[str]:
    """All spellings of a template.

    >>> expand("ld(|.nc).(u8|s8) h,[d]")
    ['ld.u8 h,[d]', 'ld.s8 h,[d]', 'ld.nc.u8 h,[d]', 'ld.nc.s8 h,[d]']
    """
    match = _CHOICE.search(template)
    if match is None:
        return [template]
    before, after = template[: match.start()], template[match.end() :]
    return [text for part in match.group(1).split("|") for text in expand(before + part + after)]


def forms_of(name: str) -> tuple[Form, ...]:
    """The forms of one class."""
    found: list[Form] = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{name}.txt has a line that is no form: {line!r}")
        found.append(Form(match[1], match[2], match[3] or ""))
    return tuple(found)
