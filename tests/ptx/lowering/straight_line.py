"""A tiny interpreter of straight-line integer PTX for all threads of a CTA at once: which addresses does a kernel use?

It knows the few instructions of address arithmetic, shares nothing with the emulator, and refuses everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.uint64]

_LINE = re.compile(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*);")
_ADDRESS = re.compile(r"\[(%?\w+)(?:\+(-?\d+))?\]")
_M32 = np.uint64(0xFFFFFFFF)


@dataclass(slots=True)
class Access:
    """One memory instruction: the byte address and whether it is carried out, per thread."""

    opcode: str
    address: Values
    active: NDArray[np.bool_]


@dataclass(slots=True)
class Machine:
    """Registers of `threads` threads; `arguments` are the values of kernel parameters and special registers."""

    threads: int
    arguments: Mapping[str, int]
    registers: dict[str, Values] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)

    def run(self, lines: Iterable[str]) -> list[Access]:
        for line in lines:
            text = line.split("//")[0].strip()
            if not text or text.startswith((".", "$", "{", "}", "ret", "bar.sync")) or text.endswith(":"):
                continue
            found = _LINE.fullmatch(text)
            if found is None:
                raise AssertionError(f"the interpreter cannot read {text!r}")
            self._step(*found.groups())
        return self.accesses

    def value(self, operand: str) -> Values:
        operand = operand.strip()
        if operand == "%tid.x":
            return np.arange(self.threads, dtype=np.uint64)
        if operand in self.registers:
            return self.registers[operand]
        number = self.arguments.get(operand)
        if number is None:
            number = int(operand)
        return np.full(self.threads, number % (1 << 64), dtype=np.uint64)

    def _step(self, negated: str | None, guard: str | None, opcode: str, rest: str) -> None:
        active = np.ones(self.threads, dtype=np.bool_)
        if guard is not None:
            active = (self.registers[guard] != 0) ^ bool(negated)
        address = _ADDRESS.search(rest)
        if opcode.startswith(("ld.param", "cvta")):
            to, of = [o.strip(" []") for o in rest.split(",")]
            self.registers[to] = self.value(of)
        elif address is not None:
            where = self.value(address[1]) + np.uint64(int(address[2] or 0) % (1 << 64))
            self.accesses.append(Access(opcode, where, active))
        elif opcode.startswith(("mov.b32", "mov.b16", "mov.b64")) or "{" in rest:
            pass  # values, not addresses
        else:
            name, *operands = [o.strip() for o in rest.split(",")]
            result = _compute(opcode, [self.value(o) for o in operands])
            self.registers[name] = np.where(active, result, self.registers.get(name, result))


def _wrapped(function: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    return lambda a, b: function(a & _M32, b & _M32) & _M32


_BINARY: Mapping[str, Callable[[Values, Values], Values]] = {
    "add.u32": _wrapped(lambda a, b: a + b),
    "sub.u32": _wrapped(lambda a, b: a - b),
    "mul.lo.u32": _wrapped(lambda a, b: a * b),
    "mul.hi.u32": lambda a, b: ((a & _M32) * (b & _M32)) >> np.uint64(32),
    "div.u32": _wrapped(lambda a, b: a // b),
    "rem.u32": _wrapped(lambda a, b: a % b),
    "min.u32": _wrapped(np.minimum),
    "shl.b32": _wrapped(lambda a, b: a << b),
    "shr.u32": _wrapped(lambda a, b: a >> b),
    "and.b32": _wrapped(lambda a, b: a & b),
    "xor.b32": _wrapped(lambda a, b: a ^ b),
    "mul.wide.u32": lambda a, b: (a & _M32) * (b & _M32),
    "mul.wide.s32": lambda a, b: _signed(a) * _signed(b),
    "mul.lo.s64": lambda a, b: a * b,
    "add.s64": lambda a, b: a + b,
    "shl.b64": lambda a, b: a << b,
    "setp.lt.u32": lambda a, b: ((a & _M32) < (b & _M32)).astype(np.uint64),
    "setp.gt.u32": lambda a, b: ((a & _M32) > (b & _M32)).astype(np.uint64),
    "setp.ge.u32": lambda a, b: ((a & _M32) >= (b & _M32)).astype(np.uint64),
    "and.pred": lambda a, b: a & b,
}


def _signed(a: Values) -> Values:
    """32 bits with their sign, in 64."""
    return (a & _M32).astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)


def _compute(opcode: str, operands: list[Values]) -> Values:
    if opcode == "mov.u32":
        return operands[0] & _M32
    if opcode == "cvt.u64.u32":
        return operands[0] & _M32
    if opcode == "selp.b32":
        return np.where(operands[2] != 0, operands[0], operands[1]) & _M32
    if opcode in _BINARY:
        with np.errstate(over="ignore"):
            return _BINARY[opcode](*operands)
    raise AssertionError(f"the interpreter does not know {opcode}")
