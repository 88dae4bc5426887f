"""The instruction descriptor of tcgen05.mma: 32 bits that say shapes, types and scales, and which of them are legal.

No assembler looks into a descriptor (one with M = 96 assembles), so `judge_descriptor` is the judge. Source: PTX ISA
9.1, "Instruction descriptor" (tables 42 to 44), "Matrix Shape" (table 39), "Transpose and Negate operations" (tables 51
and 52), "Valid combinations of scale_vectorsize" (table 56).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

_FLOATS = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
ELEMENT_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "u8": 8, "s8": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MmaKind:
    """What a `.kind` of tcgen05.mma multiplies.

    types     element types of A and B by their code in the descriptor
    d_types   types of the accumulator
    k         elements of K in one instruction when A is dense; sparse A has twice as many
    scales    formats of the scale factors; empty for kinds without block scaling
    blocks    how `.scale_vec` and `.block` may be spelled, and what it means in scale factors per row
    """

    name: str
    types: dict[int, str]
    d_types: tuple[str, ...]
    k: int
    scales: tuple[str, ...] = ()
    blocks: dict[str, int] = field(default_factory=dict)

    @property
    def scaled(self) -> bool:
        return bool(self.scales)

    @property
    def packs_pairs(self) -> bool:
        """Two 4-bit elements share a byte, in shared memory and in tensor memory."""
        return self.name in ("mxf4", "mxf4nvf4")


KINDS: dict[str, MmaKind] = {
    kind.name: kind
    for kind in (
        MmaKind("f16", {0: "f16", 1: "bf16"}, ("f16", "f32"), 16),
        MmaKind("tf32", {2: "tf32"}, ("f32",), 8),
        MmaKind("f8f6f4", _FLOATS, ("f16", "f32"), 32),
        MmaKind("i8", {0: "u8", 1: "s8"}, ("s32",), 32),
        MmaKind("mxf8f6f4", _FLOATS, ("f32",), 32, ("ue8m0",), {"scale_vec::1X": 1, "block32": 1, "": 1}),
        MmaKind("mxf4", {1: "e2m1"}, ("f32",), 64, ("ue8m0",), {"scale_vec::2X": 2, "block32": 2, "": 2}),
        MmaKind(
            "mxf4nvf4", {1: "e2m1"}, ("f32",), 64, ("ue8m0", "ue4m3"),
            {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MmaForm:
    """What the text of a tcgen05.mma instruction says, beside its operands.

    kind       "f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"
    cta_group  1, or 2 for a CTA pair
    block      spelling of the scale vector size ("scale_vec::2X", "block32", ...), "" for none
    """

    kind: str
    cta_group: int = 1
    ws: bool = False
    sparse: bool = False
    a_in_tmem: bool = False
    ashift: bool = False
    block: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r}; known: {', '.join(KINDS)}")
        if self.cta_group not in (1, 2):
            raise ValueError(f"cta_group must be 1 or 2, not {self.cta_group}")
        if self.ws and (self.cta_group == 2 or KINDS[self.kind].scaled):
            raise ValueError(".ws exists with cta_group::1 only, and not for block-scaled kinds")
        if self.block not in KINDS[self.kind].blocks and (self.block or KINDS[self.kind].scaled):
            allowed = ", ".join(f".{b}" for b in KINDS[self.kind].blocks if b) or "none"
            raise ValueError(f"kind::{self.kind} takes the scale vector sizes {allowed}, not {self.block!r}")

    @property
    def scales_per_row(self) -> int:
        """Scale factors along K of one instruction; 0 without block scaling."""
        return KINDS[self.kind].blocks.get(self.block, 0)

    def __str__(self) -> str:
        return (
            f"tcgen05.mma{'.ws' if self.ws else ''}{'.sp' if self.sparse else ''}"
            f".cta_group::{self.cta_group}.kind::{self.kind}"
        )


@dataclass(frozen=True, slots=True)
class InstructionDescriptor:
    """A legal instruction descriptor, decoded.

    m, n, k            shape of the whole operation (of both CTAs for cta_group::2)
    a_mn_major         A lies M-major (not K-major) in shared memory; b_mn_major the same for B
    sparsity_selector  which column of a group of metadata columns is used
    max_shift          greatest column shift of `.ws`: 0, 8, 16 or 32
    scale_type         "ue8m0", "ue4m3", or "" without block scaling
    sfa_id, sfb_id     first byte of the scale factors within their 32-bit cells
    """

    kind: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    a_mn_major: bool = False
    b_mn_major: bool = False
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    max_shift: int = 0
    scale_type: str = ""
    sfa_id: int = 0
    sfb_id: int = 0


@lru_cache(maxsize=1024)
def judge_descriptor(
    word: int, form: MmaForm, has_k96: bool = False
) -> tuple[InstructionDescriptor | None, tuple[str, ...]]:
    """The decoded descriptor, or None and what is wrong with it, one sentence per broken rule.

    word     the 32 bits
    has_k96  the target multiplies 96 elements of K in one instruction (sm_103a)
    """
    kind = KINDS[form.kind]
    bad: list[str] = []
    for low, high in _reserved(kind):
        if _bits(word, low, high):
            where = f"bit {low} is" if low == high else f"bits {high}:{low} are"
            bad.append(f"{where} reserved for kind::{kind.name} and must be 0")
    decoded = _decode_scaled(word, kind, bad) if kind.scaled else _decode_plain(word, kind, bad)
    if decoded.sparse != form.sparse:
        bad.append(
            f"bit 2 says that A is {'sparse' if decoded.sparse else 'dense'}, but the instruction is "
            f"{'tcgen05.mma.sp' if form.sparse else 'not tcgen05.mma.sp'}"
        )
    if kind.packs_pairs and _bits(word, 31, 31):
        if form.sparse:
            bad.append("bit 31 selects K = 96, which exists for dense A only")
        elif not has_k96:
            bad.append("bit 31 selects K = 96, which exists on sm_103a only")
    bad.extend(_judge_shape(decoded, form))
    bad.extend(_judge_majors(decoded, form))
    if kind.scaled:
        bad.extend(_judge_scales(decoded, form))
    elif decoded.max_shift and not form.ws:
        bad.append(f"bits 31:30 allow a column shift of {decoded.max_shift}, which only tcgen05.mma.ws has")
    return (None, tuple(bad)) if bad else (decoded, ())


def _bits(word: int, low: int, high: int) -> int:
    return word >> low & ((1 << (high - low + 1)) - 1)


def _reserved(kind: MmaKind) -> tuple[tuple[int, int], ...]:
    if not kind.scaled:
        return ((6, 6), (23, 23), (29, 29))
    if kind.packs_pairs:
        return ((0, 1), (3, 3), (6, 6), (12, 12), (24, 26))
    return ((0, 1), (3, 3), (6, 6), (24, 26), (31, 31))


def _type(code: int, kind: MmaKind, operand: str, bad: list[str]) -> str:
    found = kind.types.get(code)
    if found is None:
        known = ", ".join(f"{c} ({t})" for c, t in kind.types.items())
        bad.append(f"type {code} of {operand} is none of kind::{kind.name}, which has {known}")
        return next(iter(kind.types.values()))
    return found


def _decode_plain(word: int, kind: MmaKind, bad: list[str]) -> InstructionDescriptor:
    before = len(bad)
    a_type = _type(_bits(word, 7, 9), kind, "A", bad)
    b_type = _type(_bits(word, 10, 12), kind, "B", bad)
    code = _bits(word, 4, 5)
    d_type = _ACCUMULATORS.get(code, "")
    if d_type not in kind.d_types:
        wanted = " or ".join(f"{c} ({t})" for c, t in _ACCUMULATORS.items() if t in kind.d_types)
        bad.append(f"type {code} of D is none of kind::{kind.name}, which has {wanted}")
        d_type = kind.d_types[-1]
    elif kind.name == "f16" and len(bad) == before:
        if a_type != b_type:
            bad.append(f"A is {a_type} and B is {b_type}, but kind::f16 multiplies equal types")
        elif d_type == "f16" and a_type != "f16":
            bad.append(f"D is f16, but A and B are {a_type}: an f16 accumulator takes f16 operands")
    saturate = bool(_bits(word, 3, 3))
    if saturate and kind.name != "i8":
        bad.append("bit 3 (saturate) is set, but only kind::i8 saturates")
    negate_a, negate_b = bool(_bits(word, 13, 13)), bool(_bits(word, 14, 14))
    if kind.name == "i8" and (negate_a or negate_b):
        bad.append("kind::i8 cannot negate A or B (bits 13 and 14)")
    sparse = bool(_bits(word, 2, 2))
    selector = _bits(word, 0, 1)
    if sparse and selector and kind.name in ("i8", "f8f6f4"):
        bad.append(f"the sparsity selector is {selector}, but kind::{kind.name} needs 0")
    return InstructionDescriptor(
        kind.name, _bits(word, 24, 28) << 4, _bits(word, 17, 22) << 3, kind.k * (2 if sparse else 1), a_type, b_type,
        d_type, bool(_bits(word, 15, 15)), bool(_bits(word, 16, 16)), negate_a, negate_b, saturate, sparse, selector,
        (0, 8, 16, 32)[_bits(word, 30, 31)],
    )  # fmt: skip


def _decode_scaled(word: int, kind: MmaKind, bad: list[str]) -> InstructionDescriptor:
    pairs = kind.packs_pairs
    a_type = _type(_bits(word, 7, 9), kind, "A", bad)
    b_type = _type(_bits(word, 10, 11 if pairs else 12), kind, "B", bad)
    scale_type = "ue8m0" if _bits(word, 23, 23) else "ue4m3"
    if scale_type not in kind.scales:
        bad.append(f"bit 23 selects {scale_type} scale factors, but kind::{kind.name} takes {kind.scales[0]} (1)")
        scale_type = kind.scales[0]
    sparse = bool(_bits(word, 2, 2))
    k = 96 if pairs and _bits(word, 31, 31) else kind.k * (2 if sparse else 1)
    return InstructionDescriptor(
        kind.name, _bits(word, 27, 28) << 7, _bits(word, 17, 22) << 3, k, a_type, b_type, "f32",
        bool(_bits(word, 15, 15)), bool(_bits(word, 16, 16)), bool(_bits(word, 13, 13)), bool(_bits(word, 14, 14)),
        sparse=sparse, scale_type=scale_type, sfa_id=_bits(word, 29, 30), sfb_id=_bits(word, 4, 5),
    )  # fmt: skip


def legal_m(form: MmaForm) -> tuple[int, ...]:
    """The legal values of M."""
    if form.ws:
        return (32, 64, 128)
    if KINDS[form.kind].scaled:
        return (128,) if form.cta_group == 1 else (256,) if form.sparse else (128, 256)
    return (64, 128) if form.cta_group == 1 else (128, 256)


def legal_n(form: MmaForm) -> tuple[int, ...]:
    """The legal values of N, before what transposed 8-bit operands ask for."""
    if form.ws:
        return (64, 128) if form.sparse else (64, 128, 256)
    if form.kind == "i8":
        return (8, 16, 24, *range(32, 257, 16)) if form.cta_group == 1 else tuple(range(32, 257, 32))
    return tuple(range(8, 257, 8)) if form.cta_group == 1 else tuple(range(16, 257, 16))


def _judge_shape(d: InstructionDescriptor, form: MmaForm) -> list[str]:
    bad = []
    sizes = legal_m(form)
    if d.m not in sizes:
        bad.append(f"M is {d.m}, but {form} takes M = {_listed(sizes)}")
    if form.ashift and d.m not in (128, 256):
        bad.append(f"M is {d.m}, but .ashift takes M = 128 or 256")
    if d.n not in legal_n(form):
        bad.append(f"N is {d.n}, but {form} takes N = {_steps(legal_n(form))}")
    elif d.b_mn_major and ELEMENT_BITS[d.b_type] == 8:
        step = 16 * form.cta_group
        if d.n % step or d.n < step:
            bad.append(f"N is {d.n}, but an N-major B of 8-bit elements takes N = {step} to 256 in steps of {step}")
    if d.k == 96 and d.n % 16:
        bad.append(f"N is {d.n}, but K = 96 takes a multiple of 16")
    return bad


def _judge_majors(d: InstructionDescriptor, form: MmaForm) -> list[str]:
    bad = []
    for operand, element, mn_major in (("A", d.a_type, d.a_mn_major), ("B", d.b_type, d.b_mn_major)):
        letter = "M" if operand == "A" else "N"
        if mn_major and ELEMENT_BITS[element] < 8:
            bad.append(f"{operand} is {letter}-major, but {element} operands are K-major")
        elif mn_major and operand == "A" and form.a_in_tmem:
            bad.append("A is M-major, but A in tensor memory is K-major")
    return bad


def _judge_scales(d: InstructionDescriptor, form: MmaForm) -> list[str]:
    bad = []
    count = form.scales_per_row
    allowed = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[count]
    if d.k == 96:
        allowed = (0, 2) if count == 4 else (0, 1, 2, 3)
    for operand, chosen in (("A", d.sfa_id), ("B", d.sfb_id)):
        if chosen not in allowed:
            bad.append(
                f"the scale factor id of {operand} is {chosen}, but with {count} scale factors per row it must be "
                f"{_listed(allowed)}"
            )
    if d.scale_type == "ue4m3" and count != 4:
        bad.append("ue4m3 scale factors come four per row (.scale_vec::4X or .block16)")
    return bad


def _listed(values: tuple[int, ...]) -> str:
    texts = [str(v) for v in values]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]


def _steps(values: tuple[int, ...]) -> str:
    """8 to 256 in steps of 8, or the values themselves where they are few or uneven."""
    step = values[1] - values[0]
    if len(values) > 4 and all(b - a == step for a, b in pairwise(values)):
        return f"{values[0]} to {values[-1]} in steps of {step}"
    if len(values) > 4:
        return f"{_listed(values[:4])}, or a multiple of 16 up to {values[-1]}"
    return _listed(values)
