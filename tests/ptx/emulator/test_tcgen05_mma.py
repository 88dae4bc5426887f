"""tcgen05.mma of every kind, shape and placement, in hand-written PTX, against sums written out in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tcgen05_kernels import (
    CODES,
    NARROW,
    Image,
    K,
    check_spelling,
    clear,
    descriptor,
    enable,
    in_shared,
    kernel,
    lane_words,
    one_thread,
    read_back,
    store_lanes,
)

from tinygpu.ptx.emulator import emulate

ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}


def d_cell(m: int, ws: bool, r: int, c: int, n: int, half: int) -> tuple[int, int]:
    """Where D[r, c] of one CTA lies (layouts D, E, F, G)."""
    if m == 128:
        return r, c
    if m == 64 and ws:
        return r + 64 * (c >= n // 2), c % (n // 2)
    if m == 64:
        return 32 * (r // 16) + r % 16 + half, c
    return r + 32 * (c // (n // 4)), c % (n // 4)


@dataclass(frozen=True)
class Case:
    """One instruction."""

    kind: str
    a_type: str
    b_type: str
    d_type: str = "f32"
    m: int = 128
    n: int = 32
    ws: bool = False
    swizzle: str = "128B"
    a_mn: bool = False
    b_mn: bool = False
    a_in_tmem: bool = False
    half: int = 0
    negate: tuple[bool, bool] = (False, False)
    keep: bool = False
    scale: int = 0
    mask: tuple[int, ...] = ()

    @property
    def swizzles(self) -> tuple[str, str]:
        wide = "128B_32B" if self.kind == "tf32" else self.swizzle
        return (wide if self.a_mn else self.swizzle), (wide if self.b_mn else self.swizzle)

    @property
    def columns(self) -> int:
        return self.n // (128 // self.m) if self.ws else self.n

    @property
    def word(self) -> int:
        """The instruction descriptor."""
        codes = CODES[self.kind]
        word = ACCUMULATORS[self.d_type] << 4 | codes[self.a_type] << 7 | codes[self.b_type] << 10
        word |= self.negate[0] << 13 | self.negate[1] << 14 | self.a_mn << 15 | self.b_mn << 16
        return word | self.n // 8 << 17 | self.m // 16 << 24


def operands(case: Case, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A (m, k) and B (n, k) of integers that all types of the kind hold."""
    rng = np.random.default_rng(seed)
    k = K[case.kind]
    if case.kind == "i8":
        low = {"u8": (0, 256), "s8": (-128, 128)}
        return rng.integers(*low[case.a_type], (case.m, k)), rng.integers(*low[case.b_type], (case.n, k))
    return rng.integers(-3, 4, (case.m, k)), rng.integers(-2, 4, (case.n, k))


def run(case: Case, seed: int, order: str) -> None:
    """D from the emulator and from integers agree."""
    a, b = operands(case, seed)
    image = Image()
    parts = ""
    lanes = clear(case.columns)
    if case.a_in_tmem:
        words = np.zeros((128, 8), np.uint32)
        rows = lane_words(a, case.kind, case.a_type)
        for lane in range(128):
            if case.m == 64 and not case.ws:
                if lane % 32 // 16 == case.half // 16:
                    words[lane] = rows[16 * (lane // 32) + lane % 16]
            else:
                words[lane] = rows[lane % case.m]
        lanes += store_lanes(256, image.add(words.view(np.uint8).reshape(-1)), 8)
        first = f"[%r18+{256}]"
    else:
        tile = in_shared(a, case.kind, case.a_type, case.swizzles[0], case.a_mn)
        parts += descriptor(3, tile.descriptor, image.add(tile.image()))
        first = "%rd3"
    tile = in_shared(b, case.kind, case.b_type, case.swizzles[1], case.b_mn)
    parts += descriptor(4, tile.descriptor, image.add(tile.image()))
    mask = "".join(f"mov.u32 %r{30 + n}, {word:#x};\n" for n, word in enumerate(case.mask))
    mask_operand = " {" + ", ".join(f"%r{30 + n}" for n in range(4)) + "}," if case.mask else ""
    tail = f", {case.scale}" if case.scale else ""
    mma = (
        f"add.u32 %r18, %r6, {case.half << 16};\n{mask}"
        f"tcgen05.mma{'.ws' if case.ws else ''}.cta_group::1.kind::{case.kind} [%r18], {first}, %rd4, {case.word:#x},"
        f"{mask_operand} %p5{tail};\n"
    )
    twice = enable(5, False) + mma + (enable(5, True) + mma if case.keep else "")
    text = kernel(
        lanes + one_thread(parts + twice) + read_back(case.columns, halves=case.d_type == "f16"), image.data.size, 512
    )
    check_spelling(text)
    out = np.zeros((128, case.columns), np.uint32)
    report = emulate(text, grid=1, block=128, args=[image.data, out], order=order)  # type: ignore[arg-type]
    assert report.advisories == ()
    wanted = (a @ b.T) * (-1 if case.negate[0] != case.negate[1] else 1)
    if case.keep:
        wanted = wanted + wanted / 2**case.scale
    frozen = sum(word << 32 * n for n, word in enumerate(case.mask))
    covered = np.zeros(128, np.bool_)
    for r in range(case.m):
        for c in range(case.n):
            lane, column = d_cell(case.m, case.ws, r, c, case.n, case.half)
            covered[lane] = True
            if frozen >> lane & 1:
                assert out[lane, column] == 0
                continue
            cell = out[lane, column]
            if case.d_type == "f16":
                value: Any = np.uint16(cell & 0xFFFF).view(np.float16)
            else:
                value = cell.view(np.float32 if case.d_type == "f32" else np.int32)
            assert value == wanted[r, c]
    assert (out[~covered] == 0).all()
    name = f"{case.kind}.{case.d_type}.{case.a_type}.{case.b_type}.m{case.m}n{case.n}k{K[case.kind]}"
    assert report.counters.tcgen05 == {name: 2 if case.keep else 1}
    assert report.counters.tcgen05_operations == 2 * case.m * case.n * K[case.kind] * (2 if case.keep else 1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Legal instructions of the kinds without block scaling."""
    kind = draw(st.sampled_from(["f16", "tf32", "f8f6f4", "i8"]))
    names = sorted(CODES[kind])
    a_type = draw(st.sampled_from(names))
    b_type = a_type if kind == "f16" else draw(st.sampled_from(names))
    ws = draw(st.booleans())
    m = draw(st.sampled_from([32, 64, 128] if ws else [64, 128]))
    n = draw(st.sampled_from([64, 128] if ws else [16, 32, 64]))
    d_type = "s32" if kind == "i8" else "f16" if a_type == "f16" and draw(st.booleans()) else "f32"
    a_in_tmem = draw(st.booleans())
    wide = {t for t in names if t not in NARROW}
    k = K[kind]
    swizzle = draw(st.sampled_from(["none", "32B", "64B", "128B"]))
    return Case(
        kind, a_type, b_type, d_type, m, n, ws, swizzle,
        a_mn=not a_in_tmem and a_type in wide and draw(st.booleans()), b_mn=b_type in wide and draw(st.booleans()),
        a_in_tmem=a_in_tmem, half=16 if m == 64 and not ws and draw(st.booleans()) else 0,
        negate=(False, False) if kind == "i8" else (draw(st.booleans()), draw(st.booleans())),
        keep=draw(st.booleans()), scale=draw(st.integers(1, 3)) if kind == "tf32" and not ws and k == 8 else 0,
        mask=() if ws or draw(st.booleans()) else tuple(draw(st.integers(0, 2**32 - 1)) for _ in range(4)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1), st.sampled_from(["late", "early", "random"]))
def test_products_are_those_of_integers(case: Case, seed: int, order: str) -> None:
    run(case, seed, order)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "case",
    [
        Case("f16", "bf16", "bf16", n=256), Case("f16", "f16", "f16", "f16", n=8), Case("i8", "s8", "u8", "s32", n=48),
        Case("f16", "bf16", "bf16", n=256, b_mn=True), Case("i8", "u8", "s8", "s32", n=64, a_mn=True, b_mn=True),
        Case("tf32", "tf32", "tf32", n=64, a_mn=True, b_mn=True),
        Case("f8f6f4", "e2m3", "e2m1", n=64, a_in_tmem=True), Case("f16", "f16", "f16", m=32, n=256, ws=True),
        Case("f16", "f16", "f16", m=64, n=256, half=16, swizzle="32B"),
        Case("f8f6f4", "e5m2", "e4m3", "f16", n=16, swizzle="none"),
    ],
    ids=str,
)  # fmt: skip
def test_chosen_instructions(case: Case) -> None:
    run(case, 1, "late")
