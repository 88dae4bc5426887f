"""What is in the loop: our matmuls' machine code beside Triton's. python -m tests.benchmarks.machine_code [--listing]

For each pair of kernels with the same tile, types and depth of the pipeline: both are assembled by the same ptxas and
disassembled, and the instructions of one warp are counted per k-step (the innermost loop that multiplies, divided by
the k-steps that one turn of it holds) and per tile (what follows that loop until the next tile). Both kernels are then
emulated on a few tiles, which counts the sectors that their stores touch. Nothing is timed.

Triton's kernels are the fixtures of tests/ptx/emulator, compiled ahead of time. ptxas and nvdisasm come with
`pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm`. --listing prints the loops too.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.disassembly import NAMES, Code, Line, counted, disassemble, find_nvdisasm, version_of
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.ptxas import Ptxas, find_ptxas
from tinygpu.ptx.emulator import Report, emulate
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

sys.path.append(str(Path(__file__).parents[1] / "ptx" / "emulator"))
from triton_fixture import FOLDER, launch, load

WARPGROUP = 4
ARCHITECTURES = {"a100": "sm_80", "h100": "sm_90a", "b200": "sm_100a"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel of ours and one of Triton's for c = a @ b, with f32 sums.

    point    the other parameters of our machine, all of them
    fixture  Triton's kernel; None for ours alone
    order    how b is stored: "row" is (k, n), "col" (n, k)
    grid     Triton's, for two by two tiles
    warps    warps that multiply, in ours and in Triton's
    kind     type of a and b; c is f16
    """

    name: str
    machine: type[Machine]
    gpu: str
    tile: tuple[int, int, int]
    stages: int
    point: dict[str, Any]
    fixture: str | None
    order: str
    warps: tuple[int, int]
    grid: tuple[int, ...] = (4,)
    kind: str = "f16"


ALONE = {
    "split_k": 1, "stream_k": 0, "cluster_m": 1, "cluster_n": 1, "swizzle": 128, "swizzle_c": 128, "raster": 8, "vr": 1,
    "piece": 128, "outs": 1,
}  # fmt: skip
FRAGMENTS = {
    "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "copy_a": "cp.async", "copy_b": "cp.async", "store": "staged",
    "across_a": 4, "across_b": 8, "across_c": 8, "va": 8, "vb": 8, "vc": 8, "pad": 0, "raster": 8, "vr": 1,
}  # fmt: skip
PERSISTENT = {
    "ctas": "one", "store": "staged", "split_k": 1, "stream_k": 0, "launch_control": 0, "cluster_m": 1, "cluster_n": 1,
    "tiles": 2, "swizzle": 128, "swizzle_c": 128, "raster": 1, "vc": 8, "piece": 128, "outs": 2,
}  # fmt: skip
PAIRS = (
    Pair(
        "Blackwell", MatmulBlackwell, "b200", (128, 128, 64), 3, PERSISTENT,
        "descriptor_matmul-special128x128x64w4.sm_100", "col", (1, 1),
    ),
    Pair(
        "Blackwell", MatmulBlackwell, "b200", (128, 256, 64), 3, PERSISTENT,
        "descriptor_matmul-special128x256x64w4.sm_100", "col", (1, 1),
    ),
    Pair(
        "Blackwell, 8-bit floats", MatmulBlackwell, "b200", (128, 256, 128), 3,
        PERSISTENT, "descriptor_matmul-fp8e5special128x256x128w4.sm_100", "col",
        (1, 1), kind="e5m2",
    ),
    Pair(
        "Blackwell, pairs of CTAs", MatmulBlackwell, "b200", (128, 256, 64), 4,
        {**PERSISTENT, "ctas": "pairs", "cluster_m": 2}, None, "col", (1, 0),
    ),
    Pair(
        "Hopper, one warpgroup", MatmulHopper, "h100", (128, 128, 64), 3,
        {"schedule": "single", "store": "stmatrix", **ALONE}, "descriptor_matmul-128x128x64w4.sm_90", "col", (4, 4),
    ),
    Pair(
        "Hopper, two warpgroups", MatmulHopper, "h100", (128, 256, 64), 3,
        {"schedule": "cooperative", "store": "stmatrix", **ALONE}, "descriptor_matmul-128x256x64w8.sm_90", "col",
        (8, 8),
    ),
    Pair(
        "Hopper, roles", MatmulHopper, "h100", (128, 128, 64), 3,
        {"schedule": "cooperative", "store": "stmatrix", **ALONE}, "descriptor_matmul-special128x128x64w4.sm_90", "col",
        (8, 8),
    ),
    Pair(
        "Hopper, clusters of two", MatmulHopper, "h100", (128, 256, 64), 3,
        {"schedule": "cooperative", "store": "stmatrix", **ALONE, "cluster_m": 2}, None, "col", (8, 0),
    ),
    Pair(
        "Ampere", MatmulAmpere, "a100", (64, 64, 32), 3,
        {"warps_m": 2, "warps_n": 2, "prefetch": 0, **FRAGMENTS}, "matmul-64x64x32w4s3.sm_80", "row", (4, 4), (2, 2),
    ),
    Pair(
        "Ampere, loads ahead", MatmulAmpere, "a100", (64, 64, 32), 3,
        {"warps_m": 2, "warps_n": 2, "prefetch": 1, **FRAGMENTS}, None, "row", (4, 4), (2, 2),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel's counts, of one warp that multiplies.

    steps     k-steps in one turn of the loop
    loop      instructions of one turn
    tile      instructions between the loop and the next tile; of sums in tensor memory, those of the loop over tiles of
              the warps that take them
    producer  instructions of one turn of the loop that brings tiles, where that is another role
    sectors   of 32 bytes that stores to global memory touch, per tile; bulk stores count by their bytes
    """

    registers: int
    steps: float
    loop: tuple[Line, ...]
    tile: tuple[Line, ...]
    producer: tuple[Line, ...]
    sectors: float


def ours(pair: Pair) -> tuple[Kernel, Any]:
    """Our kernel, and the problem that it is emulated on."""
    bm, bn, bk = pair.tile
    asked: dict[str, Any] = {"majors": {"b": pair.order}, "dtypes": {"a": pair.kind, "c": "f16"}}
    problem = pair.machine.problem(m=4096, n=4096, k=4096, **asked)
    space = build_space(pair.machine, problem, device(pair.gpu))
    wanted = {"bm": bm, "bn": bn, "bk": bk, "stages": pair.stages, **pair.point}
    wanted = {name: value for name, value in wanted.items() if name in space.space.names}
    candidates = space.space.restrict(wanted)
    if candidates.size != 1:
        raise LookupError(f"{pair.name}: {candidates.size} candidates have {wanted}, and one is compared")
    point = candidates.at(0)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    # arrays begin where a sector does, as those do that Triton's kernel gets; 16 bytes are all that ours relies on
    aligns = dict.fromkeys(("a", "b", "c"), 256)
    return kernel, pair.machine.problem(m=2 * bm, n=2 * bn, k=4 * bk, aligns=aligns, **asked)


def our_report(kernel: Kernel, machine: type[Machine], problem: Any) -> Report:
    operands, scalars = make_inputs(machine, problem, "integers", 0)
    return emulate(
        kernel.ptx, grid=kernel.grid(problem, 4), block=(kernel.threads, 1, 1), cluster=kernel.cluster,
        args=arguments(kernel, problem, operands, scalars, {}), dynamic_smem=kernel.smem_bytes,
    )  # fmt: skip


def tritons_report(pair: Pair) -> Report:
    fixture = load(FOLDER / f"{pair.fixture}.ptx")
    bm, bn, bk = pair.tile
    m, n, k = 2 * bm, 2 * bn, 4 * bk
    rng = np.random.default_rng(0)
    shapes = (m, k), (n, k) if pair.order == "col" else (k, n)
    a, b = (rng.integers(-2, 3, shape).astype(fixture.dtype("a")) for shape in shapes)
    c = np.zeros((m, n), np.float16)
    tail = [m, n, k] if "CTAS" not in fixture.types else [m, n, k, 4]
    return launch(fixture, pair.grid, a, b, c, *tail)


def stored_sectors(report: Report) -> float:
    """Sectors per tile, of four."""
    counters = report.counters
    return (counters.global_store_sectors + counters.bulk_store_bytes / 32) / 4


def measured(code: Code, tile: tuple[int, int, int], warps: int, registers: int, sectors: float) -> Measured:
    loop = code.product_loop()
    lines = code.within(loop)
    # A matrix instruction of a warpgroup is issued by each of its warps.
    groups = warps / WARPGROUP if any(line.opcode.startswith(("HGMMA", "QGMMA", "IGMMA")) for line in lines) else warps
    products = sum(line.products for line in lines) * groups / np.prod(tile)
    # One instruction of tensor memory has all rows and columns of a tile, and 32 bytes along k of rows of 128.
    issued = sum(line.opcode.startswith("UTC") and line.kind == "tensor" for line in lines)
    producer, sums = code.copy_loop(), code.sums_loop()
    return Measured(
        registers, float(products) or issued / 4, lines, code.after(loop) if sums is None else code.within(sums),
        () if producer is None else code.within(producer), sectors,
    )  # fmt: skip


def measure(pair: Pair, ptxas: Ptxas, nvdisasm: Path) -> list[tuple[str, Measured]]:
    kernel, problem = ours(pair)
    assembly = ptxas.assemble(kernel.ptx, kernel.architecture)
    found = measured(
        disassemble(assembly.cubin, nvdisasm), pair.tile, pair.warps[0], assembly.registers,
        stored_sectors(our_report(kernel, pair.machine, problem)),
    )  # fmt: skip
    rows = [("tinyGPU", found)]
    if pair.fixture is not None:
        text = load(FOLDER / f"{pair.fixture}.ptx").text
        assembly = ptxas.assemble(text, ARCHITECTURES[pair.gpu])
        code = disassemble(assembly.cubin, nvdisasm)
        sectors = stored_sectors(tritons_report(pair))
        rows.append(("Triton", measured(code, pair.tile, pair.warps[1], assembly.registers, sectors)))
    return rows


def table(rows: list[tuple[str, Measured]]) -> None:
    print(f"{'':10}{'':14}{'all':>7}" + "".join(f"{name:>10}" for name in NAMES))
    for who, found in rows:
        if found.steps:
            _row(who, "per k-step", counted(found.loop), found.steps)
        if found.producer:
            _row("", "producer turn", counted(found.producer), 1)
        _row("", "after the loop", counted(found.tile), 1)
        print(
            f"{'':10}{found.registers} registers, {found.steps:g} k-steps a turn, "
            f"{found.sectors:g} sectors stored a tile"
        )


def _row(who: str, what: str, counts: Counter[str], by: float) -> None:
    cells = "".join(f"{counts[name] / by:10.4g}" for name in NAMES)
    print(f"{who:10}{what:14}{sum(counts.values()) / by:7.4g}{cells}")


def main() -> None:
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        raise SystemExit("there is no nvdisasm here: pip install nvidia-cuda-nvdisasm")
    ptxas = find_ptxas()
    triton = next(iter(FOLDER.glob("descriptor_matmul-128x128*"))).read_text().split('"triton": "')[1].split('"')[0]
    print(f"{ptxas}, nvdisasm {version_of(nvdisasm)}, Triton {triton}; instructions of one warp that multiplies")
    for pair in PAIRS:
        bm, bn, bk = pair.tile
        print(f"\n{pair.name}: {bm}x{bn}x{bk}, {pair.kind}, {pair.stages} stages")
        rows = measure(pair, ptxas, nvdisasm)
        table(rows)
        if "--listing" in sys.argv:
            for who, found in rows:
                print(f"  {who}")
                for line in found.loop:
                    print(f"    {line.address:5x} {line.kind:9} {line.opcode}")


if __name__ == "__main__":
    main()
