"""Conversions of elements that share registers: all of a register at once, by permutes, masks and magic numbers.

operands   values of 8 or 4 bits, in registers (Unpack); values that become such (Pack)
legality   the pairs of `UNPACKED` and `PACKED`; 8-bit floats from sm_89 on, but e5m2 to wider ones
meaning    the values, in another type: exact; to fewer bits as `Cvt` rounds
cost       the statements of the text, for each register of narrow elements where a thread holds whole ones
lowering   the bits of a small number in the mantissa of a large one make a float, of which the large one is subtracted;
           what has as many exponent bits as it needs is moved into place and multiplied by a power of two
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, expr, where
from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.isa.cvt import CONVERSIONS, Cvt
from tinygpu.ptx.isa.elementwise import narrowed

# (a & b) ^ c, as lop3 names it.
_MASK_AND_FLIP = 0x6A


def _nibbles_to_f16(signed: bool) -> str:
    """1024 + x, and 1024 + 16 y of the upper nibble, in the mantissas of two f16; then 1 and 1/16 of them."""
    flip, less = (0x64806408, 0xD480E408) if signed else (0x64006400, 0xD400E400)
    lines = [f"mov.b32 scale, 0x2C003C00; mov.b32 less, 0x{less:08X};"]
    for byte in range(4):
        lines.append(f"prmt.b32 t, {{a}}, 0, 0x4{byte}4{byte}; {_flipped('t', 0x00F0000F, flip)}")
        lines.append(f"fma.rn.f16x2 {{d{byte}}}, t, scale, less;")
    return _block(".reg .b32 t, scale, less;", lines)


def _nibbles_to_bf16(signed: bool) -> str:
    """128 + x in the mantissas of two bf16."""
    flip, less = (0x43084308, 0xC308C308) if signed else (0x43004300, 0xC300C300)
    lines = [f"mov.b32 one, 0x3F803F80; mov.b32 less, 0x{less:08X}; shr.u32 upper, {{a}}, 4;"]
    for byte in range(4):
        lines.append(f"prmt.b32 t, {{a}}, upper, 0x{4 + byte}{4 + byte}{byte}{byte};")
        lines.append(f"{_flipped('t', 0x000F000F, flip)} fma.rn.bf16x2 {{d{byte}}}, t, one, less;")
    return _block(".reg .b32 t, upper, one, less;", lines)


def _nibbles_to_f32(signed: bool) -> str:
    """2^23 + x 2^p in the mantissa of an f32, p its place in a half of the register."""
    lines = ["shr.u32 upper, {a}, 16;"]
    for value in range(8):
        place = 4 * (value % 4)
        middle = 8 << place if signed else 0
        lines.append(f"lop3.b32 t, {'upper' if value > 3 else '{a}'}, {15 << place}, "
                     f"0x{0x4B000000 ^ middle:08X}, {_MASK_AND_FLIP};")  # fmt: skip
        scale, less = np.float32(2.0**-place), np.float32(-(2.0**23 + middle) * 2.0**-place)
        lines.append(f"fma.rn.f32 {{d{value}}}, t, {_f32(scale)}, {_f32(less)};")
    return _block(".reg .b32 t, upper;", lines)


def _fp4_to(pair: str) -> str:
    """Sign and exponent moved into place; the bias is made up for by a power of two."""
    scale, mask, shift = (0x74007400, 0x0E000E00, 3) if pair == "f16x2" else (0x7E807E80, 0x01C001C0, 6)
    lines = [f"mov.b32 scale, 0x{scale:08X}; shl.b32 lower, {{a}}, 4;"]
    if pair == "bf16x2":
        lines.append("mov.b32 zero, 0x80008000;")
    for byte in range(4):
        lines.append(f"prmt.b32 t, lower, {{a}}, 0x{4 + byte}{4 + byte}{byte}{byte};")
        lines.append(f"shr.u32 m, t, {shift}; and.b32 m, m, 0x{mask:08X}; lop3.b32 t, t, 0x80008000, m, 0xEA;")
        opcode, more = ("fma.rn.bf16x2", ", zero") if pair == "bf16x2" else ("mul.rn.f16x2", "")
        lines.append(f"{opcode} {{d{byte}}}, t, scale{more};")
    return _block(".reg .b32 t, m, lower, scale, zero;", lines)


def _bytes_to_f16(signed: bool) -> str:
    """1024 + x in the mantissas of two f16."""
    flip = ["xor.b32 x, {a}, 0x80808080;"] if signed else ["mov.b32 x, {a};"]
    lines = [*flip, f"mov.b32 less, 0x{0xE480E480 if signed else 0xE400E400:08X}; mov.b32 high, 0x64646464;"]
    for half, selector in enumerate(("0x4140", "0x4342")):
        lines.append(f"prmt.b32 t, x, high, {selector}; add.rn.f16x2 {{d{half}}}, t, less;")
    return _block(".reg .b32 x, t, less, high;", lines)


def _bytes_to_f32(signed: bool, pairs: bool = False) -> str:
    """2^23 + x in the mantissa of an f32; of pairs, then rounded to two bf16, which is exact."""
    lines = ["xor.b32 x, {a}, 0x80808080;" if signed else "mov.b32 x, {a};", "mov.b32 high, 0x4B000000;"]
    less = _f32(np.float32(2.0**23 + (128 if signed else 0)))
    for byte in range(4):
        to = f"f{byte}" if pairs else f"{{d{byte}}}"
        lines.append(f"prmt.b32 t, x, high, 0x765{byte}; sub.rn.f32 {to}, t, {less};")
    if pairs:
        lines += [f"cvt.rn.bf16x2.f32 {{d{half}}}, f{2 * half + 1}, f{2 * half};" for half in range(2)]
    return _block(".reg .b32 x, t, high, f<4>;", lines)


def _fp8_to_f16(kind: str) -> str:
    if kind == "e5m2":  # the upper byte of an f16
        return "prmt.b32 {d0}, {a}, 0, 0x1404;\nprmt.b32 {d1}, {a}, 0, 0x3424;"
    moved = "mov.b32 {{low, high}}, {a};"
    return _block(".reg .b16 low, high;",
                  [moved, f"cvt.rn.f16x2.{kind}x2 {{d0}}, low; cvt.rn.f16x2.{kind}x2 {{d1}}, high;"])  # fmt: skip


def _widened(text: str, registers: int, pairs: bool = False) -> str:
    """The text of pairs of f16, which are then made f32; of `pairs`, then rounded to two bf16, which is exact."""
    inner = text
    for number in range(registers):
        inner = inner.replace(f"{{d{number}}}", f"pair{number}")
    lines = [inner.replace("\n", " ")]
    for number in range(registers):
        low, high = ("low", "high") if pairs else (f"{{d{2 * number}}}", f"{{d{2 * number + 1}}}")
        lines.append(f"mov.b32 {{{{first, second}}}}, pair{number}; cvt.f32.f16 {low}, first;")
        lines.append(f"cvt.f32.f16 {high}, second;")
        if pairs:
            lines.append(f"cvt.rn.bf16x2.f32 {{d{number}}}, high, low;")
    declared = ", ".join([f"pair{n}" for n in range(registers)] + ["low", "high"] * pairs)
    return _block(f".reg .b32 {declared}; .reg .b16 first, second;", lines)


def _flipped(register: str, mask: int, flip: int) -> str:
    return f"lop3.b32 {register}, {register}, 0x{mask:08X}, 0x{flip:08X}, {_MASK_AND_FLIP};"


def _f32(value: np.float32) -> str:
    return f"0f{int(value.view(np.uint32)):08X}"


def _block(registers: str, lines: list[str]) -> str:
    return "{{ " + registers + " " + " ".join(lines) + " }}"


def _of_nibble(kind: str, to: str) -> str:
    """One value of 4 bits, whatever is above it."""
    if kind == "e2m1":
        return _FP4_ALONE[to]
    take = "bfe.s32 t, {a}, 0, 4;" if kind == "s4" else "and.b32 t, {a}, 15;"
    wide = "s32" if kind == "s4" else "u32"
    if to in ("s32", "u32"):
        return take.replace("t,", "{d},", 1)
    if to == "bf16":
        return f"{{{{ .reg .b32 t; {take} cvt.rn.f32.{wide} t, t; cvt.rn.bf16.f32 {{d}}, t; }}}}"
    return f"{{{{ .reg .b32 t; {take} cvt.rn.{to}.{wide} {{d}}, t; }}}}"


_FP4_BITS = "and.b32 s, {{a}}, 8; shl.b32 s, s, {sign}; and.b32 m, {{a}}, 7; shl.b32 m, m, {place}; or.b32 m, m, s;"
_FP4_ALONE = {
    "f16": "{{ .reg .b32 m, s; .reg .b16 h, k; " + _FP4_BITS.format(sign=12, place=9)
    + " cvt.u16.u32 h, m; mov.b16 k, 0x7400; mul.rn.f16 {d}, h, k; }}",
    "bf16": "{{ .reg .b32 m, s; .reg .b16 h, k, z; " + _FP4_BITS.format(sign=12, place=6)
    + " cvt.u16.u32 h, m; mov.b16 k, 0x7E80; mov.b16 z, 0x8000; fma.rn.bf16 {d}, h, k, z; }}",
    "f32": "{{ .reg .b32 m, s; " + _FP4_BITS.format(sign=28, place=22) + " mul.rn.f32 {d}, m, 0f7E800000; }}",
}  # fmt: skip

# (from, to) -> what makes all values of a register of the operand; "" where they are made one by one.
UNPACKED: dict[tuple[str, str], Callable[[], str]] = {
    ("s4", "f16"): lambda: _nibbles_to_f16(True),
    ("u4", "f16"): lambda: _nibbles_to_f16(False),
    ("s4", "bf16"): lambda: _nibbles_to_bf16(True),
    ("u4", "bf16"): lambda: _nibbles_to_bf16(False),
    ("s4", "f32"): lambda: _nibbles_to_f32(True),
    ("u4", "f32"): lambda: _nibbles_to_f32(False),
    ("s4", "s32"): lambda: "",
    ("u4", "u32"): lambda: "",
    ("e2m1", "f16"): lambda: _fp4_to("f16x2"),
    ("e2m1", "bf16"): lambda: _fp4_to("bf16x2"),
    ("e2m1", "f32"): lambda: _widened(_fp4_to("f16x2"), 4),
    ("s8", "f16"): lambda: _bytes_to_f16(True),
    ("u8", "f16"): lambda: _bytes_to_f16(False),
    ("s8", "f32"): lambda: _bytes_to_f32(True),
    ("u8", "f32"): lambda: _bytes_to_f32(False),
    ("s8", "bf16"): lambda: _bytes_to_f32(True, pairs=True),
    ("u8", "bf16"): lambda: _bytes_to_f32(False, pairs=True),
    ("e4m3", "f16"): lambda: _fp8_to_f16("e4m3"),
    ("e5m2", "f16"): lambda: _fp8_to_f16("e5m2"),
    ("e4m3", "f32"): lambda: _widened(_fp8_to_f16("e4m3"), 2),
    ("e5m2", "f32"): lambda: _widened(_fp8_to_f16("e5m2"), 2),
    ("e4m3", "bf16"): lambda: _widened(_fp8_to_f16("e4m3"), 2, pairs=True),
    ("e5m2", "bf16"): lambda: _widened(_fp8_to_f16("e5m2"), 2, pairs=True),
}
# Of one value where `CONVERSIONS` has none.
_ALONE = {
    ("e4m3", "bf16"): f"{{{{ .reg .b32 f; {CONVERSIONS['e4m3', 'f32'].text.replace('{d}', 'f')} "
    "cvt.rn.bf16.f32 {d}, f; }}",
    ("e5m2", "bf16"): "{{ .reg .b32 t; .reg .b16 h; shl.b32 t, {a}, 8; cvt.u16.u32 h, t; cvt.f32.f16 t, h; "
    "cvt.rn.bf16.f32 {d}, t; }}",
    ("s8", "bf16"): "{{ .reg .b32 t; cvt.rn.f32.s8 t, {a}; cvt.rn.bf16.f32 {d}, t; }}",
    ("u8", "bf16"): "{{ .reg .b32 t; cvt.rn.f32.u8 t, {a}; cvt.rn.bf16.f32 {d}, t; }}",
    ("e5m2", "f16"): "{{ .reg .b32 t; shl.b32 t, {a}, 8; cvt.u16.u32 {d}, t; }}",
    ("e5m2", "f32"): "{{ .reg .b32 t; .reg .b16 h; shl.b32 t, {a}, 8; cvt.u16.u32 h, t; cvt.f32.f16 {d}, h; }}",
}  # fmt: skip
# (from, to) of values that become narrow: what they are as whole numbers, "" of 8-bit floats.
PACKED: dict[tuple[str, str], str] = {
    **{("f32", to): "cvt.rni.s32.f32" for to in ("s8", "u8", "s4", "u4")},
    **{("f16", to): "cvt.rni.s32.f16" for to in ("s8", "u8", "s4", "u4")},
    **{("s32", to): "mov.b32" for to in ("s8", "u8", "s4", "u4")},
    **{(origin, to): "" for origin in ("f32", "f16") for to in ("e4m3", "e5m2", "e2m1")},
}
# The code of an e2m1 is the least of what rounding to halves, ones and twos, ties to even, gives; all saturate at 6. A
# sum with 1.5 x 2^23 is rounded to a whole number: what its bits are more than those of 1.5 x 2^23.
_TO_FP4 = (
    "abs.f32 m, {a}; min.f32 m, m, 0f40C00000; fma.rn.f32 c, m, 0f40000000, 0f4B400000; "
    "add.rn.f32 t, m, 0f4B400002; min.u32 c, c, t; fma.rn.f32 t, m, 0f3F000000, 0f4B400004; min.u32 c, c, t;"
)
# Bits of eight such sums, each 16 times the one before, in 32 bits.
_EIGHT_SUMS = sum(0x4B400000 << 4 * place for place in range(8)) % 2**32


@dataclass(frozen=True, eq=False)
class Unpack(Elementwise):
    """Makes values of 16 or 32 bits of those of 8 or 4 bits: all of a register at once."""

    origin: str = "s4"
    to: str = "f16"
    sign: ClassVar[str] = "convert"
    source: ClassVar[str] = "PTX ISA, prmt, lop3, cvt; Open Compute Project, microscaling formats (e2m1)"

    def __post_init__(self) -> None:
        if (self.origin, self.to) not in UNPACKED:
            pairs = ", ".join(f"{a} to {b}" for a, b in UNPACKED)
            raise ValueError(f"nothing unpacks {self.origin} to {self.to}; there are {pairs}")
        if self.origin == "e4m3":
            object.__setattr__(self, "target", 89)
            object.__setattr__(self, "isa", (8, 1))

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.origin,), self.to

    def text(self) -> str:
        pair = self.origin, self.to
        if dtype(self.origin).bits == 4:
            return _of_nibble(*pair)
        spelled = _ALONE.get(pair) or CONVERSIONS[pair].text
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {{a}};"

    def unpacked_text(self) -> str:
        return UNPACKED[self.origin, self.to]()

    def issued(self, values: Expr) -> Expr:
        alone = values * (_statements(self.text()) + 1)  # and what takes the value out of its register
        together, per = self.unpacked_text(), 32 // dtype(self.origin).bits
        return where(values % per == 0, values // per * _statements(together), alone) if together else alone

    @property
    def label(self) -> str:
        return f"unpack.{self.to}.{self.origin}"

    @property
    def flops(self) -> int:
        return 0

    def meaning(self, *values: Any) -> Any:
        with np.errstate(all="ignore"):
            wide, to = np.asarray(values[0]).astype(np.float32), dtype(self.to)
            return narrowed(wide, self.to) if to.is_float else wide.astype(to.numpy)


@dataclass(frozen=True, eq=False)
class Pack(Elementwise):
    """Makes values of 8 or 4 bits, all of a register at once where that is quicker.

    Integers saturate, and are 0 of a NaN; floats saturate, and e2m1, which has no NaN, is 6 of one.
    """

    origin: str = "f32"
    to: str = "s8"
    sign: ClassVar[str] = "convert"
    source: ClassVar[str] = "PTX ISA, cvt, cvt.pack"

    def __post_init__(self) -> None:
        if (self.origin, self.to) not in PACKED:
            pairs = ", ".join(f"{a} to {b}" for a, b in PACKED)
            raise ValueError(f"nothing packs {self.origin} into {self.to}; there are {pairs}")
        if dtype(self.to).is_float and dtype(self.to).bits == 8:
            object.__setattr__(self, "target", 89)
            object.__setattr__(self, "isa", (8, 1))

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.origin,), self.to

    def text(self) -> str:
        if self.to == "e2m1":
            wide = "cvt.f32.f16 x, {a};" if self.origin == "f16" else "mov.b32 x, {a};"
            signed = "and.b32 c, c, 7; shr.u32 t, x, 28; and.b32 t, t, 8; or.b32 {d}, c, t;"
            return f"{{{{ .reg .b32 x, m, t, c; {wide} {_TO_FP4.replace('{a}', 'x')} {signed} }}}}"
        if dtype(self.to).bits == 4:
            low, high = (-8, 7) if self.to == "s4" else (0, 15)
            whole = f"{PACKED[self.origin, self.to]} t, {{a}};"
            return f"{{{{ .reg .b32 t; {whole} max.s32 t, t, {low}; min.s32 {{d}}, t, {high}; }}}}"
        spelled = CONVERSIONS[self.origin, self.to].text
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {{a}};"

    def packed_text(self) -> str:
        if self.to == "e2m1":
            return self._halves_of_bytes()
        return self._floats() if dtype(self.to).is_float else self._integers()

    def _integers(self) -> str:
        """Two at a time, from the highest on, each above what was packed before (PTX ISA, cvt.pack)."""
        whole, count = PACKED[self.origin, self.to], 32 // dtype(self.to).bits
        values = [f"{{a{i}}}" if whole == "mov.b32" else f"t{i}" for i in range(count)]
        lines = [f"{whole} {value}, {{a{i}}};" for i, value in enumerate(values) if whole != "mov.b32"]
        rest = "0"
        for first in range(count - 2, -1, -2):
            into = "{d}" if first == 0 else "above"
            lines.append(f"cvt.pack.sat.{self.to}.s32.b32 {into}, {values[first + 1]}, {values[first]}, {rest};")
            rest = "above"
        return _block(f".reg .b32 above, t<{count}>;", lines)

    def _halves_of_bytes(self) -> str:
        """Eight sums, and the upper four bits of eight values for their signs, each above the one before."""
        lines = []
        for place in range(7, -1, -1):
            value = f"{{a{place}}}"
            if self.origin == "f16":
                lines.append(f"cvt.f32.f16 x, {value};")
                value = "x"
            lines.append(_TO_FP4.replace("{a}", value))
            if place == 7:
                lines.append(f"mov.b32 all, c; shr.u32 signs, {value}, 28;")
            else:
                lines.append(f"mad.lo.u32 all, all, 16, c; shf.l.wrap.b32 signs, {value}, signs, 4;")
        lines.append(f"sub.u32 all, all, {_EIGHT_SUMS}; lop3.b32 {{d}}, all, signs, 0x88888888, 0xD8;")
        return _block(".reg .b32 x, m, t, c, all, signs;", lines)

    def _floats(self) -> str:
        """Two at a time, the second in the upper byte."""
        if self.origin == "f32":
            lines = [f"cvt.rn.satfinite.{self.to}x2.f32 {half}, {{a{i + 1}}}, {{a{i}}};"
                     for half, i in (("low", 0), ("high", 2))]  # fmt: skip
        else:
            lines = [f"mov.b32 two, {{{{{{a{i}}}, {{a{i + 1}}}}}}}; cvt.rn.satfinite.{self.to}x2.f16x2 {half}, two;"
                     for half, i in (("low", 0), ("high", 2))]  # fmt: skip
        return _block(".reg .b16 low, high; .reg .b32 two;", [*lines, "mov.b32 {d}, {{low, high}};"])

    def issued(self, values: Expr) -> Expr:
        alone = values * (_statements(self.text()) + 1)  # and what puts the value into its register
        together, per = self.packed_text(), 32 // dtype(self.to).bits
        return where(values % per == 0, values // per * _statements(together), alone) if together else alone

    def on_fma_lanes(self, values: Expr) -> Expr:
        """The sums that round to an e2m1; nothing else is arithmetic in f32."""
        return values * 3 if self.to == "e2m1" else expr(0)

    @property
    def label(self) -> str:
        return f"pack.{self.to}.{self.origin}"

    @property
    def flops(self) -> int:
        return 0

    def meaning(self, *values: Any) -> Any:
        to = dtype(self.to)
        if to.bits == 8:
            return Cvt(self.origin, self.to).meaning(*values)
        if to.is_float:
            wide = np.asarray(values[0]).astype(np.float64)
            size = np.nan_to_num(np.minimum(np.abs(wide), 8.0), nan=8.0)
            codes = np.minimum(np.rint(2 * size), np.minimum(np.rint(size) + 2, np.rint(size / 2) + 4))
            return (np.minimum(codes, 7).astype(np.uint8) | np.uint8(8) * np.signbit(wide)).view(to.numpy)
        limits = ml_dtypes.iinfo(to.numpy)
        with np.errstate(all="ignore"):
            whole = np.rint(np.asarray(values[0]).astype(np.float64))
            return np.clip(np.where(np.isnan(whole), 0, whole), limits.min, limits.max).astype(to.numpy)


def _statements(text: str) -> int:
    """Statements of a text that do something: declarations and constants cost nothing."""
    parts = [part.strip(" {}") for part in text.replace("\n", " ").split(";")]
    return sum(bool(part) and not part.startswith((".reg", "mov")) for part in parts)
