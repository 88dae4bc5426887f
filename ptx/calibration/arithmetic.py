"""Arithmetic: rate and latency of FMA in f32 and f64, of integer addition, and of the special functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.calibration.benchmark import SINK, Array, Counts, Launch, Microbenchmark, Number, Reading
from tinygpu.ptx.calibration.kernel_text import Kernel, load

# A rate needs enough warps on each of the four schedulers, and enough independent chains in each of them.
THREADS, CHAINS, ROUNDS = 512, 8, 16
STEPS = 256


@dataclass(frozen=True, slots=True)
class _Chain:
    """An instruction that is applied to its own result over and over again.

    name          of the kernels
    words         the instruction in words
    opcode        as PTX spells it
    kind          kind of its registers: f (f32) or g (f64)
    others        operands behind the chain's own; registers 30 and 31 are 1, which the assembler does not know
    counts_steps  whether it adds 1; otherwise it leaves 1 as it is
    """

    name: str
    words: str
    opcode: str
    kind: str
    others: str
    counts_steps: bool

    @property
    def label(self) -> str:
        return self.name.replace("_", "-")

    def step(self, x: str) -> str:
        return f"{self.opcode} {x}, {x}{self.others};"

    def setup(self, registers: list[str]) -> list[str]:
        if self.kind == "f":
            ones = [load("%r0", "one", "u32"), "mov.b32 %f30, %r0;", "mov.b32 %f31, %r0;"]
        else:
            ones = [load("%r0", "one", "u32"), "mov.b64 %g30, {0, %r0};", "mov.b64 %g31, {0, %r0};"]
        return [*ones, *(f"mov.f{self.bits} {x}, %{self.kind}30;" for x in registers)]

    @property
    def bits(self) -> int:
        return 32 if self.kind == "f" else 64

    @property
    def one(self) -> Number:
        """The upper 32 bits of 1."""
        return Number("one", 0x3F800000 if self.kind == "f" else 0x3FF00000)

    def finish(self, registers: list[str]) -> list[str]:
        """The sum of the chains as f32 in %r1."""
        first = registers[0]
        lines = [f"add.f{self.bits} {first}, {first}, {x};" for x in registers[1:]]
        if self.kind == "g":
            return [*lines, f"cvt.rn.f32.f64 %f0, {first};", "mov.b32 %r1, %f0;"]
        return [*lines, f"mov.b32 %r1, {first};"]

    def check(self, sink: Array, chains: int, steps: int) -> str:
        """x * 1 + 1 counts the steps, exactly; the reciprocal square root of 1 stays 1."""
        wanted = chains * (1 + steps if self.counts_steps else 1)
        found = sink.view(np.float32)
        # approximate functions may be a few units in the last place off
        exact = (found == wanted).all() if self.counts_steps else np.allclose(found, wanted, rtol=1e-5, atol=0)
        return "" if exact else f"{chains} chains of {steps} steps left {found[0]:g} and not {wanted}"

    def latency(self, reading: Reading) -> Microbenchmark:
        """One warp, one chain."""
        chain = [f"%{self.kind}1"]
        kernel = Kernel(
            name=f"{self.name}_latency",
            threads=32,
            parameters=(".u32 one",),
            setup=self.setup(chain),
            trip=[self.step(chain[0])] * STEPS,
            finish=self.finish(chain),
            result="%r1",
        )
        return Microbenchmark(
            f"{self.label}-latency", "arithmetic", f"one warp, each {self.words} needs the one before", kernel.text(),
            kernel.target, (8, 40),
            lambda chip, trips: Launch(1, 32, (self.one,)),
            lambda launch, trips: {self.opcode: STEPS * trips},
            lambda launch, trips, left: self.check(left[SINK], 1, STEPS * trips),
            (reading,),
        )  # fmt: skip

    def rate(self, reading: Reading) -> Microbenchmark:
        """Every SM, many warps, several chains in each."""
        chains = [f"%{self.kind}{i}" for i in range(CHAINS)]
        kernel = Kernel(
            name=f"{self.name}_rate",
            threads=THREADS,
            parameters=(".u32 one",),
            setup=self.setup(chains),
            trip=[self.step(x) for _ in range(ROUNDS) for x in chains],
            finish=self.finish(chains),
            result="%r1",
        )
        return Microbenchmark(
            f"{self.label}-rate", "arithmetic", f"{CHAINS} independent chains of {self.words} in each of 16 warps",
            kernel.text(), kernel.target, (8, 40),
            lambda chip, trips: Launch(chip.sms, THREADS, (self.one,), rows=THREADS // 32),
            lambda launch, trips: {self.opcode: CHAINS * ROUNDS * launch.warps * trips},
            lambda launch, trips, left: self.check(left[SINK], CHAINS, ROUNDS * trips),
            (reading,),
        )  # fmt: skip


_FMA = _Chain("fma", "FMA of f32", "fma.rn.f32", "f", ", %f30, %f31", True)
_FMA_F64 = _Chain("fma_f64", "FMA of f64", "fma.rn.f64", "g", ", %g30, %g31", True)
_SPECIAL = _Chain("special", "reciprocal square root", "rsqrt.approx.ftz.f32", "f", "", False)


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        _FMA.latency(Reading(
            "latency of FMA, f32", "cycles", _FMA.opcode, False, "cycles", 2, 40, per="warp",
            field="lat_fma_dependent",
        )),
        _FMA.rate(Reading(
            "FMA, f32", "FMA/clk/SM", _FMA.opcode, True, "cycles", 8, 512, scale=32, field="fp32_fma_per_clk_sm",
        )),
        _FMA_F64.rate(Reading(
            "FMA, f64", "FMA/clk/SM", _FMA_F64.opcode, True, "cycles", 0.5, 256, scale=32,
            field="fp64_fma_per_clk_sm",
        )),
        _SPECIAL.latency(Reading(
            "latency of a special function", "cycles", _SPECIAL.opcode, False, "cycles", 5, 100, per="warp",
            field="lat_sfu",
        )),
        _SPECIAL.rate(Reading(
            "special functions", "ops/clk/SM", _SPECIAL.opcode, True, "cycles", 2, 128, scale=32,
            field="sfu_per_clk_sm",
        )),
        *_integer_rates(),
        _clock(),
    )  # fmt: skip


def _integers(name: str, words: str, steps: tuple[str, str], reading: Reading) -> Microbenchmark:
    """Pairs (x, y) in each thread, begun at its number: x becomes the first operation of both, then y the second.

    Both results are needed, so that the assembler cannot merge two operations into one of three operands.
    """
    pairs = [(f"%r{2 * i + 1}", f"%r{2 * i + 2}") for i in range(CHAINS)]
    first, second = steps
    kernel = Kernel(
        name=name.replace("-", "_"),
        threads=THREADS,
        setup=[f"mad.lo.s32 {r}, %thread, {i + 1}, {i};" for i, r in enumerate(r for pair in pairs for r in pair)],
        trip=[
            *(f"{first} {x}, {x}, {y};" for x, y in pairs), *(f"{second} {y}, {y}, {x};" for x, y in pairs),
        ] * (ROUNDS // 2),
        finish=[f"sub.u32 %r1, %r1, {r};" for pair in pairs for r in pair if r != "%r1"],
        result="%r1",
    )  # fmt: skip
    meanings = {"add.u32": np.add, "max.u32": np.maximum, "xor.b32": np.bitwise_xor}

    def check(launch: Launch, trips: int, left: Mapping[str, Array]) -> str:
        thread = np.arange(THREADS, dtype=np.uint32)
        total = np.zeros_like(thread)
        for i in range(CHAINS):
            x, y = (thread * np.uint32(j + 1) + np.uint32(j) for j in (2 * i, 2 * i + 1))
            for _ in range(ROUNDS // 2 * trips):
                x = meanings[first](x, y)
                y = meanings[second](y, x)
            total = (x if i == 0 else total - x) - y
        wrong = np.flatnonzero(left[SINK] != np.tile(total, launch.grid))
        return f"thread {int(wrong[0])} ended with other numbers" if wrong.size else ""

    def counts(launch: Launch, trips: int) -> Counts:
        each = CHAINS * ROUNDS * launch.warps * trips
        return {first: each} if first == second else {first: each // 2, second: each // 2}

    return Microbenchmark(
        name, "arithmetic", words, kernel.text(), kernel.target, (8, 40),
        lambda chip, trips: Launch(chip.sms, THREADS, rows=THREADS // 32), counts, check, (reading,),
    )  # fmt: skip


def _integer_rates() -> tuple[Microbenchmark, Microbenchmark]:
    # Up to 11.0 assemblers turn every second addition into one on the FMA lanes; maxima and logic run on the integer
    # lanes alone, at the rate that the programming guide gives for additions too. On 12.0 additions are a unit's own.
    # Source: machine code of nvJitLink 13.5 for sm_75 to sm_120; CUDA programming guide, arithmetic instructions.
    return (
        _integers(
            "integer-rate", f"{CHAINS} pairs of integers, maximum and exclusive or by turns, in each of 16 warps",
            ("max.u32", "xor.b32"),
            Reading(
                "integer operations", "ops/clk/SM", "max.u32 + xor.b32", True, "cycles", 8, 512, scale=32,
                field="int32_add_per_clk_sm", where=lambda chip: chip.cc < 120,
            ),
        ),
        _integers(
            "addition-rate", f"{CHAINS} pairs of sums in each of 16 warps", ("add.u32", "add.u32"),
            Reading(
                "additions of integers, on all lanes that do them", "ops/clk/SM", "add.u32", True, "cycles", 8, 512,
                scale=32, field="int32_add_per_clk_sm", where=lambda chip: chip.cc >= 120,
            ),
        ),
    )  # fmt: skip


def _clock() -> Microbenchmark:
    """The clock of the SMs: how long the cycles of one warp's chain last. It is a light load, so they run at boost."""
    base = _FMA.latency(Reading("", "", _FMA.opcode, False, "cycles", 0, 1))
    reading = Reading("clock of the SMs", "MHz", "cycles", True, "seconds", 100, 5000, 1e-6, field="boost_clock_mhz")
    return Microbenchmark(
        "clock", "arithmetic", "the same chain for some milliseconds: cycles over seconds", base.ptx, base.target,
        (2000, 10000), base.plan, base.counts, base.check, (reading,),
    )  # fmt: skip
