"""Attention as others published it, beside what is predicted: python -m tests.benchmarks.attention_prediction

FlashAttention-2 and -3 in their own configurations (tiles, warps, resident CTAs), forward, f16, not causal, 16,384 rows
in all and heads of 2,048 columns together, as their benchmarks have it. Each is counted into a Demand by what its
source does; nothing is fitted. Beside them stand the attention machines of this project at the same tiles, where they
have such a candidate, and their best ones, in closed form and simulated.

Sources: TFLOP/s of FlashAttention-3 are the labels of assets/flash3_fp16_fwd.png in
github.com/Dao-AILab/flash-attention (the figure of arXiv 2407.08608; H100 SXM5), its tiles those of
hopper/tile_size.h, for heads of 64 an earlier choice that is commented there. Of FlashAttention-2 on the A100 the
authors say "up to 230 TFLOP/s" (crfm.stanford.edu/2023/07/17/flash2.html); its tiles are those of
csrc/flash_attn/src/flash_fwd_launch_template.h. What FlashAttention-2 reaches on an H100 is in the figure too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import build_space

ROWS, COLUMNS = 16384, 2048  # batches x sequence, heads x columns of a head


@dataclass(frozen=True, slots=True)
class Published:
    """One kernel, and the TFLOP/s that its authors state.

    d        columns of a head
    length   of queries and keys
    tile     rows of queries and of keys
    warps    that multiply
    wgmma    or mma.sync, whose warps read every operand from shared memory themselves
    point    the same tiles as a candidate of our machine
    """

    name: str
    gpu: str
    d: int
    length: int
    tile: tuple[int, int]
    warps: int
    wgmma: bool
    tflops: float
    point: Mapping[str, int | str]

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "b": ROWS // self.length, "h": COLUMNS // self.d, "g": 1, "s": self.length, "t": self.length, "d": self.d,
        }  # fmt: skip

    @property
    def flops(self) -> float:
        return 4.0 * ROWS * self.length * COLUMNS

    def demand(self) -> Demand:
        """What the kernel asks for.

        A score takes an fma (scale, and less the largest), an exponential, an addition to the sum, a comparison, and
        half a conversion of two; outputs are scaled once for each tile of keys.
        """
        (bm, bn), d = self.tile, self.d
        scores, outputs = bm * bn, bm * d
        brought = 2 * bn * d * 2
        products = 4 * scores * d
        if self.wgmma:
            # each warpgroup reads keys and values, and its own queries; the weights are in its registers
            read = self.warps // 4 * brought + bm * d * 2
            issued = products // (2 * 64 * 128 * 16) * 4
            chain = Chain()  # two products are under way in turn, so that what is waited for is hidden
        else:
            read = self.warps * brought + bm * d * 2
            issued = products // (2 * 16 * 8 * 16) + read // 512
            chain = Chain(barriers=2, smem_loads=4)
        stages = 2 if self.wgmma else 1
        return Demand(
            ctas=ROWS * COLUMNS // d // bm,
            threads_per_cta=32 * (self.warps + 4 * self.wgmma),
            multiplying_warps=self.warps,
            # handed out again when the roles begin: as many as there are
            registers_per_thread=65536 // (32 * (self.warps + 4)) // 8 * 8 if self.wgmma else 255,
            smem_bytes_per_cta=bm * d * 2 + stages * brought,
            iterations=-(-self.length // bn),
            iteration=Phase(
                Work(
                    tensor_flops=products,
                    fma_flops=2 * (2 * scores + outputs),
                    alu_ops=scores + scores // 2,
                    sfu_ops=scores,
                    warp_instructions=(4 * scores + scores // 2 + outputs) // 32 + issued + 16 * self.warps,
                    smem_load_wavefronts=read // 128,
                    smem_store_wavefronts=brought // 128,
                    sectors_read=brought // 32,
                ),
                chain,
            ),
            prologue=Phase(Work(sectors_read=bm * d * 2 // 32, warp_instructions=500), Chain(global_loads=1)),
            epilogue=Phase(Work(sectors_written=bm * d * 2 // 32, warp_instructions=2 * outputs // 32)),
            prefetch_iterations=1,
            bytes_in_flight_per_cta=stages * brought,
            held=int(self.wgmma),
            dram_bytes_read=3 * 2 * ROWS * COLUMNS,
            dram_bytes_written=2 * ROWS * COLUMNS,
            useful_tensor_flops=self.flops,
            tensor_path="wgmma" if self.wgmma else "mma.sync",
        )

    def predicted(self) -> float:
        """TFLOP/s."""
        return self.flops / float(predict(device(self.gpu), self.demand()).seconds) * 1e-12


def hopper(d: int, length: int, tile: tuple[int, int], tflops: float) -> Published:
    point = {"groups": tile[0] // 64, "overlapped": 1, "bn": tile[1], "stages": 2, "columns": d, "swizzle": 128}
    return Published("FlashAttention-3", "h100", d, length, tile, tile[0] // 16, True, tflops, point)


def ampere(gpu: str, d: int, length: int, bn: int, tflops: float) -> Published:
    point = {"warps": 4, "rows": 32, "bn": bn, "stages": 1, "vector": 8, "across": min(d // 8, 16)}
    return Published("FlashAttention-2", gpu, d, length, (128, bn), 4, False, tflops, point)


PUBLISHED = (
    hopper(64, 16384, (192, 128), 497),
    hopper(128, 16384, (128, 176), 648),
    hopper(256, 16384, (128, 80), 756),
    hopper(64, 4096, (192, 128), 476),
    hopper(128, 4096, (128, 176), 638),
    hopper(256, 4096, (128, 80), 736),
    ampere("a100", 128, 16384, 64, 230),
    ampere("h100", 64, 16384, 128, 324),
    ampere("h100", 128, 16384, 64, 370),
)


def ours(of: Published) -> str:
    """Our machine at the published tiles, and its best candidate: TFLOP/s in closed form and simulated."""
    machine: type[Machine] = AttentionHopper if of.wgmma else AttentionAmpere
    space = build_space(machine, machine.problem(**of.sizes), device(of.gpu))
    objective = PredictedTime(space)

    def both(point: Mapping[str, int | str]) -> str:
        closed = of.flops / float(objective.prediction(dict(point)).seconds) * 1e-12
        simulated = of.flops / Simulator(space).simulate(dict(point)).seconds * 1e-12
        return f"{closed:.0f}, {simulated:.0f}"

    at = dict(of.point)
    alike = [p for p in ([{**at, "swizzle": s} for s in (128, 64)] if of.wgmma else [at]) if p in space.space]
    best = minimize(space.space, objective, strategy="exhaustive").best
    named = "none" if best is None else " ".join(f"{n}={v}" for n, v in best.items())
    return f"{both(alike[0]) if alike else 'not in the space'} | {both(best) if best else ''} | {named}"


HEAD = (
    "| kernel | GPU | head | length | tile | published | predicted | off | our machine there | our best | it is |\n"
    "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |"
)


def main() -> int:
    print(HEAD)
    for p in PUBLISHED:
        found = p.predicted()
        off = f"{100 * (found / p.tflops - 1):+.1f} %"
        tile = f"{p.tile[0]} x {p.tile[1]}"
        cells = (p.name, p.gpu, str(p.d), f"{p.length:,}", tile, f"{p.tflops:.0f}", f"{found:.0f}", off)
        print(f"| {' | '.join(cells)} | {ours(p)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
