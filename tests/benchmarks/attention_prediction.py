"""Attention as others published it, beside what is predicted: python -m tests.benchmarks.attention_prediction

FlashAttention-2 to -4 in their own configurations (tiles, warps, resident CTAs), forward, f16 (-4: bf16), not causal,
16,384 rows in all (-4: 32,768; -2 on an H20 4,096, on a B200 up to 65,536) and heads of 2,048 columns together, as
their benchmarks have it. Each is counted into a Demand by what its source does; nothing is fitted. Beside them stand
the attention machines of this project at the same tiles, where they have such a candidate, and their best ones, in
closed form and simulated.

Sources: TFLOP/s of FlashAttention-3 are the labels of assets/flash3_fp16_fwd.png in
github.com/Dao-AILab/flash-attention (the figure of arXiv 2407.08608; H100 SXM5), its tiles those of
hopper/tile_size.h, for heads of 64 an earlier choice that is commented there. Of FlashAttention-2 on the A100 the
authors say "up to 230 TFLOP/s" (crfm.stanford.edu/2023/07/17/flash2.html); its tiles are those of
csrc/flash_attn/src/flash_fwd_launch_template.h. What FlashAttention-2 reaches on an H100 is in the figure too; on an
H20 it is in issue 1310 of that repository, and on a B200, whose mma.sync it runs on, in issue 1589 for heads of 64, and
in pull request 171 of github.com/meta-pytorch/tritonbench for heads of 128.
FlashAttention-4: "up to 1613 TFLOPs/s" on a B200 (arXiv 2603.05451, abstract; bf16; the length is not said there, and
heads of 128 with 16,384 rows are taken for it); for heads of 64 a table of github.com/Dao-AILab/flash-attention, pull
request 2605, of 30 May 2026, whose utilisation is of a B200's 2,250 TFLOP/s. In the same table the vendor's cuDNN has
890 and 906 TFLOP/s. Tiles and roles are those of flash_attn/cute/flash_fwd_sm100.py. What it does of exponentials by
polynomials, and its rescaling, which is rare, are not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygpu.cost.demand import Chain, Demand, Phase, TensorPath, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_blackwell import AttentionBlackwell
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import MachineSpace, build_space

ROWS, COLUMNS = 16384, 2048  # batches x sequence, heads x columns of a head
MACHINES: Mapping[TensorPath, type[Machine]] = {
    "mma.sync": AttentionAmpere, "wgmma": AttentionHopper, "tcgen05": AttentionBlackwell,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """One kernel, and the TFLOP/s that its authors state.

    d        columns of a head
    length   of queries and keys
    tile     rows of queries and of keys
    warps    that multiply
    path     mma.sync, whose warps read every operand from shared memory themselves, wgmma or tcgen05
    point    the same tiles as a candidate of our machine
    rows     of queries in all
    """

    name: str
    gpu: str
    d: int
    length: int
    tile: tuple[int, int]
    warps: int
    path: TensorPath
    tflops: float
    point: Mapping[str, int | str]
    rows: int = ROWS

    @property
    def sizes(self) -> dict[str, int]:
        batches, heads = self.rows // self.length, COLUMNS // self.d
        return {"b": batches, "h": heads, "g": 1, "s": self.length, "t": self.length, "d": self.d}

    @property
    def ctas(self) -> int:
        """Tiles of queries: each head of each batch has its own, of which the last may reach beyond it."""
        return self.rows // self.length * (COLUMNS // self.d) * -(-self.length // self.tile[0])

    @property
    def flops(self) -> float:
        return 4.0 * self.rows * self.length * COLUMNS

    def demand(self) -> Demand:
        """What the kernel asks for.

        A score takes an fma (scale, and less the largest), an exponential, an addition to the sum, a comparison, and
        half a conversion of two; outputs are scaled once for each tile of keys. Each of the four lanes that share a row
        has its largest score from the others by two shuffles and comparisons, the exponential of its change, and four
        more operations on it and on the sum (softmax.h of both: sums are exchanged at the end).
        """
        if self.path == "tcgen05":
            return self._in_tensor_memory()
        (bm, bn), d = self.tile, self.d
        wgmma = self.path == "wgmma"
        scores, outputs, rows = bm * bn, bm * d, 4 * bm
        brought = 2 * bn * d * 2
        products = 4 * scores * d
        if wgmma:
            # each warpgroup reads keys and values, and its own queries; the weights are in its registers
            read = self.warps // 4 * brought + bm * d * 2
            issued = products // (2 * 64 * 128 * 16) * 4
            chain = Chain()  # two products are under way in turn, so that what is waited for is hidden
        else:
            read = self.warps * brought + bm * d * 2
            issued = products // (2 * 16 * 8 * 16) + read // 512
            chain = Chain(barriers=2, smem_loads=4)
        stages = 2 if wgmma else 1
        return Demand(
            ctas=self.ctas,
            threads_per_cta=32 * (self.warps + 4 * wgmma),
            multiplying_warps=self.warps,
            # handed out again when the roles begin: as many as there are
            registers_per_thread=65536 // (32 * (self.warps + 4)) // 8 * 8 if wgmma else 255,
            smem_bytes_per_cta=bm * d * 2 + stages * brought,
            iterations=-(-self.length // bn),
            iteration=Phase(
                Work(
                    tensor_flops=products,
                    fma_flops=2 * (2 * scores + outputs + 4 * rows),
                    alu_ops=scores + scores // 2 + 2 * rows,
                    sfu_ops=scores + rows,
                    warp_instructions=(4 * scores + scores // 2 + outputs + 9 * rows) // 32 + issued + 16 * self.warps,
                    smem_load_wavefronts=read // 128,
                    l1_wavefronts=2 * rows // 32,
                    smem_store_wavefronts=brought // 128,
                    sectors_read=brought // 32,
                ),
                chain,
            ),
            prologue=Phase(Work(sectors_read=bm * d * 2 // 32, warp_instructions=500), Chain(global_loads=1)),
            epilogue=Phase(Work(sectors_written=bm * d * 2 // 32, warp_instructions=2 * outputs // 32)),
            prefetch_iterations=1,
            bytes_in_flight_per_cta=stages * brought,
            held=int(wgmma),
            dram_bytes_read=3 * 2 * self.rows * COLUMNS,
            dram_bytes_written=2 * self.rows * COLUMNS,
            useful_tensor_flops=self.flops,
            tensor_path=self.path,
        )

    def _in_tensor_memory(self) -> Demand:
        """Of a kernel whose one thread multiplies two tiles of 128 queries each, which two warpgroups weigh.

        A score takes half a comparison of three, half an fma and half an addition (two at a time), an exponential, and
        half a conversion; all scores of a row are compared before the first exponential.
        """
        (bm, bn), d = self.tile, self.d
        scores, brought = bm * bn, 2 * bn * d * 2
        compared = Work(alu_ops=scores // 4, warp_instructions=scores // 128)
        weighed = Work(
            fma_flops=2 * scores, sfu_ops=scores // 2, alu_ops=scores // 4,
            warp_instructions=(scores // 2 + 3 * scores // 4) // 32,
        )  # fmt: skip
        moved = Work(
            tensor_flops=4 * scores * d,
            smem_load_wavefronts=(2 * brought + bm * d * 2) // 128,
            smem_store_wavefronts=brought // 128,
            sectors_read=brought // 32,
        )
        return Demand(
            ctas=self.ctas,
            threads_per_cta=512,
            multiplying_warps=1,
            registers_per_thread=128,
            smem_bytes_per_cta=bm * d * 2 + 3 * brought // 2,
            tmem_bytes_per_cta=512 * 512,
            iterations=-(-self.length // bn),
            iteration=Phase(moved + 2 * compared + 2 * weighed),
            prologue=Phase(Work(sectors_read=bm * d * 2 // 32, warp_instructions=500), Chain(global_loads=1)),
            epilogue=Phase(Work(sectors_written=bm * d * 2 // 32, warp_instructions=2 * bm * d // 32)),
            prefetch_iterations=1,
            bytes_in_flight_per_cta=3 * brought // 2,
            held=1,
            persistent=1,
            circulating=2,
            rows=((Phase(compared, Chain(barriers=2, smem_loads=1)), Phase(weighed, Chain(smem_loads=1))),) * 2,
            dram_bytes_read=3 * 2 * self.rows * COLUMNS,
            dram_bytes_written=2 * self.rows * COLUMNS,
            useful_tensor_flops=self.flops,
            tensor_path=self.path,
        )

    def predicted(self) -> float:
        """TFLOP/s."""
        return self.flops / float(predict(device(self.gpu), self.demand()).seconds) * 1e-12


def hopper(d: int, length: int, tile: tuple[int, int], tflops: float) -> Published:
    point = {
        "groups": tile[0] // 64, "overlapped": 1, "weights_in": "registers", "bn": tile[1], "stages": 2, "columns": d,
        "swizzle": 128,
    }  # fmt: skip
    return Published("FlashAttention-3", "h100", d, length, tile, tile[0] // 16, "wgmma", tflops, point)


def ampere(gpu: str, d: int, length: int, bn: int, tflops: float, rows: int = ROWS) -> Published:
    point = {
        "warps": 4, "rows": 32, "bn": bn, "waits": "for each", "stages": 1, "vector": 8, "across": min(d // 8, 16),
    }  # fmt: skip
    return Published("FlashAttention-2", gpu, d, length, (128, bn), 4, "mma.sync", tflops, point, rows)


def blackwell(d: int, length: int, tflops: float) -> Published:
    point = {
        "groups": 2, "corrects": "who weighs", "scaled": "every round", "powers": "ex2", "issued": "values first",
        "bn": 128, "stages": 2, "piece": 32, "columns": d, "swizzle": 128,
    }  # fmt: skip
    return Published("FlashAttention-4", "b200", d, length, (256, 128), 4, "tcgen05", tflops, point, 2 * ROWS)


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
    ampere("h20", 64, 2048, 128, 81.8, 4096),
    ampere("h20", 128, 2048, 64, 83.7, 4096),
    ampere("b200", 64, 16384, 128, 379),
    ampere("b200", 128, 8192, 64, 362, 4 * ROWS),
    blackwell(64, 4096, 827),
    blackwell(64, 16384, 878),
    blackwell(128, 16384, 1613),
)


def space_of(of: Published) -> MachineSpace:
    """Of our machine that multiplies by the same instruction."""
    machine = MACHINES[of.path]
    kinds: dict[str, Any] = {"dtypes": {"q": "bf16"}} if of.path == "tcgen05" else {}
    return build_space(machine, machine.problem(**of.sizes, **kinds), device(of.gpu))


def alike(of: Published, space: MachineSpace) -> Mapping[str, int | str]:
    """Its point there, under the widest swizzle that holds its rows."""
    at = dict(of.point)
    swizzled = [at] if of.path == "mma.sync" else [{**at, "swizzle": s} for s in (128, 64)]
    found = next((point for point in swizzled if point in space.space), None)
    if found is None:
        raise ValueError(f"{of.name} for heads of {of.d} on {of.gpu} is no point of {space.machine.__name__}: {at}")
    return found


def ours(of: Published) -> str:
    """Our machine at the published tiles, and its best candidate: TFLOP/s in closed form and simulated."""
    space = space_of(of)
    objective = PredictedTime(space)

    def both(point: Mapping[str, int | str]) -> str:
        closed = of.flops / float(objective.prediction(dict(point)).seconds) * 1e-12
        simulated = of.flops / Simulator(space).simulate(dict(point)).seconds * 1e-12
        return f"{closed:.0f}, {simulated:.0f}"

    best = minimize(space.space, objective, strategy="exhaustive").best
    named = "none" if best is None else " ".join(f"{n}={v}" for n, v in best.items())
    return f"{both(alike(of, space))} | {both(best) if best else ''} | {named}"


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
