"""Which forms of wgmma.mma_async exist: what modifiers and operands of one instruction say (PTX ISA, same name)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tinygpu.ptx.emulator.instructions.binder import Binder
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand, Operand, RegisterOperand, VectorOperand
from tinygpu.ptx.emulator.units.matrix_elements import ELEMENTS, ElementType

ROWS = 64
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
# family of A and B -> (types of D, K of a dense instruction).
_FAMILIES: dict[str, tuple[tuple[str, ...], int]] = {
    "f16": (("f32", "f16"), 16), "bf16": (("f32",), 16), "tf32": (("f32",), 8), "fp8": (("f32", "f16"), 32),
    "int8": (("s32",), 32), "bit": (("s32",), 256),
}  # fmt: skip
_FLOAT_COLUMNS = tuple(range(8, 257, 8))
# PTX ISA, "Matrix Shape" of wgmma: integers and single bits leave out the odd multiples of 8 above 24.
_INTEGER_COLUMNS = (8, 16, 24, 32, *range(48, 257, 16))


@dataclass(frozen=True, slots=True)
class WgmmaForm:
    """One form of wgmma.mma_async.

    n, k           of the whole matrices; m is 64
    a, b           types of the elements
    d_type         of D: f32, f16 or s32
    sparse         half of A is stored, with metadata
    a_mn, b_mn     whether A is M-major, B is N-major in shared memory
    sign           -1 where one of A and B is negated, else 1
    """

    shape: str
    n: int
    k: int
    a: ElementType
    b: ElementType
    d_type: str
    sparse: bool
    saturating: bool
    a_in_registers: bool
    a_mn: bool
    b_mn: bool
    sign: int
    name: str

    @property
    def stored_k(self) -> int:
        """Columns of A that registers or shared memory hold."""
        return self.k // 2 if self.sparse else self.k

    @property
    def operations(self) -> int:
        """Multiply-adds of one instruction, times two."""
        return 2 * ROWS * self.n * self.k

    @property
    def registers(self) -> int:
        """Registers per thread that hold D."""
        return self.n // 4 if self.d_type == "f16" else self.n // 2


@dataclass(frozen=True, slots=True)
class WgmmaOperands:
    """The operands by their meaning; metadata and selector of sparse A, else None."""

    d: Operand
    a: Operand
    b: Operand
    metadata: Operand | None
    selector: Operand | None
    scale_d: Operand


def read_wgmma(b: Binder, i: Instruction) -> tuple[WgmmaForm, WgmmaOperands]:
    """What an instruction says. Raises UnsupportedInstruction for a form that does not exist."""
    matched = next((m for m in map(_SHAPE.fullmatch, i.modifiers) if m is not None), None)
    if matched is None or not (i.has("mma_async") and i.has("sync") and i.has("aligned")):
        raise b.unsupported()
    shape, n, k = matched[0], int(matched[1]), int(matched[2])
    sparse = i.has("sp")
    d_type, a, right = _types(b, i)
    family = a.family
    d_types, dense_k = _FAMILIES[family]
    columns = _INTEGER_COLUMNS if a.is_integer else _FLOAT_COLUMNS
    if n not in columns or k != dense_k * (1 + sparse) or (sparse and family == "bit"):
        raise b.unsupported(f"{'sparse ' if sparse else ''}{shape} of .{a.name} and .{right.name}")
    if d_type not in d_types:
        raise b.fail(f"`{i.name}`: .{a.name} accumulates in {' or '.join('.' + t for t in d_types)}")
    if (family == "bit") != (i.has("and") and i.has("popc")):
        raise b.unsupported("single bits need .and.popc, and only they do")
    if i.has("satfinite") and family != "int8":
        raise b.unsupported(".satfinite is for .s8 and .u8")
    count = len(i.operands)
    in_registers = count > 1 and isinstance(i.operands[1], VectorOperand)
    signs = 0 if a.is_integer else 2
    majors = 0 if a.bits != 16 else 1 if in_registers else 2
    rest = list(b.operands(i, 4 + 2 * sparse + signs + majors))
    d, left, right_operand = rest[:3]
    metadata, selector = (rest[3], rest[4]) if sparse else (None, None)
    rest = rest[3 + 2 * sparse :]
    scale_d, flags = rest[0], rest[1:]
    sign = 1
    for position, operand in enumerate(flags[:signs]):
        sign *= _immediate(b, i, operand, (1, -1), f"imm-scale-{'ab'[position]}")
    mn = [
        bool(_immediate(b, i, operand, (0, 1), f"imm-trans-{which}"))
        for operand, which in zip(flags[signs:], ("b" if in_registers else "ab")[:majors], strict=True)
    ]
    # Without these operands, and for A in registers, K runs fastest.
    a_mn, b_mn = [False] * (2 - majors) + mn
    if not in_registers and not _is_descriptor(left):
        raise b.fail(f"`{i.name}`: A must be a vector of registers or a 64-bit matrix descriptor")
    if not _is_descriptor(right_operand):
        raise b.fail(f"`{i.name}`: B must be a 64-bit matrix descriptor")
    name = f"{'sp.' if sparse else ''}{shape}.{d_type}.{a.name}.{right.name}"
    form = WgmmaForm(
        shape, n, k, a, right, d_type, sparse, i.has("satfinite"), in_registers, a_mn, b_mn, sign, name
    )  # fmt: skip
    return form, WgmmaOperands(d, left, right_operand, metadata, selector, scale_d)


def _types(b: Binder, i: Instruction) -> tuple[str, ElementType, ElementType]:
    known = [m for m in i.modifiers if m in ELEMENTS or m in ("f32", "s32")]
    if len(known) != 3 or known[1] not in ELEMENTS or known[2] not in ELEMENTS:
        raise b.unsupported()
    a, right = ELEMENTS[known[1]], ELEMENTS[known[2]]
    if a.family != right.family or a.family not in _FAMILIES:
        raise b.unsupported(f".{a.name} with .{right.name}")
    return known[0], a, right


def _is_descriptor(operand: Operand) -> bool:
    return isinstance(operand, RegisterOperand) and operand.type_name in ("b64", "u64", "s64")


def _immediate(b: Binder, i: Instruction, operand: Operand, allowed: tuple[int, int], what: str) -> int:
    if not isinstance(operand, IntegerOperand) or operand.value not in allowed:
        found = operand.value if isinstance(operand, IntegerOperand) else "a register"
        raise b.fail(f"`{i.name}`: {what} must be {allowed[0]} or {allowed[1]}, not {found}")
    return operand.value
