"""Instruction descriptors of tcgen05.mma against a table written the other way: words put together from fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.tcgen05_descriptors import MmaForm, judge_descriptor

FLOAT_CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
# kind: (codes of A and B, codes of D); None as D: the field does not exist.
TYPES: dict[str, tuple[dict[str, int], dict[str, int] | None]] = {
    "f16": ({"f16": 0, "bf16": 1}, {"f16": 0, "f32": 1}),
    "tf32": ({"tf32": 2}, {"f32": 1}),
    "f8f6f4": (FLOAT_CODES, {"f16": 0, "f32": 1}),
    "i8": ({"u8": 0, "s8": 1}, {"s32": 2}),
    "mxf8f6f4": (FLOAT_CODES, None),
    "mxf4": ({"e2m1": 1}, None),
    "mxf4nvf4": ({"e2m1": 1}, None),
}
BLOCKS = {
    "mxf8f6f4": {"scale_vec::1X": 1, "block32": 1}, "mxf4": {"scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}  # fmt: skip
K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def put(kind: str, f: dict[str, Any]) -> int:
    """The word with these fields (PTX ISA, tables 42 to 44)."""
    codes, accumulators = TYPES[kind]
    word: int = f["sparse"] << 2 | codes[f["a"]] << 7 | codes[f["b"]] << 10 | f["negate_a"] << 13 | f["negate_b"] << 14
    word |= f["a_mn"] << 15 | f["b_mn"] << 16 | f["n"] // 8 << 17
    if accumulators is not None:
        word |= f["selector"] | f["saturate"] << 3 | accumulators[f["d"]] << 4 | f["m"] // 16 << 24 | f["shift"] << 30
    else:
        word |= f["sfb"] << 4 | (f["scale"] == "ue8m0") << 23 | f["m"] // 128 << 27 | f["sfa"] << 29
    return word


def is_legal(kind: str, form: MmaForm, f: dict[str, Any]) -> bool:
    """The rules once more, as conditions on the fields."""
    m, n, g = f["m"], f["n"], form.cta_group
    scaled = kind in BLOCKS
    if f["sparse"] != form.sparse:
        return False
    if form.ws:
        if m not in (32, 64, 128) or n not in ((64, 128) if form.sparse else (64, 128, 256)):
            return False
    elif kind == "i8":
        if m not in (64 * g, 128 * g):
            return False
        if not (n in (8, 24) or (16 <= n <= 256 and n % 16 == 0) if g == 1 else 32 <= n <= 256 and n % 32 == 0):
            return False
    else:
        if n < 8 * g or n > 256 or n % (8 * g):
            return False
        if scaled:
            if m != 128 * g and not (g == 2 and m == 128 and not form.sparse):
                return False
        elif m not in (64 * g, 128 * g):
            return False
    bits = {"f16": 16, "bf16": 16, "tf32": 32, "e2m3": 6, "e3m2": 6, "e2m1": 4}
    if f["a_mn"] and (form.a_in_tmem or bits.get(f["a"], 8) < 8):
        return False
    if f["b_mn"] and (bits.get(f["b"], 8) < 8 or (bits.get(f["b"], 8) == 8 and (n % (16 * g) or n < 16 * g))):
        return False
    if form.ashift and m not in (128, 256):
        return False
    if scaled:
        count = BLOCKS[kind][form.block] if form.block else (1 if kind == "mxf8f6f4" else 2)
        if any(chosen % count for chosen in (f["sfa"], f["sfb"])):
            return False
        return bool(f["scale"] == "ue8m0" or (kind == "mxf4nvf4" and count == 4))
    if kind == "f16" and (f["a"] != f["b"] or (f["d"] == "f16" and f["a"] != "f16")):
        return False
    if kind == "i8" and (f["negate_a"] or f["negate_b"]):
        return False
    if kind != "i8" and f["saturate"]:
        return False
    if form.sparse and f["selector"] and kind in ("i8", "f8f6f4"):
        return False
    return bool(form.ws or not f["shift"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, MmaForm, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(TYPES)))
    scaled = kind in BLOCKS
    ws = draw(st.booleans()) and not scaled
    block = draw(st.sampled_from(sorted(BLOCKS[kind]) + ([""] if kind != "mxf4nvf4" else []))) if scaled else ""
    rarely = st.sampled_from([False, False, False, True])
    form = MmaForm(
        kind, 1 if ws else draw(st.sampled_from([1, 2])), ws, draw(rarely), draw(rarely), draw(rarely), block
    )
    codes, accumulators = TYPES[kind]
    names = sorted(codes)
    fields = {
        "sparse": form.sparse != draw(rarely), "a": draw(st.sampled_from(names)), "b": draw(st.sampled_from(names)),
        "d": draw(st.sampled_from(sorted(accumulators or {"f32": 1}))), "negate_a": draw(rarely),
        "negate_b": draw(rarely), "a_mn": draw(rarely), "b_mn": draw(rarely),
        "n": draw(st.sampled_from([8, 16, 24, 32, 40, 48, 64, 96, 128, 136, 240, 256, 264])),
        "m": draw(st.sampled_from([128, 256] if scaled else [32, 64, 96, 128, 256])),
        "selector": draw(st.sampled_from([0, 0, 1, 3])) if not scaled else 0, "saturate": draw(rarely),
        "shift": draw(st.sampled_from([0, 0, 1, 3])), "scale": draw(st.sampled_from(["ue8m0", "ue8m0", "ue4m3"])),
        "sfa": draw(st.sampled_from([0, 0, 1, 2, 3])), "sfb": draw(st.sampled_from([0, 0, 1, 2, 3])),
    }  # fmt: skip
    return kind, form, fields


@settings(max_examples=1500, deadline=None)
@given(cases())
def test_a_descriptor_is_decoded_where_legal_and_refused_where_not(case: tuple[str, MmaForm, dict[str, Any]]) -> None:
    kind, form, f = case
    found, problems = judge_descriptor(put(kind, f), form)
    if not is_legal(kind, form, f):
        assert found is None
        assert problems
        return
    assert problems == ()
    assert found is not None
    assert (found.m, found.n, found.k) == (f["m"], f["n"], K[kind] * (2 if form.sparse else 1))
    assert (found.a_type, found.b_type) == (f["a"], f["b"])
    assert found.d_type == (f["d"] if kind not in BLOCKS else "f32")
    assert (found.a_mn_major, found.b_mn_major) == (f["a_mn"], f["b_mn"])
    assert (found.negate_a, found.negate_b, found.sparse) == (f["negate_a"], f["negate_b"], f["sparse"])
    if kind in BLOCKS:
        assert (found.scale_type, found.sfa_id, found.sfb_id) == (f["scale"], f["sfa"], f["sfb"])
    else:
        assert (found.saturate, found.sparsity_selector) == (f["saturate"], f["selector"])
        assert found.max_shift == {0: 0, 1: 8, 2: 16, 3: 32}[f["shift"]]


RESERVED = {
    "f16": (6, 23, 29), "tf32": (6, 23, 29), "f8f6f4": (6, 23, 29), "i8": (6, 23, 29),
    "mxf8f6f4": (0, 1, 3, 6, 24, 25, 26, 31), "mxf4": (0, 1, 3, 6, 12, 24, 25, 26),
    "mxf4nvf4": (0, 1, 3, 6, 12, 24, 25, 26),
}  # fmt: skip
GOOD = {
    "f16": 0x08400490, "tf32": 0x08400910, "f8f6f4": 0x08400010, "i8": 0x084004A0, "mxf8f6f4": 0x08C00000,
    "mxf4": 0x08C00480, "mxf4nvf4": 0x08400480,
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(RESERVED))
def test_each_reserved_bit_is_refused(kind: str) -> None:
    form = MmaForm(kind, block="block16" if kind == "mxf4nvf4" else "")
    assert judge_descriptor(GOOD[kind], form)[1] == ()
    for bit in RESERVED[kind]:
        found, problems = judge_descriptor(GOOD[kind] | 1 << bit, form)
        assert found is None
        assert any("reserved" in p for p in problems)


@pytest.mark.parametrize(
    ("word", "form", "m", "n", "k", "types"),
    [
        (0x08400490, MmaForm("f16"), 128, 256, 16, ("bf16", "bf16", "f32")),
        (0x10400490, MmaForm("f16", 2), 256, 256, 16, ("bf16", "bf16", "f32")),
        (0x08200010, MmaForm("f16"), 128, 128, 16, ("f16", "f16", "f32")),
        (0x08400910, MmaForm("tf32"), 128, 256, 8, ("tf32", "tf32", "f32")),
        (0x08400010, MmaForm("f8f6f4"), 128, 256, 32, ("e4m3", "e4m3", "f32")),
        (0x084004A0, MmaForm("i8"), 128, 256, 32, ("s8", "s8", "s32")),
        (0x08C00000, MmaForm("mxf8f6f4"), 128, 256, 32, ("e4m3", "e4m3", "f32")),
        (0x08C00480, MmaForm("mxf4"), 128, 256, 64, ("e2m1", "e2m1", "f32")),
        (0x08400480, MmaForm("mxf4nvf4", block="block16"), 128, 256, 64, ("e2m1", "e2m1", "f32")),
        (0x10400480, MmaForm("mxf4nvf4", 2, block="scale_vec::4X"), 256, 256, 64, ("e2m1", "e2m1", "f32")),
    ],
)
def test_worked_constants(word: int, form: MmaForm, m: int, n: int, k: int, types: tuple[str, str, str]) -> None:
    found, problems = judge_descriptor(word, form)
    assert problems == ()
    assert found is not None
    assert (found.m, found.n, found.k) == (m, n, k)
    assert (found.a_type, found.b_type, found.d_type) == types


@pytest.mark.parametrize(
    ("word", "form", "sentences"),
    [
        (0x06400490, MmaForm("f16"), ["M is 96, but tcgen05.mma.cta_group::1.kind::f16 takes M = 64 or 128"]),
        (
            0x08000490, MmaForm("f16"),
            ["N is 0, but tcgen05.mma.cta_group::1.kind::f16 takes N = 8 to 256 in steps of 8"],
        ),
        (
            0x080A04A0, MmaForm("i8"),
            ["N is 40, but tcgen05.mma.cta_group::1.kind::i8 takes N = 8, 16, 24 or 32, or a multiple of 16 up to 256"],
        ),
        (0x08400410, MmaForm("f16"), ["A is f16 and B is bf16, but kind::f16 multiplies equal types"]),
        (0x08400480, MmaForm("f16"), ["D is f16, but A and B are bf16: an f16 accumulator takes f16 operands"]),
        (0x08400490 | 1 << 3, MmaForm("f16"), ["bit 3 (saturate) is set, but only kind::i8 saturates"]),
        (0x084024A0, MmaForm("i8"), ["kind::i8 cannot negate A or B (bits 13 and 14)"]),
        (0x08400490 | 1 << 6, MmaForm("f16"), ["bit 6 is reserved for kind::f16 and must be 0"]),
        (0x08C00000 | 3, MmaForm("mxf8f6f4"), ["bits 1:0 are reserved for kind::mxf8f6f4 and must be 0"]),
        (0x08400494, MmaForm("f16"), ["bit 2 says that A is sparse, but the instruction is not tcgen05.mma.sp"]),
        (
            0x08400490, MmaForm("f16", sparse=True),
            ["bit 2 says that A is dense, but the instruction is tcgen05.mma.sp"],
        ),
        (0x08408490, MmaForm("f16", a_in_tmem=True), ["A is M-major, but A in tensor memory is K-major"]),
        (0x08400690, MmaForm("f16"), ["type 5 of A is none of kind::f16, which has 0 (f16), 1 (bf16)"]),
        (0x084004B0, MmaForm("f16"), ["type 3 of D is none of kind::f16, which has 0 (f16) or 1 (f32)"]),
        (
            0x48400490, MmaForm("f16"),
            ["bits 31:30 allow a column shift of 8, which only tcgen05.mma.ws has"],
        ),
        (
            0x08C00490, MmaForm("mxf4"),
            ["the scale factor id of B is 1, but with 2 scale factors per row it must be 0 or 2"],
        ),
        (0x08400480, MmaForm("mxf4"), ["bit 23 selects ue4m3 scale factors, but kind::mxf4 takes ue8m0 (1)"]),
        (
            0x08400480, MmaForm("mxf4nvf4", block="block32"),
            ["ue4m3 scale factors come four per row (.scale_vec::4X or .block16)"],
        ),
        (0x88C00480, MmaForm("mxf4"), ["bit 31 selects K = 96, which exists on sm_103a only"]),
        (
            0x08010010 | 3 << 17, MmaForm("f8f6f4", 1),
            ["N is 24, but an N-major B of 8-bit elements takes N = 16 to 256 in steps of 16"],
        ),
        (0x08408010 | 5 << 7, MmaForm("f8f6f4"), ["A is M-major, but e2m1 operands are K-major"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_full(word: int, form: MmaForm, sentences: list[str]) -> None:
    assert list(judge_descriptor(word, form)[1]) == sentences


def test_k_96_is_decoded_where_the_target_has_it() -> None:
    found, problems = judge_descriptor(0x88C00480, MmaForm("mxf4"), has_k96=True)
    assert problems == ()
    assert found is not None
    assert found.k == 96


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"kind": "f64"}, "unknown kind 'f64'; known: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4"),
        ({"kind": "f16", "cta_group": 3}, "cta_group must be 1 or 2, not 3"),
        (
            {"kind": "f16", "cta_group": 2, "ws": True},
            ".ws exists with cta_group::1 only, and not for block-scaled kinds",
        ),
        (
            {"kind": "mxf4nvf4"},
            "kind::mxf4nvf4 takes the scale vector sizes .scale_vec::2X, .block32, .scale_vec::4X, .block16, not ''",
        ),
        ({"kind": "f16", "block": "block32"}, "kind::f16 takes the scale vector sizes none, not 'block32'"),
    ],
)
def test_forms_that_do_not_exist_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        MmaForm(**arguments)
    assert str(caught.value) == sentence
