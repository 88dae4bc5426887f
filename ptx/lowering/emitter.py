"""Writes PTX: virtual registers, blocks, and address arithmetic that finds its own place.

Arithmetic on values is folded where operands are numbers, shared where it was computed before, and placed in the
outermost block in which its operands are known. So what does not depend on a loop is computed before it. One pass moves
code, the other way: what is only used behind a loop (`behind_loops`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinygpu.ptx.lowering.behind_loops import behind_loops

_REGISTER = re.compile(r"%[rdphq]\d+")
LOOP = "loop"  # what the labels of loops begin with
KINDS = {"r": "b32", "d": "b64", "p": "pred", "h": "b16", "q": "b128"}


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register and the depth of the block that defines it. kind: r, d (64 bits), p, h (16 bits), q (128)."""

    name: str
    kind: str
    depth: int

    def __str__(self) -> str:
        return self.name


Number = Reg | int


@dataclass(slots=True, eq=False)
class Block:
    """Lines of one nesting level: `head` is computed on entry, `body` follows."""

    indent: str
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    known: dict[tuple[object, ...], Reg] = field(default_factory=dict)

    def lines(self) -> list[str]:
        return self.head + self.body


class Emitter:
    """The state of writing one kernel."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pure: set[str] = set()  # registers of computed values
        self.selected: dict[Reg, tuple[Number, Number, Reg]] = {}  # computed values that are one of two others
        self.parameters: set[str] = set()  # registers that are set before the first statement
        self.labels = 0
        self.blocks: list[Block] = [Block("  ")]
        self.mark: Callable[[], str] = str  # what stands behind every line: nothing, or a comment

    # -- blocks ----------------------------------------------------------------------------------------------------
    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def open(self) -> Block:
        block = Block(self.block.indent + "  ")
        self.blocks.append(block)
        return block

    def close(self) -> Block:
        return self.blocks.pop()

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A block behind what stands there: what is computed of that stands in it."""
        block = self.open()
        yield
        self.close()
        self.block.body.extend(block.lines())

    def line(self, text: str) -> None:
        """A statement at the current place."""
        self.block.body.append(self.block.indent + text + self.mark())

    def comment(self, text: str) -> None:
        self.line(f"// {text}")

    def label(self, stem: str) -> str:
        self.labels += 1
        return f"${stem}{self.labels}"

    def place_label(self, name: str) -> None:
        self.block.body.append(f"{name}:")

    def declarations(self) -> list[str]:
        return [f"  .reg .{KINDS[k]} %{k}<{n}>;" for k, n in sorted(self.counts.items())]

    def lines(self) -> list[str]:
        """The statements of the whole kernel, without computed values that nothing uses; some of those that are first
        used behind a loop stand behind it.
        """
        used: set[str] = set()
        kept = []
        for line in reversed(self.block.lines()):  # a computed value stands before whatever uses it
            registers = _REGISTER.findall(line)
            found = registers[0] if registers else ""
            if found in self.pure and found not in used and line.split()[1].startswith(found):
                continue
            used.update(registers)
            kept.append(line)
        return behind_loops(kept[::-1], self.pure, self.parameters, f"${LOOP}")

    # -- registers -------------------------------------------------------------------------------------------------
    def new(self, kind: str, depth: int | None = None) -> Reg:
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return Reg(f"%{kind}{number}", kind, len(self.blocks) - 1 if depth is None else depth)

    def parameter(self, kind: str) -> Reg:
        """A register that is set before the first statement, and never again."""
        register = self.new(kind, 0)
        self.parameters.add(register.name)
        return register

    def depth(self, *operands: Number) -> int:
        """How deep the block is that knows all of these."""
        return max((o.depth for o in operands if isinstance(o, Reg)), default=0)

    def computed(self, kind: str, text: str, *operands: Number, key: tuple[object, ...] | None = None) -> Reg:
        """A pure value: `text` with {d} for the result. Shared, and placed where its operands are known."""
        depth = self.depth(*operands)
        block = self.blocks[depth]
        identity = key or (kind, text, *operands)
        known = block.known.get(identity)
        if known is None:
            known = self.new(kind, depth)
            self.pure.add(known.name)
            values = [str(o) for o in operands]
            block.head.append(block.indent + text.format(*values, d=known) + self.mark())
            block.known[identity] = known
        return known

    # -- 32-bit arithmetic, unsigned -------------------------------------------------------------------------------
    def add(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return self.computed("r", "add.u32 {d}, {0}, {1};", a, b)

    def sub(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return self.computed("r", "sub.u32 {d}, {0}, {1};", a, b)

    def mul(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if b == 0:
            return 0
        if b == 1:
            return a
        if (shift := _exponent(b)) is not None:
            return self.computed("r", "shl.b32 {d}, {0}, {1};", a, shift)
        return self.computed("r", "mul.lo.u32 {d}, {0}, {1};", a, b)

    def div(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if b == 1:
            return a
        if (shift := _exponent(b)) is not None:
            return self.computed("r", "shr.u32 {d}, {0}, {1};", a, shift)
        return self.computed("r", "div.u32 {d}, {0}, {1};", a, b)

    def rem(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        if b == 1:
            return 0
        if isinstance(b, int) and _exponent(b) is not None:
            return self.computed("r", "and.b32 {d}, {0}, {1};", a, b - 1)
        return self.computed("r", "rem.u32 {d}, {0}, {1};", a, b)

    def minimum(self, a: Number, b: Number, signed: bool = False) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.computed("r", f"min.{'s' if signed else 'u'}32 {{d}}, {{0}}, {{1}};", a, b)

    def maximum(self, a: Number, b: Number, signed: bool = False) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.computed("r", f"max.{'s' if signed else 'u'}32 {{d}}, {{0}}, {{1}};", a, b)

    def floor_div(self, a: Number, b: Number) -> Number:
        """The quotient of a signed number by a positive one, rounded down."""
        if (isinstance(a, int) and isinstance(b, int)) or b == 1:
            return self.div(a, b)
        if (shift := _exponent(b)) is not None:
            return self.computed("r", "shr.s32 {d}, {0}, {1};", a, shift)
        # of a negative number, the quotient of its complement is the complement of its quotient
        sign = (-1 if a < 0 else 0) if isinstance(a, int) else self.computed("r", "shr.s32 {d}, {0}, 31;", a)
        return self.xor(self.div(self.xor(a, sign), b), sign)

    def floor_rem(self, a: Number, b: Number) -> Number:
        """What is left of a signed number by a positive one: not negative."""
        if (isinstance(a, int) and isinstance(b, int)) or _exponent(b) is not None:
            return self.rem(a, b)
        return self.sub(a, self.mul(self.floor_div(a, b), b))

    def not_below_zero(self, a: Number) -> Number:
        """A difference, or 0 where it is negative."""
        return max(a, 0) if isinstance(a, int) else self.computed("r", "max.s32 {d}, {0}, 0;", a)

    def xor(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        if b == 0:
            return a
        return self.computed("r", "xor.b32 {d}, {0}, {1};", a, b)

    def bits(self, a: Number, low: int, count: int, to: int) -> Number:
        """`count` bits of `a` from bit `low` on, moved to bit `to`."""
        if isinstance(a, int):
            return (a >> low & (1 << count) - 1) << to
        if low >= to:
            shifted = self.computed("r", "shr.u32 {d}, {0}, {1};", a, low - to) if low > to else a
        else:
            shifted = self.computed("r", "shl.b32 {d}, {0}, {1};", a, to - low)
        return self.computed("r", "and.b32 {d}, {0}, {1};", shifted, ((1 << count) - 1) << to)

    # -- 64-bit addresses ------------------------------------------------------------------------------------------
    def wide(self, a: Number, b: Number, signed: bool = False) -> Number:
        """a * b in 64 bits, from 32-bit factors; signed where one of them may be negative."""
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if b == 0:
            return 0
        return self.computed("d", f"mul.wide.{'s' if signed else 'u'}32 {{d}}, {{0}}, {{1}};", a, b)

    def add64(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return self.computed("d", "add.s64 {d}, {0}, {1};", a, b)

    def mul64(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if b == 0:
            return 0
        if b == 1:
            return a
        if (shift := _exponent(b)) is not None:
            return self.computed("d", "shl.b64 {d}, {0}, {1};", a, shift)
        return self.computed("d", "mul.lo.s64 {d}, {0}, {1};", a, b)

    def widen(self, a: Number, signed: bool = False) -> Number:
        kind = "s64.s32" if signed else "u64.u32"
        return a if isinstance(a, int) else self.computed("d", f"cvt.{kind} {{d}}, {{0}};", a)

    # -- predicates ------------------------------------------------------------------------------------------------
    def less(self, a: Number, b: Number) -> Number:
        """a < b, unsigned, as a predicate; True or False where it is known."""
        if isinstance(a, int) and isinstance(b, int):
            return a < b
        if isinstance(a, int):
            return self.computed("p", "setp.gt.u32 {d}, {1}, {0};", a, b)
        return self.computed("p", "setp.lt.u32 {d}, {0}, {1};", a, b)

    def holds(self, relation: str, a: Number, b: Number, signed: bool = False) -> Number:
        """A comparison of PTX (eq, ne, lt, le, gt, ge) as a predicate; True or False where it is known."""
        if isinstance(a, int) and isinstance(b, int):
            return bool(getattr(operator, relation)(a, b))
        kind = "s32" if signed else "u32"
        if isinstance(a, int):
            turned = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(relation, relation)
            return self.computed("p", f"setp.{turned}.{kind} {{d}}, {{1}}, {{0}};", a, b)
        return self.computed("p", f"setp.{relation}.{kind} {{d}}, {{0}}, {{1}};", a, b)

    def either(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            return True if a else b
        if isinstance(b, int):
            return True if b else a
        return self.computed("p", "or.pred {d}, {0}, {1};", a, b)

    def negated(self, a: Number) -> Number:
        return not a if isinstance(a, int) else self.computed("p", "not.pred {d}, {0};", a)

    def both(self, a: Number, b: Number) -> Number:
        if isinstance(a, int):
            return b if a else False
        if isinstance(b, int):
            return a if b else False
        if a == b:
            return a
        return self.computed("p", "and.pred {d}, {0}, {1};", a, b)

    def select(self, yes: Number, no: Number, p: Number) -> Number:
        if isinstance(p, int):
            return yes if p else no
        found = self.computed("r", "selp.b32 {d}, {0}, {1}, {2};", yes, no, p)
        self.selected[found] = yes, no, p
        return found


def _exponent(b: Number) -> int | None:
    """The exponent of a number that is a power of two."""
    if isinstance(b, int) and b == 2 ** (exponent := b.bit_length() - 1):
        return exponent
    return None
