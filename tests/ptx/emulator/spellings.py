"""Templates of instructions as PTX text: register names, and the smallest module around one instruction."""

from __future__ import annotations

import re

# Letters stand for a fresh register each; predicates, 8 to 128 bits, f32 and f64.
_TYPES = {"p": "pred", "b": "b8", "h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "q": "b128"}
_OPERAND = re.compile(r"(?<![\w%.$])([pbhrdfgq])(?![\w$])")
_VECTOR = re.compile(r"\*([bhrdfgq])")


def spell(text: str) -> str:
    """An expanded template with register names.

    >>> spell("add.u32 r,r,r")
    'add.u32 %r1,%r2,%r3;'
    """
    opcode, _, operands = text.partition(" ")
    count = re.search(r"\.v([248])", opcode)
    if count is not None:
        operands = _VECTOR.sub(lambda m: "{" + ",".join([m.group(1)] * int(count.group(1))) + "}", operands)
    numbers = iter(range(1, 64))
    named = _OPERAND.sub(lambda m: f"%{m.group(1)}{next(numbers)}", operands)
    return f"{opcode} {named};".replace(" ;", ";")


def module_of(instruction: str, target: str, version: str) -> str:
    """The smallest module that holds one instruction, or several, which begin in line 12."""
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        ".global .align 32 .b8 gv[256];\n.const .align 32 .b8 cv[256];\n.shared .align 32 .b8 sv[256];\n"
        ".visible .entry k(.param .u64 p0)\n{\n.local .align 32 .b8 lv[256];\n"
        f"{registers_of(instruction)}\n\n{instruction}\nret;\n}}\n"
    )


def registers_of(instruction: str) -> str:
    """Declarations of all registers that a spelling may name; of 128 bits where it does."""
    wide = [letter for letter in _TYPES if letter != "q" or "%q" in instruction]
    return " ".join(f".reg .{_TYPES[letter]} %{letter}<64>;" for letter in wide)
