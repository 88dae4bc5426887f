"""mma.sync: rate and latency of each pair of types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Buffer, Counts, Launch, Microbenchmark, Reading
from tinygpu.ptx.calibration.chip import Chip
from tinygpu.ptx.calibration.kernel_text import Kernel, load

# Four warps on each scheduler, four accumulators in each warp.
THREADS, TILES, ROUNDS = 512, 4, 4
STEPS = 16


@dataclass(frozen=True, slots=True)
class Form:
    """One mma.sync.

    name      of the microbenchmarks
    shape     m, n, k
    types     accumulator, A, B
    registers of D, A and B, and their kind: r (32 bits), f (f32) or g (f64)
    a, b      32 bits of A's and B's registers (the upper ones of f64): 1, and 1 over k, so that each mma adds 1
    target    the first that has it, and the `.version`
    field     the device's figure of its rate
    native    compute capabilities of which it is an instruction; elsewhere the assembler makes others of it
    """

    name: str
    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    registers: tuple[int, int, int]
    kind: str
    a: int
    b: int
    target: str
    version: str
    field: str = ""
    native: tuple[int, ...] = ()

    @property
    def opcode(self) -> str:
        (m, n, k), (d, a, b) = self.shape, self.types
        return f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{a}.{b}.{d}"

    @property
    def operations(self) -> int:
        """Of one mma: two per multiply-add."""
        m, n, k = self.shape
        return 2 * m * n * k

    def accumulators(self, tile: int) -> list[str]:
        count = self.registers[0]
        return [f"%{self.kind}{tile * count + i}" for i in range(count)]

    def line(self, tile: int) -> str:
        kind = "g" if self.kind == "g" else "r"
        d = ", ".join(self.accumulators(tile))
        a = ", ".join(f"%{kind}{40 + i}" for i in range(self.registers[1]))
        b = ", ".join(f"%{kind}{50 + i}" for i in range(self.registers[2]))
        return f"{self.opcode} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"

    def setup(self, tiles: int) -> list[str]:
        """Operands from memory, since equal ones would be multiplied once only; accumulators of zero."""
        bytes_each, kind = (8, "g") if self.kind == "g" else (4, "r")
        lines = [load("%d0", "operands"), f"mul.wide.u32 %d1, %thread, {bytes_each};", "add.u64 %d0, %d0, %d1;"]
        for first, start, count in ((40, 0, self.registers[1]), (50, self.registers[1], self.registers[2])):
            for i in range(count):
                place = (start + i) * THREADS * bytes_each
                lines.append(f"ld.global.b{8 * bytes_each} %{kind}{first + i}, [%d0+{place}];")
        zero = {"r": "mov.b32 {}, 0;", "f": "mov.f32 {}, 0f00000000;", "g": "mov.f64 {}, 0d0000000000000000;"}
        return lines + [zero[self.kind].format(x) for tile in range(tiles) for x in self.accumulators(tile)]

    def finish(self, tiles: int) -> list[str]:
        """The sum of the bits of all accumulators (upper ones of f64) in %r62, so that none of them is unused."""
        lines = ["mov.u32 %r62, 0;"]
        for x in (x for tile in range(tiles) for x in self.accumulators(tile)):
            word = x
            if self.kind != "r":
                word = "%r63"
                lines.append(f"mov.b64 {{%r64, %r63}}, {x};" if self.kind == "g" else f"mov.b32 %r63, {x};")
            lines.append(f"add.u32 %r62, %r62, {word};")
        return lines

    def bits(self, value: int) -> int:
        """A sum as it stands in the 32 bits of an accumulator's register (two sums of f16)."""
        accumulator = self.types[0]
        if accumulator == "f16":
            return int(np.float16(value).view(np.uint16)) * 0x10001
        if accumulator == "f64":
            return int(np.float64(value).view(np.uint64)) >> 32
        return value if accumulator == "s32" else int(np.float32(value).view(np.uint32))

    def check(self, sink: Array, tiles: int, steps: int) -> str:
        """Each mma adds 1 to every element."""
        added = steps if self.types[0] != "s32" else steps * self.shape[2]
        wanted = tiles * self.registers[0] * self.bits(added) & 0xFFFFFFFF
        return "" if (sink == wanted).all() else f"sums of {steps} products left {int(sink[0]):#x} and not {wanted:#x}"

    def operands(self) -> Buffer:
        """One word of every thread for each register of A, then of B."""
        words = np.repeat(np.array([self.a] * self.registers[1] + [self.b] * self.registers[2]), THREADS)
        if self.kind == "g":
            return Buffer("operands", words.astype(np.uint64) << np.uint64(32))
        return Buffer("operands", words.astype(np.uint32))

    def kernel(self, name: str, threads: int, tiles: int, rounds: int) -> Kernel:
        return Kernel(
            name=name, threads=threads, target=self.target, version=self.version, parameters=(".u64 operands",),
            setup=self.setup(tiles), trip=[self.line(tile) for _ in range(rounds) for tile in range(tiles)],
            finish=self.finish(tiles), result="%r62",
        )  # fmt: skip



# PTX ISA, mma.sync shapes and types; each was assembled for its target. Which of them are instructions of the chip was
# seen in the machine code that nvJitLink 13.5 makes for sm_89 to sm_120.
_FP8, _WIDE_F64 = (89, 120, 121), (90,)
FORMS: tuple[Form, ...] = (
    Form("mma-f16", (16, 8, 16), ("f32", "f16", "f16"), (4, 4, 2), "f", 0x3C003C00, 0x2C002C00, "sm_80", "7.0",
         "tensor_f16_fp32acc_flop_per_clk_sm"),
    Form("mma-f16-f16", (16, 8, 16), ("f16", "f16", "f16"), (2, 4, 2), "r", 0x3C003C00, 0x2C002C00, "sm_80", "7.0",
         "tensor_f16_fp16acc_flop_per_clk_sm"),
    Form("mma-bf16", (16, 8, 16), ("f32", "bf16", "bf16"), (4, 4, 2), "f", 0x3F803F80, 0x3D803D80, "sm_80", "7.0",
         "tensor_bf16_flop_per_clk_sm"),
    Form("mma-tf32", (16, 8, 8), ("f32", "tf32", "tf32"), (4, 4, 2), "f", 0x3F800000, 0x3E000000, "sm_80", "7.0",
         "tensor_tf32_flop_per_clk_sm"),
    Form("mma-s8", (16, 8, 32), ("s32", "s8", "s8"), (4, 4, 2), "r", 0x01010101, 0x01010101, "sm_80", "7.0",
         "tensor_int8_op_per_clk_sm"),
    Form("mma-fp8", (16, 8, 32), ("f32", "e4m3", "e4m3"), (4, 4, 2), "f", 0x38383838, 0x10101010, "sm_89", "8.4",
         "tensor_fp8_fp32acc_flop_per_clk_sm", _FP8),
    Form("mma-fp8-f16", (16, 8, 32), ("f16", "e4m3", "e4m3"), (2, 4, 2), "r", 0x38383838, 0x10101010, "sm_89", "8.7",
         "tensor_fp8_fp16acc_flop_per_clk_sm", _FP8),
    Form("mma-f64", (8, 8, 4), ("f64", "f64", "f64"), (2, 1, 1), "g", 0x3FF00000, 0x3FD00000, "sm_80", "7.0",
         "tensor_f64_flop_per_clk_sm"),
    Form("mma-f64-wide", (16, 8, 16), ("f64", "f64", "f64"), (4, 8, 4), "g", 0x3FF00000, 0x3FB00000, "sm_90", "7.8",
         "tensor_f64_flop_per_clk_sm", _WIDE_F64),
)  # fmt: skip


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return tuple(made for form in FORMS for made in (_rate(form), _latency(form)))


def _native(form: Form) -> Callable[[Chip], bool] | None:
    return (lambda chip: chip.cc in form.native) if form.native else None


def _rate(form: Form) -> Microbenchmark:
    kernel = form.kernel(f"{form.name.replace('-', '_')}_rate", THREADS, TILES, ROUNDS)

    def where(chip: Chip) -> bool:
        # f64 has no wgmma or tcgen05; where its wide form is an instruction, that is the fastest
        if form.types[0] == "f64":
            return bool(form.native) == (chip.cc in _WIDE_F64)
        return chip.mma_sync_is_fastest

    def counts(launch: Launch, trips: int) -> Counts:
        executed = TILES * ROUNDS * launch.warps * trips
        return {form.opcode: executed, "mma_operations": executed * form.operations}

    unit = "OP/clk/SM" if form.types[0] == "s32" else "FLOP/clk/SM"
    rate = Reading(
        f"mma.sync, {form.types[1]} in {form.types[0]}", unit, "mma_operations", True, "cycles", 4, 100_000,
        field=form.field, where=where,
    )  # fmt: skip
    interval = Reading(
        "cycles from one mma.m16n8k16 to the next, per scheduler", "cycles", form.opcode, False, "cycles", 1, 600, 4.0,
        field="issue_interval_mma_m16n8k16",
    )  # fmt: skip
    return Microbenchmark(
        f"{form.name}-rate", "tensor cores", f"{TILES} independent accumulators in each of 16 warps of every SM",
        kernel.text(), form.target, (16, 80),
        lambda chip, trips: Launch(chip.sms, THREADS, (form.operands(),), rows=THREADS // 32), counts,
        lambda launch, trips, left: form.check(left[SINK], TILES, ROUNDS * trips),
        (rate, interval) if form.name == "mma-f16" else (rate,), _native(form),
    )  # fmt: skip


def _latency(form: Form) -> Microbenchmark:
    kernel = form.kernel(f"{form.name.replace('-', '_')}_latency", 32, 1, STEPS)
    first = form.name == "mma-f16"

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        return form.check(left[SINK], 1, STEPS * trips)

    return Microbenchmark(
        f"{form.name}-latency", "tensor cores", "one warp, each mma.sync adds to the result of the one before",
        kernel.text(), form.target, (16, 80), lambda chip, trips: Launch(1, 32, (form.operands(),)),
        lambda launch, trips: {form.opcode: STEPS * trips}, check,
        (Reading(
            f"latency of mma.sync, {form.types[1]} in {form.types[0]}", "cycles", form.opcode, False, "cycles", 5, 500,
            per="warp", field="lat_mma_m16n8k16" if first else "",
        ),), _native(form),
    )  # fmt: skip
