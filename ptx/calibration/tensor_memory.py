"""tcgen05.mma: rate and latency of each kind, 128 x 256 in tensor memory, one CTA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Counts, Launch, Microbenchmark, Number, Reading
from tinygpu.ptx.calibration.kernel_text import Kernel, load

M, N, SPAN_BYTES, STEP_BYTES = 128, 256, 128, 32
STEPS = SPAN_BYTES // STEP_BYTES
# In each half of a trip; one half is under way while the other is issued.
HALF = 4 * STEPS
# Both operands are the same rows of shared memory.
ROWS = N
# PTX ISA, shared memory descriptor of tcgen05: its constant, 128 bytes of swizzle, 1,024 bytes from group to group.
_DESCRIPTOR = (1 << 46) | (2 << 61) | (1024 >> 4 << 32)
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"


@dataclass(frozen=True, slots=True)
class Form:
    """One tcgen05.mma with operands in rows of 128 bytes of shared memory.

    name         of the microbenchmarks
    kind, types  `.kind`, and accumulator and operands in words
    k            of the shape; a step is 32 bytes of each row
    codes        of accumulator and operands in the instruction descriptor
    word         32 bits of the operands, whose elements are all alike
    added        what one mma adds to every element
    target       the first that has it, and the `.version`
    field        the device's figure of its rate
    """

    name: str
    kind: str
    types: tuple[str, str]
    k: int
    codes: tuple[int, int]
    word: int
    added: int
    target: str
    version: str
    field: str

    @property
    def opcode(self) -> str:
        return f"tcgen05.mma.cta_group::1.kind::{self.kind}"

    @property
    def instruction_descriptor(self) -> int:
        """PTX ISA, instruction descriptor: types of D, A and B, N / 8 and M / 16; operands along k."""
        accumulator, operand = self.codes
        return accumulator << 4 | operand << 7 | operand << 10 | N >> 3 << 17 | M >> 4 << 24

    def line(self, step: int, accumulate: str) -> str:
        return f"@%p0 {self.opcode} [%r9], %d{step}, %d{step}, %r8, {accumulate};"

    def setup(self) -> list[str]:
        """Tensor memory, operands, descriptors, and one mma that begins the sums; %p0 is the lane that issues."""
        lines = [
            load("%r1", "word", "u32"), "mov.u32 %r3, smem;", "shl.b32 %r4, %thread, 4;", "add.s32 %r4, %r3, %r4;",
            f"add.s32 %r5, %r3, {ROWS * SPAN_BYTES};", "FILL:", "st.shared.v4.b32 [%r4], {%r1, %r1, %r1, %r1};",
            "add.s32 %r4, %r4, 512;", "setp.lt.u32 %p1, %r4, %r5;", "@%p1 bra FILL;",
            "mov.u32 %r6, bars;", "elect.sync _|%p0, 0xffffffff;",
            "@%p0 mbarrier.init.shared.b64 [%r6], 1;", "@%p0 mbarrier.init.shared.b64 [%r6+8], 1;",
            "@%p0 fence.mbarrier_init.release.cluster;",
            f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6+16], {N};",
            "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
            "fence.proxy.async.shared::cta;", "bar.warp.sync 0xffffffff;",
            "ld.shared.b32 %r9, [%r6+16];", f"mov.u32 %r8, {self.instruction_descriptor};",
            "shr.u32 %r7, %r3, 4;", "cvt.u64.u32 %d0, %r7;", f"or.b64 %d0, %d0, {_DESCRIPTOR};",
            *(f"add.s64 %d{step}, %d0, {step * STEP_BYTES >> 4};" for step in range(1, STEPS)),
            # false: overwrite what is there; true: add to it
            "setp.eq.u32 %p2, %r3, 0xffffffff;", "setp.ne.u32 %p3, %r3, 0xffffffff;", "mov.u32 %r10, 0;",
            self.line(0, "%p2"),
        ]  # fmt: skip
        return lines

    def finish(self) -> list[str]:
        """The first column of each lane; tensor memory is given back."""
        return [
            "tcgen05.fence::after_thread_sync;", "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r11}, [%r9];",
            "tcgen05.wait::ld.sync.aligned;",
            # a sum of f16 is the lower half of its column; nobody writes the upper one
            *(["and.b32 %r11, %r11, 0xffff;"] if self.types[0] == "f16" else []),
            f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, {N};",
        ]  # fmt: skip

    def check(self, sink: Array, steps: int) -> str:
        """Every mma adds the same to every element."""
        total = steps * self.added
        accumulator = self.types[0]
        if accumulator == "s32":
            wanted = total
        elif accumulator == "f16":
            wanted = int(np.float16(total).view(np.uint16))
        else:
            wanted = int(np.float32(total).view(np.uint32))
        return "" if (sink == wanted).all() else f"sums of {steps} products left {int(sink[0]):#x} and not {wanted:#x}"

    def kernel(self, name: str, setup: list[str], trip: list[str], finish: list[str]) -> Kernel:
        return Kernel(
            name=name, threads=32, target=self.target, version=self.version, parameters=(".u32 word",),
            smem=(
                f".shared .align 1024 .b8 smem[{ROWS * SPAN_BYTES}];", ".shared .align 8 .b8 bars[32];",
            ),
            setup=setup, trip=trip, finish=finish, result="%r11",
        )  # fmt: skip

    def counts(self, launch: Launch, executed: int) -> Counts:
        """Beside the mma that begins the sums."""
        mmas = launch.grid * (executed + 1)
        return {self.opcode: mmas, "tcgen05_operations": 2 * M * N * self.k * mmas}


_100A, _100F = ("sm_100a", "8.6"), ("sm_100f", "8.8")
# PTX ISA, tcgen05.mma: kinds, types and codes; each was assembled for its target.
FORMS: tuple[Form, ...] = (
    Form("tcgen05-f16", "f16", ("f32", "f16"), 16, (1, 0), 0x34003400, 1, *_100F, "tensor_f16_fp32acc_flop_per_clk_sm"),
    Form("tcgen05-f16-f16", "f16", ("f16", "f16"), 16, (0, 0), 0x34003400, 1, *_100F,
         "tensor_f16_fp16acc_flop_per_clk_sm"),
    Form("tcgen05-bf16", "f16", ("f32", "bf16"), 16, (1, 1), 0x3E803E80, 1, *_100F, "tensor_bf16_flop_per_clk_sm"),
    Form("tcgen05-tf32", "tf32", ("f32", "tf32"), 8, (1, 2), 0x3F000000, 2, *_100F, "tensor_tf32_flop_per_clk_sm"),
    Form("tcgen05-fp8", "f8f6f4", ("f32", "e4m3"), 32, (1, 0), 0x28282828, 2, *_100F,
         "tensor_fp8_fp32acc_flop_per_clk_sm"),
    Form("tcgen05-s8", "i8", ("s32", "s8"), 32, (2, 1), 0x01010101, 32, *_100A, "tensor_int8_op_per_clk_sm"),
)  # fmt: skip


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (*(_rate(form) for form in FORMS), _latency(FORMS[0]))


def _wait(label: str, barrier: str, parity: str) -> list[str]:
    return [
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 %p1, [{barrier}], {parity};",
        f"@!%p1 bra {label};",
    ]


def _rate(form: Form) -> Microbenchmark:
    issue = [form.line(step % STEPS, "%p3") for step in range(HALF)]
    trip = [
        *issue, f"@%p0 {COMMIT} [%r6];", *_wait("FIRST", "%r6+8", "%r10"),
        *issue, f"@%p0 {COMMIT} [%r6+8];", *_wait("SECOND", "%r6", "%r10"),
        "xor.b32 %r10, %r10, 1;",
    ]  # fmt: skip
    kernel = form.kernel(
        f"{form.name.replace('-', '_')}_rate",
        [*form.setup(), f"@%p0 {COMMIT} [%r6+8];"],
        trip,
        [*_wait("LAST", "%r6+8", "%r10"), *form.finish()],
    )
    unit = "OP/clk/SM" if form.types[0] == "s32" else "FLOP/clk/SM"
    rate = Reading(
        f"tcgen05.mma, {form.types[1]} in {form.types[0]}, 128 x 256", unit, "tcgen05_operations", True, "cycles", 64,
        100_000, field=form.field,
    )  # fmt: skip
    interval = Reading(
        "cycles from one tcgen05.mma of 128 x 256 to the next", "cycles", form.opcode, False, "cycles", 16, 2000,
        field="issue_interval_tcgen05_m128n256",
    )  # fmt: skip
    return Microbenchmark(
        f"{form.name}-rate", "tensor cores", f"one thread of every SM issues, up to {2 * HALF} under way",
        kernel.text(), form.target, (8, 40), lambda chip, trips: Launch(chip.sms, 32, (Number("word", form.word),)),
        lambda launch, trips: form.counts(launch, 2 * HALF * trips),
        lambda launch, trips, left: form.check(left[SINK], 2 * HALF * trips + 1),
        (rate, interval) if form.name == "tcgen05-f16" else (rate,),
    )  # fmt: skip


def _latency(form: Form) -> Microbenchmark:
    trip = [
        form.line(0, "%p3"), f"@%p0 {COMMIT} [%r6];", *_wait("DONE", "%r6", "%r10"), "xor.b32 %r10, %r10, 1;",
    ]  # fmt: skip
    kernel = form.kernel(f"{form.name.replace('-', '_')}_latency", form.setup(), trip, form.finish())
    return Microbenchmark(
        f"{form.name}-latency", "tensor cores", "one thread issues, commits, and waits", kernel.text(), form.target,
        (32, 160), lambda chip, trips: Launch(1, 32, (Number("word", form.word),)),
        lambda launch, trips: form.counts(launch, trips),
        lambda launch, trips, left: form.check(left[SINK], trips + 1),
        (Reading(
            f"tcgen05.mma until its result is there, {form.types[1]}, 128 x 256", "cycles", form.opcode, False,
            "cycles", 16, 3000, per="warp",
        ),),
    )  # fmt: skip
