"""Times of the hot paths, side by side in one run: python -m tests.benchmarks.hot_paths

For a 256 x 256 x 256 f16 product of `matmul_ampere`: building the space, predicting all of it, filling in and lowering
one candidate, assembling it, running one CTA of it (its text read afresh, and prepared), and verifying it, also as the
kernel of a product of 4096 x 4096 x 4096 with CTAs of the real problem. Machines are noisy, so each line also gives its
time as a multiple of the assembler's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tinygpu.devices import device
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import PreparedKernel, emulate, prepare
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments
from tinygpu.ptx.verification.verify import verify
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

T = TypeVar("T")


def least(repeats: int, call: Callable[[], T]) -> tuple[float, T]:
    """Least CPU seconds of some calls, and the last result."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        result = call()
        best = min(best, time.process_time() - begun)
    return best, result


def main() -> None:
    gpu = device("a100")
    problem = MatmulAmpere.problem(m=256, n=256, k=256)
    space = build_space(MatmulAmpere, problem, gpu)
    build_s, size = least(3, lambda: build_space(MatmulAmpere, problem, gpu).space.size)
    predict_s, _ = least(2, lambda: minimize(space.space, PredictedTime(space)))
    tile = {"bm": 128, "bn": 128, "bk": 32, "warps_m": 2, "warps_n": 2}
    point = space.space.restrict({**tile, "stages": 4, "store": "staged"}).at(0)
    cache = SolverCache()
    build(space.program(point), problem, point, cache)
    lower_s, built = least(5, lambda: build(space.program(point), problem, point, cache))
    assemble_s, _ = least(5, lambda: assemble(built.kernel.ptx, "sm_80"))
    verify_s, result = least(3, lambda: verify(built.kernel, MatmulAmpere, problem, derived=problem))
    large = MatmulAmpere.problem(m=4096, n=4096, k=4096)
    deep_s, deep = least(1, lambda: verify(built.kernel, MatmulAmpere, large, thorough=True))
    operands, scalars = make_inputs(MatmulAmpere, problem, "integers", 0)

    def launch(kernel: str | PreparedKernel) -> None:
        emulate(
            kernel, grid=built.kernel.grid(problem), block=(built.kernel.threads, 1, 1), ctas=[0],
            args=arguments(built.kernel, problem, operands, scalars), dynamic_smem=built.kernel.smem_bytes,
        )  # fmt: skip

    prepared = prepare(built.kernel.ptx)
    text_s, _ = least(5, lambda: launch(built.kernel.ptx))
    prepared_s, _ = least(5, lambda: launch(prepared))
    if not result.passed or not deep.passed or result.counters is None:
        raise SystemExit(f"wrong: {result}")
    threads = len(result.checks) * result.counters.thread_instructions
    rows = (
        (f"space of {size:,} candidates", build_s, f"{space.space.raw_size / build_s:.3g} raw points/s"),
        ("prediction of all of them", predict_s, f"{size / predict_s:,.0f} candidates/s"),
        ("fill in, solve (cached), lower", lower_s, f"{len(built.kernel.ptx) / lower_s / 1e6:.2f} MB of PTX/s"),
        ("assemble", assemble_s, ""),
        ("one CTA, from the text", text_s, ""),
        ("one CTA, prepared", prepared_s, f"{text_s / prepared_s:.2f} x as fast"),
        (
            f"verify 256^3, {len(result.checks)} runs",
            verify_s,
            f"{threads / verify_s / 1e6:.1f} M thread-instructions/s",
        ),
        (f"verify 4096^3, {len(deep.checks)} runs", deep_s, ""),
    )
    for name, seconds, rate in rows:
        print(f"{name:36} {seconds * 1e3:9.1f} ms  {seconds / assemble_s:7.2f} x assemble  {rate}")


if __name__ == "__main__":
    main()
