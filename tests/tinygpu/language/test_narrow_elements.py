"""Elements of 4 and 8 bits: stored side by side, unpacked in registers, beside an oracle that decodes bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulk_rows import BulkLoad
from fake_cuda import FakeCuda
from negation import Later, refused, thing

import tinygpu as tg
from tinygpu.api.bundle import question
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, Route, UnknownLayout, blocked
from tinygpu.language.problem import Operand
from tinygpu.ptx import isa
from tinygpu.ptx.isa.unpack import PACKED, UNPACKED, Pack, Unpack
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.measuring.reference import CannotRecord
from tinygpu.ptx.measuring.subject import Subject
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.elements import ELEMENTS
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.loaded import load_kernel
from tinygpu.ptx.runtime.narrow import packed
from tinygpu.ptx.verification.operands import POISON, host_tensor
from tinygpu.testing.meanings import meaning_fault

KINDS = ("s4", "u4", "e2m1", "s8", "u8", "e4m3", "e5m2")
BITS = {"s4": (4, 0, 0), "u4": (4, 0, 0), "e2m1": (4, 2, 1), "s8": (8, 0, 0), "u8": (8, 0, 0), "e4m3": (8, 4, 3),
        "e5m2": (8, 5, 2)}  # fmt: skip


def decoded(kind: str, code: int) -> float:
    """The value of a code, digit by digit."""
    bits, exponent, mantissa = BITS[kind]
    if not exponent:
        return float(code - (1 << bits) if kind[0] == "s" and code >> (bits - 1) else code)
    field, rest = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    negative = -1.0 if code >> (bits - 1) else 1.0
    if kind == "e4m3" and code & 0x7F == 0x7F:
        return float("nan")
    if kind == "e5m2" and field == 31:
        return float("nan") if rest else negative * float("inf")
    bias = (1 << (exponent - 1)) - 1
    size = (rest if field == 0 else rest + (1 << mantissa)) * 2.0 ** (max(field, 1) - bias - mantissa)
    return negative * size


def machine(kind: str, to: str, computed: str, rows: int, by_column: bool) -> type[Machine]:
    """y = x, converted on the way."""
    major = ("col",) if by_column else ("row",)

    class Converted(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x = Input(kind, m, n, majors=major)
        y = Output(to, m, n, majors=major)

        warps, vector, step = Param(1, 2), Param(1, 2, 4, 8, 16, 32), Param(1, 2)
        ld, st, every = isa.LdGlobal(vector), isa.StGlobal(vector), isa.arithmetic(computed)

        def program(self, p: Any) -> None:
            lines, along = self.warps * rows, 8 * self.vector * self.step
            shape = (along, 4 * lines) if by_column else (4 * lines, along)
            who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=8, axis=0 if by_column else 1)
            with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                wide = p.cast(x, computed) if kind != to else x
                p.store(self.st, self.y.tile(i, j, shape=shape), p.cast(wide, to))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Converted


def bits_are_moved_and_decoded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(KINDS))
    wide = str(rng.choice([to for origin, to in UNPACKED if origin == kind and to not in ("s32", "u32")]))
    to = kind if rng.random() < 0.3 else wide
    by_column = bool(rng.integers(2))
    made = machine(kind, to, wide, int(rng.integers(1, 4)), by_column)
    whole = 8 * int(rng.integers(1, 30))
    m, n = (whole, int(rng.integers(1, 40))) if by_column else (int(rng.integers(1, 40)), whole)
    gap = 8 * int(rng.integers(0, 3))
    space = tg.space(made, m=m, n=n, device="h100", lds=dict.fromkeys(("x", "y"), whole + gap))
    (point,) = space.sample(1, seed)
    kernel = tg.emit(space, point)
    codes = rng.integers(0, 1 << BITS[kind][0], (m, n)).astype(np.uint8)
    x = codes.view(dtype(kind).numpy)
    wanted = np.vectorize(lambda code: decoded(kind, int(code)))(codes)
    for found in (tg.emulate(kernel, x), tg.run(kernel, x)):
        with np.errstate(all="ignore"):
            got = found.astype(np.float64)
        where = f"{kind} to {to} by {wide}, {m} x {n}, {point}, seed {seed}"
        assert np.all((got == wanted) | (np.isnan(got) & np.isnan(wanted))), where
        if kind == to:
            assert np.array_equal(found.view(np.uint8), codes), where
    verified = tg.verify(kernel)
    assert verified.passed, verified
    assert not verified.left_out, verified


@pytest.mark.parametrize("seed", range(6))
def test_narrow_elements_are_moved_and_decoded_bit_by_bit(seed: int) -> None:
    bits_are_moved_and_decoded(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 220))
def test_many_narrow_elements_are_moved_and_decoded_bit_by_bit(seed: int) -> None:
    bits_are_moved_and_decoded(seed)


@pytest.mark.parametrize("to", ["u4", "f16"])
@pytest.mark.parametrize("vector", [2, 4])
def test_threads_may_hold_less_than_fills_a_register(vector: int, to: str) -> None:
    made = machine("u4", to, "f16", 1, False)
    kernel = tg.emit(tg.space(made, m=9, n=8 * vector + 8, device="a100"), vector=vector, warps=1, step=1)
    codes = np.random.default_rng(vector).integers(0, 16, (9, 8 * vector + 8)).astype(np.uint8)
    found = tg.emulate(kernel, codes.view(dtype("u4").numpy))
    assert np.array_equal(found.astype(np.float64), codes)
    assert tg.verify(kernel).passed


@pytest.mark.parametrize("pair", UNPACKED, ids=" to ".join)
def test_what_unpacks_a_register_gives_every_value(pair: tuple[str, str]) -> None:
    assert meaning_fault(Unpack(*pair), np.random.default_rng(0), 0.0) == ""
    codes = np.arange(1 << BITS[pair[0]][0], dtype=np.uint8)
    meant = np.asarray(Unpack(*pair).meaning(codes.view(dtype(pair[0]).numpy))).astype(np.float64)
    np.testing.assert_array_equal(meant, [decoded(pair[0], int(code)) for code in codes])


@pytest.mark.parametrize("pair", PACKED, ids=" to ".join)
def test_what_packs_saturates(pair: tuple[str, str]) -> None:
    assert meaning_fault(Pack(*pair), np.random.default_rng(0), 0.0) == ""
    kind = dtype(pair[1])
    given = np.array([-300, -8.4, -1, 0.5, 1.5, 6.6, 300, 999]).astype(dtype(pair[0]).numpy)
    found = Pack(*pair).meaning(given).astype(np.float64)
    if kind.is_float:
        codes = np.arange(1 << kind.bits, dtype=np.uint8)
        values = np.array([decoded(pair[1], int(code)) for code in codes])
        values = values[np.isfinite(values)]
        ties = Pack(*pair).meaning(np.array([0.25, 0.75, -2.5, 3.5, -5.0, 5.1, np.nan]).astype(dtype(pair[0]).numpy))
        if kind.bits == 4:
            assert ties.astype(np.float64).tolist() == [0.0, 1.0, -2.0, 4.0, -4.0, 6.0, 6.0]
        nearest = np.abs(values[:, None] - given.astype(np.float64)).min(axis=0)
        np.testing.assert_array_equal(np.abs(found - given.astype(np.float64)), nearest)
        return
    high = (1 << (kind.bits - (kind.kind == "signed"))) - 1
    low = -high - 1 if kind.kind == "signed" else 0
    np.testing.assert_array_equal(found, np.clip(np.rint(given.astype(np.float64)), low, high))


@pytest.mark.parametrize("gap", [0, 6])
def test_elements_of_4_bits_lie_two_to_a_byte(gap: int) -> None:
    """The first in the low half; gaps between rows and what surrounds the tensor keep their poison."""
    rng = np.random.default_rng(gap)
    held = host_tensor(Operand("x", dtype("u4"), (5, 10), "row", 10 + gap, 4, "out"))
    values = rng.integers(0, 16, (5, 10)).astype(np.uint8)
    held.write(values.view(dtype("u4").numpy))
    assert held.gaps_intact()
    assert np.array_equal(held.array.view(np.uint8), values)
    for i, j in np.ndindex(5, 10):
        place = i * (10 + gap) + j
        byte = int(held.storage[held.offset_bytes + place // 2])
        assert (byte >> 4 * (place % 2)) & 15 == values[i, j]
    assert np.all(held.storage[: held.offset_bytes] == POISON)
    if gap:
        held.storage[held.offset_bytes + 5] ^= 0x40
        assert not held.gaps_intact()


def test_registers_of_narrow_elements_are_taken_apart_together() -> None:
    """Three statements for two weights of 4 bits, where one by one they are five."""
    made = machine("s4", "f16", "f16", 1, False)
    kernel = tg.emit(tg.space(made, m=8, n=256, device="a100"), warps=1, vector=8, step=1)
    assert kernel.ptx.count("lop3.b32") == kernel.ptx.count("fma.rn.f16x2") == 4
    assert "bfe" not in kernel.ptx
    assert Unpack("s4", "f16").issued(expr(8)).same(12)


@dataclass(frozen=True, eq=False)
class BothBytes(Elementwise):
    """d = a & b of four bytes in one register."""

    operands = ("u8x4", "u8x4")
    result = "u8x4"
    template = "and.b32 {d}, {a}, {b};"
    sign = "&"

    def meaning(self, *values: Any) -> Any:
        return values[0] & values[1]


def test_an_instruction_of_ones_own_computes_with_four_bytes_at_once() -> None:
    class Masked(Machine):
        """y = x & z"""

        n = Dim()
        x, z = Input("u8", n), Input("u8", n)
        y = Output("u8", n)
        warps, vector = Param(1, 2), Param(1, 2, 4, 8, 16)
        ld, st, both = isa.LdGlobal(vector), isa.StGlobal(vector), BothBytes()

        def program(self, p: Any) -> None:
            shape = (32 * self.warps * self.vector,)
            who = blocked(shape, threads=32 * self.warps, vector=self.vector)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                x, z = (p.load(self.ld, t.tile(i, shape=shape), who) for t in (self.x, self.z))
                p.store(self.st, self.y.tile(i, shape=shape), x & z)

        @staticmethod
        def reference(x: Any, z: Any) -> Any:
            return x & z

    space = tg.space(Masked, n=1040, device="a100")
    assert space.parameters["vector"] == (4, 8, 16)  # a thread holds whole registers
    kernel = tg.emit(space, vector=8, warps=1)
    assert not {"bfe", "bfi"} & {line.split(".")[0].strip() for line in kernel.ptx.splitlines()}  # no byte by itself
    x, z = np.random.default_rng(0).integers(0, 256, (2, 1040)).astype(np.uint8)
    assert np.array_equal(tg.emulate(kernel, x, z), x & z)
    assert np.array_equal(tg.run(kernel, x, z), x & z)


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_rows_of_4_bits_are_whole_vectors() -> None:
    made = machine("s4", "f16", "f16", 1, False)
    odd = tg.explain(tg.space(made, m=8, n=255, device="a100"), vector=2)
    assert (
        "ld.global rows of x (ld.global): the rows of x, whose elements have 4 bits, are whole vectors; "
        "255 mod 2 = 1 != 0"
    ) in odd.sentences
    alone = tg.explain(tg.space(made, m=8, n=256, device="a100"), vector=1)
    assert any("width of x" in s for s in alone.sentences)


def through_a_ring(kind: str, by_column: bool, copy: Any, padded: bool = True) -> type[Machine]:
    """y = x, tile after tile through shared memory, where elements of 4 bits stay two to a byte."""
    major = ("col",) if by_column else ("row",)

    class Ring(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x, y = Input(kind, m, n, majors=major), Output(kind, m, n, majors=major)

        warps, vector, stages, pad = Param(1, 2), Param(8, 16, 32), Param(1, 2, 3), Param(0, 32)
        read = Param(2, 4, 8)
        layout = UnknownLayout()
        bring, get, put, st = copy(vector), isa.LdShared(read), isa.StShared(read), isa.StGlobal(read)

        def program(self, p: Any) -> None:
            lines, axis = 16 * self.warps, 0 if by_column else 1
            shape = (64, lines) if by_column else (lines, 64)
            place = {"pad": self.pad} if padded else {"layout": self.layout}
            stage = p.smem(kind, shape, contiguous=axis, **place)
            brought = blocked(shape, threads=32 * self.warps, vector=self.vector, axis=axis, name="brought")
            held = blocked(shape, threads=32 * self.warps, vector=self.read, axis=axis, across=8, name="held")
            short, long = (self.n, self.m) if by_column else (self.m, self.n)
            one = p.pipeline("ring", self.stages, x=stage)
            with p.grid((short, lines)) as (j,), p.role("all", warps=self.warps), one as ring:
                with p.loop(long, step=64) as i, ring.produce() as slot:
                    at = (i, j) if by_column else (j, i)
                    p.copy(self.bring, self.x.tile(*at, shape=shape), slot.x, brought)
                with p.loop(long, step=64) as i, ring.consume() as slot:
                    at = (i, j) if by_column else (j, i)
                    p.store(self.st, self.y.tile(*at, shape=shape), p.load(self.get, slot.x, held))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Ring


def routed(vector: Any) -> Route:
    return Route(isa.LdGlobal(vector), isa.StShared(vector))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_elements_that_share_bytes_go_through_shared_memory_as_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, by_column = ("s4", "u4", "e2m1")[seed % 3], bool(seed % 2)
    made = through_a_ring(kind, by_column, isa.CpAsync if seed < 5 else routed, padded=bool(seed // 2 % 2))
    long, short = 32 * int(rng.integers(1, 9)), int(rng.integers(1, 60))
    m, n = (long, short) if by_column else (short, long)
    space = tg.space(made, m=m, n=n, device="h100")
    (point,) = space.sample(1, seed)
    kernel = tg.emit(space, point)
    codes = rng.integers(0, 16, (m, n)).astype(np.uint8)
    for found in (tg.emulate(kernel, codes.view(dtype(kind).numpy)), tg.run(kernel, codes.view(dtype(kind).numpy))):
        np.testing.assert_array_equal(found.view(np.uint8), codes)
    verified = tg.verify(kernel)
    assert verified.passed, verified


def test_what_shares_bytes_is_moved_in_whole_bytes() -> None:
    def ring(instruction: Any, swizzle: int | None = None, ends: bool = False) -> Any:
        def program(self: Any, p: Any) -> None:
            who = blocked((64,), threads=32, vector=2)
            stage = p.smem("s4", (64,), swizzle=swizzle or None)
            with p.grid((self.n, 64)) as (i,), p.role("all", warps=1), p.pipeline("ring", 1, x=stage) as ring:
                with ring.produce() as slot:
                    x = self.x.segment(0, 5) if ends else self.x
                    by_lanes = (who,) if swizzle is None else ()
                    p.copy(self.copy, x.tile(i, shape=(64,)), slot.x, *by_lanes)
                with ring.consume() as slot:
                    p.store(self.st, self.y.tile(i, shape=(64,)), p.load(self.get, slot.x, who))

        parts = {"x": Later(lambda n: Input("s4", n)), "y": Later(lambda n: Output("s4", n))}
        return lambda: thing(program, ("neg", "ld", "warps"), copy=instruction, get=isa.LdShared(2), **parts)

    refused(
        ring(BulkLoad(), swizzle=0),
        "Thing.program: copy (cp.async.bulk) moves rows of elements of whole bytes, and those of x have 4 bits; copy "
        "them thread by thread, as by isa.CpAsync",
    )
    refused(
        ring(isa.CpAsync(8), ends=True),
        "Thing.program: cp.async moves whole bytes, and a segment along x, whose elements have 4 bits, may end within "
        "one",
    )


@pytest.mark.end_to_end
@pytest.mark.parametrize("by_column", [False, True])
def test_arrays_of_a_gpu_hold_two_elements_in_each_byte(by_column: bool) -> None:
    context = open_context(Driver(FakeCuda(memory_bytes=1 << 28)))
    codes = np.random.default_rng(1).integers(0, 16, (16, 32)).astype(np.uint8)
    values = np.vectorize(lambda code: decoded("s4", int(code)))(codes)
    flat = codes.T if by_column else codes
    stored = packed(flat, 4).reshape(flat.shape[0], -1)
    x = stored.T if by_column else stored
    wide = machine("s4", "f16", "f16", 1, by_column)
    kernel = tg.compile(wide, x, point={"warps": 1}, context=lambda: context)
    y = np.zeros((16, 32), np.float16, order="F" if by_column else "C")
    np.testing.assert_array_equal(kernel(x, out=y).astype(np.float64), values)
    same = tg.compile(machine("s4", "s4", "f16", 1, by_column), x, point={"warps": 1}, context=lambda: context)
    if not by_column:
        np.testing.assert_array_equal(same(x), x)  # a new array of bytes
    with pytest.raises(WrongArray) as launched:
        kernel(x.astype(np.int8))
    assert str(launched.value) == (
        "Converted: x is s8, and this kernel was compiled for s4, of which an array of u8 holds two in each byte; pack "
        "it"
    )


def test_a_question_of_narrow_inputs_is_judged_on_a_gpu(tmp_path: Path) -> None:
    made = machine("s4", "f16", "f16", 1, False)
    kernel = tg.emit(tg.space(made, made.problem(m=9, n=64, lds={"x": 80}), device="a100"), warps=1, vector=8)
    context = open_context(Driver(FakeCuda(memory_bytes=1 << 28)))
    subject = Subject(context, question(made, kernel.space.problem), 0, tmp_path)
    launch = launch_of(kernel.built.kernel, kernel.space.problem)
    assert subject.verify(load_kernel(context, launch, kernel.ptx.encode())) == ""
    wrong = kernel.ptx.replace("0xD480E408", "0xD480E409")
    assert wrong != kernel.ptx
    assert "elements are wrong" in subject.verify(load_kernel(context, launch, wrong.encode()))
    narrow = machine("s4", "s4", "f16", 1, False)
    with pytest.raises(CannotRecord) as bundled:
        question(narrow, narrow.problem(m=8, n=256))
    assert str(bundled.value) == (
        "Converted: y is s4, and results are compared on a GPU whose elements are whole bytes"
    )


def test_pairs_that_nothing_converts_are_listed() -> None:
    with pytest.raises(ValueError, match=r"^nothing unpacks s4 to f64; there are s4 to f16, u4 to f16, "):
        Unpack("s4", "f64")
    with pytest.raises(ValueError, match=r"^nothing packs f64 into s4; there are f32 to s8, f32 to u8, "):
        Pack("f64", "s4")


def test_elements_at_run_time_have_the_codes_of_ml_dtypes() -> None:
    for e in (e for e in ELEMENTS if e.bits == 4):
        codes = np.arange(16, dtype=np.uint8)
        values = codes.view(dtype(e.name).numpy).astype(np.float64)
        np.testing.assert_array_equal(e.decode(codes), values)
        np.testing.assert_array_equal(e.decode(e.encode(values)), values)
        order = np.argsort(e.keys(codes), kind="stable")
        assert np.all(np.diff(values[order]) >= 0)
        np.testing.assert_array_equal(e.bits_of(e.keys(codes)), codes)
