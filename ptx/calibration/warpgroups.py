"""wgmma: rate and latency of each pair of types, of some widths, and with A in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Counts, Launch, Microbenchmark, Number, Reading
from tinygpu.ptx.calibration.kernel_text import Kernel, load

WARPGROUPS, WARPGROUP = 2, 128
ROWS, SPAN_BYTES, STEP_BYTES = 64, 128, 32
STEPS = SPAN_BYTES // STEP_BYTES
# PTX ISA, matrix descriptor of wgmma: swizzle of 128 bytes, 1,024 bytes from one group of eight rows to the next.
_DESCRIPTOR = (1 << 62) | (1024 >> 4 << 32)


@dataclass(frozen=True, slots=True)
class Form:
    """One wgmma.mma_async with operands in rows of 128 bytes of shared memory.

    name         of the microbenchmarks
    n, k         of the shape m64nNkK
    types        accumulator, A, B
    a, b         32 bits of A and of B: 1, and 1 over k, so that each wgmma adds 1 (k for integers)
    in_registers whether A is in registers
    field        the device's figure of its rate
    """

    name: str
    n: int
    k: int
    types: tuple[str, str, str]
    a: int
    b: int
    in_registers: bool = False
    field: str = ""

    @property
    def opcode(self) -> str:
        d, a, b = self.types
        return f"wgmma.mma_async.sync.aligned.m{ROWS}n{self.n}k{self.k}.{d}.{a}.{b}"

    @property
    def accumulators(self) -> list[str]:
        """Registers of a thread: 32 bits each, two sums of f16 in one."""
        kind, count = ("f", self.n // 2) if self.types[0] == "f32" else ("r", self.n // 2)
        if self.types[0] == "f16":
            count = self.n // 4
        first = 0 if kind == "f" else 100
        return [f"%{kind}{first + i}" for i in range(count)]

    def line(self, step: int) -> str:
        """Step 0 to 3 goes 32 bytes on in each row: two more in the descriptor's address."""
        a = "{%r50, %r51, %r52, %r53}" if self.in_registers else f"%d{step}"
        scales = ", 1, 1" if self.types[0] != "s32" else ""
        majors = {True: ", 0", False: ", 0, 0"}[self.in_registers] if self.types[1] in ("f16", "bf16") else ""
        return f"{self.opcode} {{{', '.join(self.accumulators)}}}, {a}, %d{10 + step}, %p0{scales}{majors};"

    def setup(self) -> list[str]:
        """Fills both operands, and makes their descriptors."""
        lines = [load("%r1", "a", "u32"), load("%r2", "b", "u32"), "mov.u32 %r3, smem;", "shl.b32 %r5, %thread, 2;"]
        lines += ["mov.u32 %r6, %ntid.x;", "shl.b32 %r6, %r6, 2;"]
        a_bytes, b_bytes = ROWS * SPAN_BYTES, self.n * SPAN_BYTES
        for name, start, size, word in (("A", 0, a_bytes, "%r1"), ("B", a_bytes, b_bytes, "%r2")):
            lines += [
                f"add.s32 %r7, %r3, {start + size};",
                f"add.s32 %r4, %r3, {start};",
                "add.s32 %r4, %r4, %r5;",
                f"FILL_{name}:",
                f"st.shared.b32 [%r4], {word};",
                "add.s32 %r4, %r4, %r6;",
                "setp.lt.u32 %p1, %r4, %r7;",
                f"@%p1 bra FILL_{name};",
            ]
        lines += ["fence.proxy.async.shared::cta;", "bar.sync 0;"]
        for first, start in ((0, 0), (10, a_bytes)):
            lines += [
                f"add.s32 %r8, %r3, {start};",
                "shr.u32 %r8, %r8, 4;",
                f"cvt.u64.u32 %d{first}, %r8;",
                f"or.b64 %d{first}, %d{first}, {_DESCRIPTOR};",
                *(f"add.s64 %d{first + i}, %d{first}, {i * STEP_BYTES >> 4};" for i in range(1, STEPS)),
            ]
        if self.in_registers:
            lines += [f"mov.b32 %r{50 + i}, %r1;" for i in range(4)]
        kind = "mov.f32 {}, 0f00000000;" if self.types[0] == "f32" else "mov.b32 {}, 0;"
        # 1: add to what is there
        return [*lines, *(kind.format(x) for x in self.accumulators), "setp.ne.u32 %p0, %r3, 0xffffffff;"]

    def finish(self) -> list[str]:
        lines = ["wgmma.wait_group.sync.aligned 0;", "mov.u32 %r9, 0;"]
        for x in self.accumulators:
            if x.startswith("%f"):
                lines.append(f"mov.b32 %r10, {x};")
            lines.append(f"add.u32 %r9, %r9, {'%r10' if x.startswith('%f') else x};")
        return lines

    def check(self, sink: Array, steps: int) -> str:
        added = steps * self.k if self.types[0] == "s32" else steps
        if self.types[0] == "f16":
            bits = int(np.float16(added).view(np.uint16)) * 0x10001
        else:
            bits = added if self.types[0] == "s32" else int(np.float32(added).view(np.uint32))
        wanted = len(self.accumulators) * bits & 0xFFFFFFFF
        return "" if (sink == wanted).all() else f"sums of {steps} products left {int(sink[0]):#x} and not {wanted:#x}"

    def kernel(self, name: str, threads: int, trip: list[str]) -> Kernel:
        return Kernel(
            name=name, threads=threads, target="sm_90a", parameters=(".u32 a", ".u32 b"),
            smem=(f".shared .align 1024 .b8 smem[{(ROWS + self.n) * SPAN_BYTES}];",), setup=self.setup(), trip=trip,
            finish=self.finish(), result="%r9",
        )  # fmt: skip

    def numbers(self) -> tuple[Number, Number]:
        return Number("a", self.a), Number("b", self.b)


_F16, _BF16 = (0x3C003C00, 0x2C002C00), (0x3F803F80, 0x3D803D80)
_FP8, _TF32, _S8 = (0x38383838, 0x10101010), (0x3F800000, 0x3E000000), (0x01010101, 0x01010101)
# PTX ISA, wgmma.mma_async; each was assembled for sm_90a.
FORMS: tuple[Form, ...] = (
    Form("wgmma-f16", 256, 16, ("f32", "f16", "f16"), *_F16, field="tensor_f16_fp32acc_flop_per_clk_sm"),
    Form("wgmma-f16-f16", 256, 16, ("f16", "f16", "f16"), *_F16, field="tensor_f16_fp16acc_flop_per_clk_sm"),
    Form("wgmma-bf16", 256, 16, ("f32", "bf16", "bf16"), *_BF16, field="tensor_bf16_flop_per_clk_sm"),
    Form("wgmma-tf32", 256, 8, ("f32", "tf32", "tf32"), *_TF32, field="tensor_tf32_flop_per_clk_sm"),
    Form("wgmma-fp8", 256, 32, ("f32", "e4m3", "e4m3"), *_FP8, field="tensor_fp8_fp32acc_flop_per_clk_sm"),
    Form("wgmma-fp8-f16", 256, 32, ("f16", "e4m3", "e4m3"), *_FP8, field="tensor_fp8_fp16acc_flop_per_clk_sm"),
    Form("wgmma-s8", 256, 32, ("s32", "s8", "s8"), *_S8, field="tensor_int8_op_per_clk_sm"),
    Form("wgmma-bf16-registers", 256, 16, ("f32", "bf16", "bf16"), *_BF16, in_registers=True),
    Form("wgmma-bf16-n192", 192, 16, ("f32", "bf16", "bf16"), *_BF16),
    Form("wgmma-bf16-n128", 128, 16, ("f32", "bf16", "bf16"), *_BF16),
    Form("wgmma-bf16-n64", 64, 16, ("f32", "bf16", "bf16"), *_BF16),
    Form("wgmma-bf16-n8", 8, 16, ("f32", "bf16", "bf16"), *_BF16),
)
_TIMED = ("wgmma-f16", "wgmma-bf16-n128", "wgmma-bf16-n64", "wgmma-bf16-n8")


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return tuple(
        made for form in FORMS for made in (_rate(form), *([_latency(form)] if form.name in _TIMED else []))
    )


def _counts(form: Form, warpgroups: int, per_trip: int) -> Counts:
    executed = warpgroups * per_trip
    return {form.opcode: 4 * executed, "wgmma_operations": 2 * ROWS * form.n * form.k * executed}


def _rate(form: Form) -> Microbenchmark:
    trip = [
        "wgmma.fence.sync.aligned;",
        *(form.line(step) for step in range(STEPS)),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 1;",
    ]
    kernel = form.kernel(f"{form.name.replace('-', '_')}_rate", WARPGROUPS * WARPGROUP, trip)
    unit = "OP/clk/SM" if form.types[0] == "s32" else "FLOP/clk/SM"
    place = "A in registers" if form.in_registers else "A in shared memory"
    rate = Reading(
        f"wgmma, {form.types[1]} in {form.types[0]}, n = {form.n}, {place}", unit, "wgmma_operations", True, "cycles",
        64, 100_000, field=form.field,
    )  # fmt: skip
    interval = Reading(
        "cycles from one wgmma.m64n256k16 to the next", "cycles", form.opcode, False, "cycles", 16, 2000, 4.0,
        field="issue_interval_wgmma_m64n256k16",
    )  # fmt: skip
    return Microbenchmark(
        f"{form.name}-rate", "tensor cores", f"two warpgroups of every SM, groups of {STEPS} wgmma, one under way",
        kernel.text(), "sm_90a", (16, 80),
        lambda chip, trips: Launch(chip.sms, WARPGROUPS * WARPGROUP, form.numbers(), rows=WARPGROUPS * 4),
        lambda launch, trips: _counts(form, WARPGROUPS * launch.grid, STEPS * trips),
        lambda launch, trips, left: form.check(left[SINK], STEPS * trips),
        (rate, interval) if form.name == "wgmma-f16" else (rate,),
    )  # fmt: skip


def _latency(form: Form) -> Microbenchmark:
    trip = [
        line
        for step in range(STEPS)
        for line in (
            "wgmma.fence.sync.aligned;",
            form.line(step),
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
        )
    ]
    kernel = form.kernel(f"{form.name.replace('-', '_')}_latency", WARPGROUP, trip)

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        return form.check(left[SINK], STEPS * trips)

    reading = Reading(
        f"wgmma until its result is there, {form.types[1]}, n = {form.n}", "cycles", form.opcode, False, "cycles", 8,
        2000, per="warp", field="lat_wgmma_m64n256k16" if form.name == "wgmma-f16" else "",
    )  # fmt: skip
    return Microbenchmark(
        f"{form.name}-latency", "tensor cores", "one warpgroup waits for each wgmma", kernel.text(), "sm_90a", (16, 80),
        lambda chip, trips: Launch(1, WARPGROUP, form.numbers(), rows=4),
        lambda launch, trips: _counts(form, launch.grid, STEPS * trips), check, (reading,),
    )  # fmt: skip
