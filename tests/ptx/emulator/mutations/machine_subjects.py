"""The kernels of every shipped machine as subjects, each on a problem whose rings turn several times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from mutations.statements import entries
from mutations.subjects import Launch, Source, Subject
from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.ptx.verification.trial import draw
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# Of these tests/machines/test_synchronising.py judges every edit, structure by structure.
ELSEWHERE = ("matmul_blackwell", "matmul_blackwell_mx", "matmul_blackwell_nvfp4", "attention_blackwell")

# By machine: the device, and variants: sizes with what else a problem takes, and parameters that are fixed (the others
# are drawn). Rings turn often enough for a count that is one too small to show. A machine that is not here is taken on
# the first of DEVICES that has candidates, with 128 of every dim, once.
Variant = tuple[Mapping[str, Any], Mapping[str, Any]]
VARIANTS: Mapping[str, tuple[str, tuple[Variant, ...]]] = {
    "convolution": ("a100", (({"n": 1, "h": 6, "w": 10, "c": 16, "r": 3, "s": 2, "k": 32}, {}),)),
    "depthwise_convolution": ("a100", (({"n": 1, "h": 6, "w": 10, "c": 16, "r": 3, "s": 2}, {}),)),
    "attention_ampere": ("a100", (({"b": 1, "h": 1, "g": 2, "s": 40, "t": 300, "d": 64}, {"bn": 32, "stages": 2}),)),
    "attention_hopper": ("h100", (({"b": 1, "h": 1, "g": 2, "s": 70, "t": 400, "d": 64}, {"bn": 64, "stages": 2}),)),
    "attention_varlen_ampere": (
        "a100",
        (({"b": 2, "h": 1, "g": 1, "s": 60, "t": 400, "longest": 50, "d": 64}, {"bn": 32, "stages": 2}),),
    ),
    "attention_varlen_hopper": (
        "h100",
        (({"b": 2, "h": 1, "g": 1, "s": 90, "t": 600, "longest": 70, "d": 64}, {"bn": 64, "stages": 2}),),
    ),
    "attention_paged_prefill": (
        "a100",
        (
            (
                {"b": 2, "h": 1, "g": 1, "s": 40, "longest": 33, "listed": 12, "pages": 17, "page": 16, "d": 64},
                {"bn": 32, "stages": 2},
            ),
        ),
    ),
    "batched_matmul": ("a100", (({"batch": 2, "m": 32, "n": 48, "k": 200}, {"bm": 16, "bn": 32, "bk": 32}),)),
    "batched_matmul_hopper": (
        "h100", (({"batch": 2, "m": 128, "n": 64, "k": 200}, {"bm": 64, "bn": 32, "bk": 32, "stages": 2}),)
    ),
    "matmul_w4": ("a100", (({"m": 32, "n": 48, "k": 224, "group": 32}, {"bm": 16, "bn": 32, "bk": 32}),)),
    "grouped_matmul": ("a100", (({"m": 32, "n": 48, "k": 200, "experts": 3}, {"bm": 16, "bn": 32, "bk": 32}),)),
    "grouped_matmul_hopper": (
        "h100", (({"m": 96, "n": 64, "k": 200, "experts": 3}, {"bm": 64, "bn": 32, "bk": 32, "stages": 2}),)
    ),
    "grouped_matmul_blackwell": (
        "b200", (({"m": 160, "n": 64, "k": 200, "experts": 3}, {"bn": 32, "bk": 32, "stages": 2}),)
    ),
    "permute": (
        "a100",
        (
            (
                {"a": 2, "b": 3, "c": 2, "d": 5, "e": 33, "majors": {"x": "a.b.c.e.d"}},
                {"exchange": "ld.shared+st.shared", "warps": 2},
            ),
        ),
    ),
    "scatter_add": ("a100", (({"m": 128, "n": 128, "v": 5}, {"across": 8, "vector": 4, "step": 2}),)),
    "rotary": ("a100", (({"m": 9, "h": 3, "t": 7, "half": 20}, {"rounds": 2}),)),
    "rotary_neighbours": ("a100", (({"m": 9, "h": 3, "t": 7, "half": 20}, {"rounds": 2}),)),
    "quantise_int8": ("a100", (({"m": 9, "n": 300}, {}),)),
    "quantise_fp8": ("h100", (({"m": 9, "n": 300}, {}),)),
    "quantise_fp4": ("a100", (({"m": 9, "n": 300}, {}),)),
    "dequantise": ("a100", (({"m": 9, "n": 300}, {}),)),
    "top_k": ("a100", (({"m": 9, "n": 40, "k": 3}, {}),)),
    # rows fill a tile, so that every sum is left to memory
    "rms_norm_backward": ("a100", (({"m": 37, "n": 256}, {"rounds": 4, "across": 64, "vector": 2, "step": 2}),)),
    "layer_norm_backward": ("a100", (({"m": 37, "n": 256}, {"rounds": 4, "across": 64, "vector": 2, "step": 2}),)),
    "row_scan": ("a100", (({"m": 9, "n": 1300}, {"ahead": "tiles in shared memory", "stages": 3, "step": 1}),)),
    # more tiles of a row than a warp looks back at together
    "long_scan": ("a100", (({"m": 2, "n": 4800}, {"warps": 1, "across": 32, "vector": 4, "step": 1}),)),
    "gated_matmul": ("a100", (({"m": 32, "n": 48, "k": 200}, {"bm": 16, "bn": 32, "bk": 32}),)),
    "axpby": ("a100", (({"n": 333}, {}),)),
    "bias_relu": ("a100", (({"m": 37, "n": 101}, {}),)),
    "transpose": (
        "a100",
        tuple(({"m": 37, "n": 101}, {"exchange": way}) for way in ("shfl.sync.idx", "ld.shared+st.shared")),
    ),
    "matmul_simt": (
        "a100",
        (
            ({"m": 70, "n": 61, "k": 45}, {"bm": 32, "bn": 32, "bk": 8, "stages": 2}),
            ({"m": 70, "n": 61, "k": 45}, {"bm": 32, "bn": 32}),
        ),
    ),
    "matmul_ampere": (
        "a100",
        (
            # Thirteen steps: the last one uses the slot that the result takes over.
            ({"m": 64, "n": 64, "k": 416}, {"bm": 32, "bn": 32, "bk": 32, "stages": 3}),
            (
                {"m": 64, "n": 64, "k": 384},
                {"bm": 32, "bn": 64, "bk": 32, "warps_m": 2, "stages": 2, "store": "staged"},
            ),
        ),
    ),
    "matmul_hopper": (
        "h100",
        (
            (
                {"m": 256, "n": 256, "k": 320},
                {
                    "bm": 64, "bn": 64, "bk": 64, "stages": 2, "schedule": "single", "cluster_m": 1, "cluster_n": 1,
                    "split_k": 1, "stream_k": 0,
                },
            ),
            (
                {"m": 256, "n": 256, "k": 832},
                {
                    "bm": 128, "bn": 64, "bk": 64, "stages": 3, "schedule": "cooperative", "cluster_m": 2,
                    "cluster_n": 1, "split_k": 1, "stream_k": 0,
                },
            ),
            (
                {"m": 512, "n": 256, "k": 128},
                {
                    "bm": 64, "bn": 64, "bk": 64, "stages": 2, "schedule": "pingpong", "cluster_m": 1, "cluster_n": 2,
                    "split_k": 1, "stream_k": 0,
                },
            ),
            (
                {"m": 128, "n": 128, "k": 416},
                {
                    "bm": 64, "bn": 64, "bk": 32, "stages": 2, "schedule": "single", "cluster_m": 1, "cluster_n": 1,
                    "split_k": 3, "stream_k": 0,
                },
            ),
            (
                {"m": 128, "n": 320, "k": 224},
                {
                    "bm": 64, "bn": 64, "bk": 32, "stages": 2, "schedule": "single", "cluster_m": 1, "cluster_n": 1,
                    "split_k": 1, "stream_k": 1,
                },
            ),
        ),
    ),
    "matmul_skinny_blackwell": (
        "b200",
        tuple(
            ({"m": 13, "n": 192, "k": 416}, {"bm": 16, "bk": 32, "stages": 2, "tiles": 1, "split_k": split})
            for split in (1, 3)
        ),
    ),
    "matmul_basic_blackwell": (
        "b200",
        (({"m": 160, "n": 64, "k": 200}, {"bn": 32, "bk": 32, "stages": 2, "tiles": 1, "raster": 1, "swizzle": 64}),),
    ),
    "matmul_basic_hopper": (
        "h100",
        (({"m": 128, "n": 64, "k": 328}, {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "raster": 1, "swizzle": 64}),),
    ),
    "matmul_blackwell_consumer": (
        "rtx5090",
        (
            (
                {"m": 64, "n": 64, "k": 416},
                {"bm": 32, "bn": 32, "bk": 32, "stages": 2, "split_k": 1, "stream_k": 0, "schedule": "cooperative"},
            ),
        ),
    ),
    "matmul_mx": ("rtx5090", (({"m": 64, "n": 64, "k": 1024}, {"bm": 32, "bn": 32, "bk": 128, "stages": 2}),)),
    "matmul_nvfp4": ("rtx5090", (({"m": 64, "n": 64, "k": 512}, {"bm": 32, "bn": 32, "bk": 64, "stages": 2}),)),
    "matmul_skinny": (
        "h100",
        tuple(
            (
                {"m": 13, "n": 192, "k": 832},
                {"product": product, "bm": 16, "bn": 64, "bk": 64, "warps": 4, "stages": 2, "split_k": 1},
            )
            for product in ("mma.sync", "wgmma")
        ),
    ),
}
DEVICES = ("a100", "h100", "b200")


def machine_subjects() -> list[Subject]:
    """One subject per shipped machine and variant."""
    return [
        Subject(f"machine {name} {number}", partial(_source, name, number))
        for name in SHIPPED
        if name not in ELSEWHERE
        for number in range(len(VARIANTS[name][1]) if name in VARIANTS else 1)
    ]


def _source(name: str, number: int) -> Source:
    (machine,) = family(name).machines
    chip, variants = VARIANTS.get(name) or _first_that_fits(machine)
    sizes, fixed = variants[number]
    problem = machine.problem(**sizes)
    space = build_space(machine, problem, device(chip))
    (point,) = space.space.restrict(dict(fixed)).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    return Source(kernel.ptx, entries(kernel.ptx)[0], _maker(machine, kernel, problem))


def _first_that_fits(machine: type[Machine]) -> tuple[str, tuple[Variant, ...]]:
    following = {d.name for d in machine.following_dims()}
    sizes = dict.fromkeys((name for name in machine.dim_names() if name not in following), 128)
    problem = machine.problem(**sizes)
    chip = next(d for d in DEVICES if build_space(machine, problem, device(d)).space.count({}))
    return chip, ((sizes, {}),)


def _maker(machine: type[Machine], kernel: Kernel, problem: Problem) -> Callable[[], Launch]:
    def make() -> Launch:
        trial = draw(machine, problem, "integers", 0)
        operands = trial.operands()
        # Of a persistent kernel one cluster takes all tiles; parts of a tile, and rounds, are dealt to several.
        grid = kernel.grid(problem, 3 if kernel.dealt else max(1, kernel.slices - 1))
        options = {
            "grid": grid,
            "block": (kernel.threads, 1, 1), "cluster": kernel.cluster,
            "dynamic_smem": kernel.smem_bytes,
            "args": arguments(kernel, problem, operands, dict(trial.scalars), workspaces(kernel, problem, grid[0])),
        }  # fmt: skip
        return Launch(options, lambda: compare(trial, operands, "late").passed)

    return make
