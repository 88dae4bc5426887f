"""A corpus of PTX spellings, one template a line; what they expand to, and the kernel around one."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
# Letters stand for a fresh register each; predicates, 8 to 128 bits, f32 and f64.
_TYPES = {"p": "pred", "b": "b8", "h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "q": "b128"}
_CHOICE = re.compile(r"\(([^()]*)\)")
_OPERAND = re.compile(r"(?<![\w%.$])([pbhrdfgq])(?![\w$])")
_VECTOR = re.compile(r"\*([bhrdfgq])")


def expand(template: str) -> list[str]:
    """All spellings of a template in which (a|b) is a choice.

    >>> expand("ld(|.nc).(u8|s8) h,[d]")
    ['ld.u8 h,[d]', 'ld.s8 h,[d]', 'ld.nc.u8 h,[d]', 'ld.nc.s8 h,[d]']
    """
    match = _CHOICE.search(template)
    if match is None:
        return [template]
    before, after = template[: match.start()], template[match.end() :]
    return [text for part in match.group(1).split("|") for text in expand(before + part + after)]


def templates(name: str) -> list[str]:
    """The templates of one file of this folder."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def files() -> list[str]:
    """Names of the files of this folder, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def spell(text: str) -> str:
    """An expanded template with register names: "add.u32 r,r,r" becomes "add.u32 %r1,%r2,%r3;"."""
    opcode, _, operands = text.partition(" ")
    count = re.search(r"\.v([248])", opcode)
    if count is not None:
        operands = _VECTOR.sub(lambda m: "{" + ",".join([m.group(1)] * int(count.group(1))) + "}", operands)
    numbers = iter(range(1, 64))
    named = _OPERAND.sub(lambda m: f"%{m.group(1)}{next(numbers)}", operands)
    return f"{opcode} {named};".replace(" ;", ";")


def module_of(instruction: str, target: str, version: str) -> str:
    """The smallest module that holds one instruction; the instruction stands in line 12."""
    wide = [letter for letter in _TYPES if letter != "q" or "%q" in instruction]
    registers = " ".join(f".reg .{_TYPES[letter]} %{letter}<64>;" for letter in wide)
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        ".global .align 32 .b8 gv[256];\n.const .align 32 .b8 cv[256];\n.shared .align 32 .b8 sv[256];\n"
        ".visible .entry k(.param .u64 p0)\n{\n.local .align 32 .b8 lv[256];\n"
        f"{registers}\n\n{instruction}\nret;\n}}\n"
    )
