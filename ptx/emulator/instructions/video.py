"""Video instructions: arithmetic on bytes and halves of registers (PTX ISA, "Video Instructions").

Values are exact 64-bit integers until the result is saturated or cut, as in the manual's pseudo code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, PartOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array

Wide = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]
_COMPARE: dict[str, Binary] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}  # fmt: skip
_BINARY: dict[str, Binary] = {
    "vadd": np.add, "vsub": np.subtract, "vabsdiff": lambda x, y: np.abs(x - y), "vmin": np.minimum,
    "vmax": np.maximum,
    # The sum is rounded up, a negative one (above its half) up too.
    "vavrg": lambda x, y: np.where(x + y >= 0, x + y + 1, x + y) >> 1,
}  # fmt: skip


def _register(b: Binder, operand: Operand) -> tuple[Operand, str, bool]:
    """(register, part, negated) of an operand."""
    if isinstance(operand, PartOperand):
        return operand.register, operand.part, operand.negated
    return operand, "", False


def _field(value: Array, start: int, width: int, signed: bool) -> Array:
    part = (value >> np.int64(start)) & np.int64((1 << width) - 1)
    if not signed:
        return np.asarray(part)
    return np.where(part >> np.int64(width - 1) != 0, part - (1 << width), part)


def _wide(value: Any) -> Array:
    """The 32 bits as a non-negative 64-bit integer."""
    return np.asarray(value).astype(np.int64) & np.int64(0xFFFFFFFF)


def _limit(value: Array, width: int, signed: bool) -> Array:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return np.asarray(np.clip(value, low, high))


def _extract(b: Binder, part: str, signed: bool) -> Wide:
    """The byte or half (or all) of a register, with its sign."""
    if not part:
        return lambda v: _field(_wide(v), 0, 32, signed)
    if len(part) != 2 or part not in ("b0", "b1", "b2", "b3", "h0", "h1"):
        raise b.fail(f".{part} is no part of a register here: .b0 to .b3, .h0 or .h1")
    width = 8 if part[0] == "b" else 16
    start = int(part[1]) * width
    return lambda v: _field(_wide(v), start, width, signed)


def _types(b: Binder, i: Instruction, count: int) -> list[bool]:
    """Whether each type is signed."""
    if len(i.types) != count or any(name not in ("u32", "s32") for name in i.types):
        raise b.fail(f"`{i.name}` needs {count} types, each .u32 or .s32")
    return [TYPES[name].signed for name in i.types]


def _second(i: Instruction, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if i.modifiers[-1] == name), None)


# ---- scalar -----------------------------------------------------------------------------------------------------


def _merge(part: str) -> Callable[[Array, Array], Array]:
    """Put a result into a part of c."""
    width = 8 if part[0] == "b" else 16
    start = int(part[1]) * width
    mask = np.int64(((1 << width) - 1) << start)
    return lambda value, rest: (value << np.int64(start)) & mask | _wide(rest) & ~mask


def _scalar(
    b: Binder, i: Instruction, compute: Binary, signs: tuple[bool, bool, bool], saturates: bool = True
) -> Run:
    """d{.part}, a{.part}, b{.part}{, c}: one value per thread, merged into c or combined with it."""
    signed, signed_x, signed_y = signs
    operands = b.operands(i, 3, 4)
    d, into, _ = _register(b, operands[0])
    x, part_x, _ = _register(b, operands[1])
    y, part_y, _ = _register(b, operands[2])
    get_x, get_y = _extract(b, part_x, signed_x), _extract(b, part_y, signed_y)
    second = _second(i, ("add", "min", "max"))
    if (bool(into) or second is not None) != (len(operands) == 4) or (into and second is not None):
        raise b.fail(f"`{i.name}` takes a fourth operand to merge into, or to combine with by .add, .min or .max")
    width = 32 if not into else 8 if into[0] == "b" else 16
    merge = None
    if into:
        _extract(b, into, False)
        merge = _merge(into)
    combine: dict[str, Binary] = {"add": np.add, "min": np.minimum, "max": np.maximum}
    limit = saturates and i.has("sat")

    def run(p: Array, q: Array, rest: Array | None = None) -> Array:
        value = np.asarray(compute(get_x(p), get_y(q))).astype(np.int64)
        if limit:
            value = _limit(value, width, signed)
        if rest is not None:
            if merge is not None:
                value = merge(value, rest)
            elif second is not None:
                # Without .sat the intermediate result is cut to 32 bits before it is combined.
                value = combine[second](_field(_wide(value), 0, 32, signed), _field(_wide(rest), 0, 32, signed))
        return np.asarray(_wide(value).astype(np.uint32))

    sources: list[Getter] = [b.source(x, "u32"), b.source(y, "u32")]
    if len(operands) == 4:
        sources.append(b.source(operands[3], "u32"))
    return emit(b.destination(d, "u32"), run, tuple(sources))


def _arithmetic(name: str) -> Compile:
    def compile_arithmetic(b: Binder, i: Instruction) -> Run:
        signed, signed_x, signed_y = _types(b, i, 3)
        return _scalar(b, i, _BINARY[name], (signed, signed_x, signed_y))

    return compile_arithmetic


def _shift(left: bool) -> Compile:
    def compile_shift(b: Binder, i: Instruction) -> Run:
        signed, signed_x, signed_y = _types(b, i, 3)
        if signed_y or i.has("clamp") == i.has("wrap"):
            raise b.fail(f"`{i.name}` needs .u32 as its last type, and .clamp or .wrap")
        clamp = i.has("clamp")

        def compute(x: Array, y: Array) -> Array:
            count = np.minimum(y, 32) if clamp else y & 31
            if not left:
                return np.asarray(x >> count)
            # A shift by 32 may need 64 bits and a sign: a smaller number has the same low bits and saturates alike.
            return np.where(count == 32, np.clip(x, -(1 << 30), 1 << 30) << 32, x << np.minimum(count, 31))

        return _scalar(b, i, compute, (signed, signed_x, signed_y))

    return compile_shift


def _vset(b: Binder, i: Instruction) -> Run:
    signed_x, signed_y = _types(b, i, 2)
    return _scalar(b, i, _comparison(b, i), (False, signed_x, signed_y), saturates=False)


def _comparison(b: Binder, i: Instruction) -> Binary:
    found = [m for m in i.modifiers if m in _COMPARE]
    if len(found) != 1:
        raise b.fail(f"`{i.name}` needs one comparison such as .lt")
    return _COMPARE[found[0]]


def _vmad(b: Binder, i: Instruction) -> Run:
    """a * b + c with a plus one, negations and a scaled, saturated result."""
    _, signed_x, signed_y = _types(b, i, 3)
    d, *rest = b.operands(i, 4)
    (x, part_x, minus_x), (y, part_y, minus_y), (z, part_z, minus_z) = (_register(b, operand) for operand in rest)
    if part_z or (i.has("po") and (minus_x or minus_y or minus_z)):
        raise b.fail(f"`{i.name}` takes all of c, and no negation beside .po")
    get_x, get_y = _extract(b, part_x, signed_x), _extract(b, part_y, signed_y)
    minus = minus_x != minus_y
    final_signed = signed_x or signed_y or minus or minus_z
    shift = 7 if i.has("shr7") else 15 if i.has("shr15") else 0
    sat, plus_one = i.has("sat"), i.has("po")
    low, high = (-(1 << 31), (1 << 31) - 1) if final_signed else (0, (1 << 32) - 1)

    def run(p: Array, q: Array, r: Array) -> Array:
        # The exact result may need 65 bits: Python's integers hold it.
        product = get_x(p).astype(object) * get_y(q).astype(object)
        extra = _field(_wide(r), 0, 32, final_signed).astype(object)
        total = (-product if minus else product) + (-extra if minus_z and not minus else extra) + (1 if plus_one else 0)
        total = total >> shift
        if sat:
            total = np.minimum(np.maximum(total, low), high)
        return np.asarray((total & 0xFFFFFFFF).astype(np.uint32))

    sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(z, "u32"))
    return emit(b.destination(d, "u32"), run, sources)


# ---- two and four lanes -------------------------------------------------------------------------------------------


def _lanes_of(b: Binder, operand: Operand, count: int, default: str) -> tuple[Operand, tuple[int, ...]]:
    """(register, which of the 2 * count fields of b:a each lane takes, lowest lane first)."""
    register, part, _ = _register(b, operand)
    kind, width = ("h", 2) if count == 2 else ("b", 4)
    part = part or default
    if part[0] != kind or len(part) != width + 1 or any(int(digit) >= 2 * count for digit in part[1:]):
        raise b.fail(f".{part} does not choose {count} fields")
    return register, tuple(int(digit) for digit in reversed(part[1:]))


def _simd(b: Binder, i: Instruction, count: int, compute: Binary, signs: tuple[bool, bool, bool]) -> Run:
    """d{.mask}, a{.fields}, b{.fields}, c: lanes outside the mask are c's; .add sums the lanes onto c."""
    signed, signed_x, signed_y = signs
    operands = b.operands(i, 4)
    width = 32 // count
    d, mask, _ = _register(b, operands[0])
    chosen = {int(digit) for digit in mask[1:]} if mask else set(range(count))
    if mask and (mask[0] != ("h" if count == 2 else "b") or max(chosen) >= count):
        raise b.fail(f".{mask} names no lanes of this instruction")
    x, from_x = _lanes_of(b, operands[1], count, "h10" if count == 2 else "b3210")
    y, from_y = _lanes_of(b, operands[2], count, "h32" if count == 2 else "b7654")
    limit, add = i.has("sat"), i.modifiers[-1] == "add"

    def run(p: Array, q: Array, r: Array) -> Array:
        a, other, rest = _wide(p), _wide(q), _wide(r)

        def take(field: int, sign: bool) -> Array:
            return _field(a if field < count else other, field % count * width, width, sign)

        result = rest if add else np.zeros(1, np.int64)
        for lane in range(count):
            if lane in chosen:
                value = np.asarray(compute(take(from_x[lane], signed_x), take(from_y[lane], signed_y))).astype(np.int64)
                if limit:
                    value = _limit(value, width, signed)
                result = result + value if add else result | _field(value, 0, width, False) << np.int64(lane * width)
            elif not add:
                result = result | _field(rest, lane * width, width, False) << np.int64(lane * width)
        return np.asarray(_wide(result).astype(np.uint32))

    sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(operands[3], "u32"))
    return emit(b.destination(d, "u32"), run, sources)


def _simd_arithmetic(name: str, count: int) -> Compile:
    def compile_simd(b: Binder, i: Instruction) -> Run:
        signed, signed_x, signed_y = _types(b, i, 3)
        return _simd(b, i, count, _BINARY[name], (signed, signed_x, signed_y))

    return compile_simd


def _simd_set(count: int) -> Compile:
    def compile_set(b: Binder, i: Instruction) -> Run:
        signed_x, signed_y = _types(b, i, 2)
        return _simd(b, i, count, _comparison(b, i), (False, signed_x, signed_y))

    return compile_set


VIDEO: dict[str, Compile] = {
    **{name: _arithmetic(name) for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")},
    "vshl": _shift(True),
    "vshr": _shift(False),
    "vmad": _vmad,
    "vset": _vset,
    **{f"{name}{count}": _simd_arithmetic(name, count) for name in _BINARY for count in (2, 4)},
    "vset2": _simd_set(2),
    "vset4": _simd_set(4),
}
