"""Which forms of mma.sync exist: what the modifiers of one instruction say (PTX ISA, "mma" and "mma.sp")."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tinygpu.ptx.emulator.instructions.binder import Binder
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.units.matrix_elements import BYTE_ELEMENTS, ELEMENTS, PACKED_E2M1, ElementType
from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS, NarrowFloat

_SHAPE = re.compile(r"m(\d+)n8k(\d+)")
_ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",), "int8": ("s32",), "int4": ("s32",),
    "bit": ("s32",), "fp8": ("f32", "f16"), "narrow": ("f32", "f16"),
}  # fmt: skip
# Which (shape, family of A and B) exist (PTX ISA, tables of "Matrix Shape").
_DENSE: dict[str, tuple[str, ...]] = {
    "m8n8k4": ("f16", "f64"), "m8n8k16": ("int8",), "m8n8k32": ("int4",), "m8n8k128": ("bit",),
    "m16n8k4": ("tf32", "f64"), "m16n8k8": ("f16", "bf16", "tf32", "f64"),
    "m16n8k16": ("f16", "bf16", "int8", "fp8", "f64"), "m16n8k32": ("int8", "int4", "fp8"), "m16n8k64": ("int4",),
    "m16n8k128": ("bit",), "m16n8k256": ("bit",),
}  # fmt: skip
_SPARSE: dict[str, tuple[str, ...]] = {
    "m16n8k8": ("tf32",), "m16n8k16": ("f16", "bf16", "tf32"), "m16n8k32": ("f16", "bf16", "int8"),
    "m16n8k64": ("int8", "int4", "fp8"), "m16n8k128": ("int4",),
}  # fmt: skip
# kind -> (dense shape, sparse shape)
_KINDS: dict[str, tuple[str, str]] = {
    "f8f6f4": ("m16n8k32", "m16n8k64"), "mxf8f6f4": ("m16n8k32", "m16n8k64"), "mxf4": ("m16n8k64", "m16n8k128"),
    "mxf4nvf4": ("m16n8k64", "m16n8k128"),
}  # fmt: skip
# (kind, scale_vec) -> types of scale factors (PTX ISA, "Valid combinations of .scale_vec_size and .kind").
_SCALES: dict[tuple[str, str], tuple[str, ...]] = {
    ("mxf8f6f4", "1X"): ("ue8m0",), ("mxf4", "2X"): ("ue8m0",), ("mxf4nvf4", "2X"): ("ue8m0",),
    ("mxf4nvf4", "4X"): ("ue8m0", "ue4m3"),
}  # fmt: skip
_DEFAULT_SCALE_VEC = {"mxf8f6f4": "1X", "mxf4": "2X"}


@dataclass(frozen=True, slots=True)
class MmaForm:
    """One form of mma.sync.

    m, k         of the whole matrices; n is 8
    a, b         types of the elements
    d_type       of D; c_type of C
    sparse       half of A is stored, with metadata
    ordered      the metadata's indices must rise
    scale        type of the scale factors, None without block scaling
    scale_count  scale factors per row of A and column of B
    bit_operation  "and" or "xor" for single bits
    a_rows, b_rows  layouts of m8n8k4: whether A, B are given by rows
    """

    shape: str
    m: int
    k: int
    a: ElementType
    b: ElementType
    d_type: str
    c_type: str
    sparse: bool
    ordered: bool
    saturating: bool
    scale: NarrowFloat | None
    scale_count: int
    bit_operation: str
    a_rows: bool
    b_rows: bool
    name: str

    @property
    def quad_pairs(self) -> bool:
        """m8n8k4 of f16: four products of 8x8x4 in one instruction."""
        return self.shape == "m8n8k4" and self.a.name == "f16"

    @property
    def stored_k(self) -> int:
        """Columns of A that registers hold."""
        return self.k // 2 if self.sparse else self.k

    @property
    def operations(self) -> int:
        """Multiply-adds of one instruction, times two."""
        return 2 * self.m * 8 * self.k * (4 if self.quad_pairs else 1)


def read_form(b: Binder, i: Instruction) -> MmaForm:
    """What an instruction's modifiers say. Raises UnsupportedInstruction for a form that does not exist."""
    matched = next((m for m in map(_SHAPE.fullmatch, i.modifiers) if m is not None), None)
    if matched is None or not i.has("sync"):
        raise b.unsupported()
    shape = matched[0]
    kind = next((m.removeprefix("kind::") for m in i.modifiers if m.startswith("kind::")), "")
    ordered = i.has("sp::ordered_metadata")
    sparse = ordered or i.has("sp")
    d_type, a_type, b_type, c_type = _types(b, i)
    a, right = _elements(b, kind, a_type, b_type)
    if kind:
        known = _KINDS[kind][sparse] == shape
    else:
        known = a.family in (_SPARSE if sparse else _DENSE).get(shape, ())
    if not known:
        raise b.unsupported(f"{'sparse ' if sparse else ''}{shape} of .{a_type} and .{b_type}")
    if sparse and not ordered and (kind or (a.family == "fp8" and d_type == "f16")):
        raise b.unsupported("this sparse form needs .sp::ordered_metadata")
    scale, count = _scales(b, i, kind)
    _check_accumulators(b, i, shape, a, d_type, c_type, scale is not None)
    if any(i.has(r) for r in ("rz", "rm", "rp")):
        raise b.unsupported("rounding other than .rn")
    layouts = [m for m in i.modifiers if m in ("row", "col")]
    if len(layouts) != 2 or (layouts != ["row", "col"] and not (shape == "m8n8k4" and a_type == "f16")):
        raise b.unsupported("layouts other than .row.col")
    bit_operation = next((m for m in ("and", "xor") if i.has(m)), "")
    if (a.family == "bit") != bool(bit_operation and i.has("popc")):
        raise b.unsupported("single bits need .and.popc or .xor.popc, and only they do")
    name = f"{'sp.' if sparse else ''}{kind + '.' if kind else ''}{shape}.{d_type}.{a_type}.{b_type}.{c_type}"
    return MmaForm(
        shape, int(matched[1]), int(matched[2]), a, right, d_type, c_type, sparse, ordered, i.has("satfinite"), scale,
        count, bit_operation, layouts[0] == "row", layouts[1] == "row", name,
    )  # fmt: skip


def _types(b: Binder, i: Instruction) -> tuple[str, str, str, str]:
    known = [m for m in i.modifiers if m in ELEMENTS or m in BYTE_ELEMENTS or m in ("f32", "s32")]
    if len(known) != 4:
        raise b.unsupported()
    return known[0], known[1], known[2], known[3]


def _elements(b: Binder, kind: str, a_type: str, b_type: str) -> tuple[ElementType, ElementType]:
    if kind not in ("", *_KINDS):
        raise b.unsupported(f".kind::{kind}")
    if kind in ("mxf4", "mxf4nvf4"):
        if (a_type, b_type) != ("e2m1", "e2m1"):
            raise b.unsupported(f".kind::{kind} of .{a_type} and .{b_type}")
        return PACKED_E2M1, PACKED_E2M1
    table = BYTE_ELEMENTS if kind else ELEMENTS
    a, right = table.get(a_type), table.get(b_type)
    if a is None or right is None or a.family != right.family:
        raise b.unsupported(f".{a_type} with .{b_type}")
    return a, right


def _scales(b: Binder, i: Instruction, kind: str) -> tuple[NarrowFloat | None, int]:
    """(type of scale factors, how many per row), (None, 0) without block scaling."""
    scaled = i.has("block_scale")
    if scaled != (kind not in ("", "f8f6f4")):
        raise b.unsupported(".block_scale belongs to .kind::mxf8f6f4, .kind::mxf4 and .kind::mxf4nvf4")
    if not scaled:
        return None, 0
    size = next((m.removeprefix("scale_vec::") for m in i.modifiers if m.startswith("scale_vec::")), None)
    size = size or _DEFAULT_SCALE_VEC.get(kind, "")
    scale = next((m for m in i.modifiers if m in ("ue8m0", "ue4m3")), "")
    if scale not in _SCALES.get((kind, size), ()):
        raise b.unsupported(f".kind::{kind} with .scale_vec::{size or '?'} and scale factors of .{scale or '?'}")
    return NARROW_FLOATS[scale], int(size[0])


def _check_accumulators(
    b: Binder, i: Instruction, shape: str, a: ElementType, d_type: str, c_type: str, scaled: bool
) -> None:
    allowed = ("f32",) if scaled else _ACCUMULATORS[a.family]
    if d_type not in allowed or c_type not in allowed:
        raise b.fail(f"`{i.name}`: .{a.name} accumulates in {' or '.join('.' + t for t in allowed)}")
    if d_type != c_type and not (shape == "m8n8k4" and d_type == "f32"):
        raise b.fail(f"`{i.name}`: C and D must have one type, not .{c_type} and .{d_type}")
