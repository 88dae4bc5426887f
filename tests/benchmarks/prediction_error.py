"""Error of predicted matmul times against measured ones.

    python -m tests.benchmarks.prediction_error TABLE.csv[.xz] ... [--every N]

A TABLE has the columns dtype, m, n, k and one column of microseconds per GPU and framework (a100_sxm.trt, l40s.vllm):
times of library matrix products. For every problem the shortest time predicted over an enumeration of usual library
tiles stands against the measured one, by ranges of m and as a whole. Nothing is fitted; but the tensor rate that a
device sustains is itself that of a library product of 8192 cubed. Beside it stand the error with no limit of power, so
that it shows what that rate does, and the two-constant roofline: 70 % of the tensor peak, 80 % of the datasheet's
bandwidth, plus 3 us a launch.

What is timed is a layer of an inference framework, by the published collector of these tables. In bf16 that is the
product. In fp8 and nvfp4 the layer is given A in bf16, and converts it first: in one pass with a scale that it knows
(vllm), or in two, the first of which looks for the scale (trt). These passes are launches before the product, in both
models. Scales of nvfp4's blocks, a byte for 8 bytes of A and of B, are left out in both. One
more table says what the times themselves tell of that: how much longer products of fp8 take than those with m and n
exchanged, per element of A that is converted; and how often the same product is slower in fp8 than in bf16.

The tiles of `library_products` are a stand-in for a machine's own space: any function from a Problem and a Device to
the kernels of all candidates can be passed to `errors`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.library_products import (
    LEAST_ITERATIONS,
    SPLITS,
    Enumeration,
    Problem,
    candidates,
    compulsory_bytes,
    library_kernels,
    product,
    split_sum,
)
from tests.benchmarks.measured_products import OPERANDS, columns_of, conversions, rows, table
from tinygpu.cost.demand import Demand, Phase, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, device

Floats = NDArray[np.float64]

# Passes over A before a product of fp8, by framework: the scale is found, and A is converted; or the latter alone. A
# scale that is to be found is set to 0 first, which is one more launch.
PASSES = {"trt": 2, "vllm": 1}
# Elements of A that a CTA converts: 256 threads, 8 each.
CONVERTED = 2048


def conversion_seconds(problem: Problem, gpu: Device, passes: int) -> Floats:
    """Launches that convert A from bf16 to the type of the product; a later pass finds in L2 what fits there."""
    narrow = CONVERTED * problem.bits // 8
    elements = np.asarray(problem.m * problem.k, dtype=np.int64)
    total = np.full(elements.shape, gpu.number("launch_overhead_graph_us") * 1e-6 * (passes > 1))
    for number in range(passes):
        last = number == passes - 1
        in_l2 = (number > 0) & (2 * elements <= gpu.l2_near_bytes)
        demand = Demand(
            ctas=-(-elements // CONVERTED),
            threads_per_cta=256,
            registers_per_thread=32,
            smem_bytes_per_cta=0,
            iteration=Phase(
                Work(
                    sectors_read=2 * CONVERTED // 32,
                    sectors_written=narrow // 32 if last else 0,
                    warp_instructions=8 * 40,
                    fma_flops=2 * CONVERTED,
                )
            ),
            bytes_in_flight_per_cta=2 * CONVERTED,
            dram_bytes_read=np.where(in_l2, 0, 2 * elements),
            dram_bytes_written=elements * problem.bits // 8 if last else 0,
        )
        total = total + predict(gpu, demand).seconds
    return total


def seconds(problem: Problem, gpu: Device, enumeration: Enumeration = library_kernels) -> Floats:
    """Predicted seconds of every candidate."""
    groups = [sum(predict(gpu, demand).seconds for demand in launches) for launches in enumeration(problem, gpu)]
    return np.concatenate([np.atleast_1d(group) for group in groups])


def best_seconds(problems: Sequence[Problem], gpu: Device, *, limited: bool = True) -> Floats:
    """The shortest time of the library kernels for each of many problems of one type, at once.

    limited  by power; otherwise the tensor cores run at the datasheet's rate for as long as they like
    """
    return np.concatenate([best[0 if limited else 1] for best in _best(problems, gpu)])


def _best(problems: Sequence[Problem], gpu: Device) -> Iterator[tuple[Floats, Floats]]:
    """The shortest times of some problems after others, as they are and with no limit of power."""
    for first in range(0, len(problems), CHUNK):
        part = problems[first : first + CHUNK]
        sizes = np.array([(p.m, p.n, p.k) for p in part], dtype=np.int64)
        many = Problem(*(sizes[:, axis : axis + 1] for axis in range(3)), part[0].operand)  # type: ignore[arg-type]
        deepest = Problem(1, 1, int(sizes[:, 2].max()), part[0].operand)
        whole, split = candidates(deepest, gpu, (1,)), candidates(deepest, gpu, SPLITS)
        found = predict(gpu, product(many, gpu, whole))
        best = [found.seconds.min(axis=1), (found.seconds - found.power_s).min(axis=1)]
        if len(split):
            added = predict(gpu, split_sum(many, gpu, split[:, 6])).seconds
            found = predict(gpu, product(many, gpu, split))
            deep = many.k // (split[:, 2] * split[:, 6]) >= LEAST_ITERATIONS
            for number, alone in enumerate((found.seconds, found.seconds - found.power_s)):
                best[number] = np.minimum(best[number], np.where(deep, alone + added, np.inf).min(axis=1))
        yield best[0], best[1]


# Problems that are predicted at once.
CHUNK = 128


PEAKS = {"bf16": "tflops_bf16_dense", "e4m3": "tflops_fp8_dense", "e2m1": "tflops_fp4_dense"}


def two_constant_roofline(problem: Problem, gpu: Device, passes: int = 0) -> float:
    """70 % of the tensor peak, 80 % of the datasheet's bandwidth, plus 3 us; the same for what converts A before."""
    m, n, k = problem.m, problem.n, problem.k
    peak = gpu.number(PEAKS[problem.operand]) * 1e12
    bandwidth = gpu.number("dram_bw_gbs_datasheet") * 1e9
    converted_bytes = (2 * passes + (passes > 0) * problem.bits / 8) * m * k
    before = (passes + (passes > 1)) * 3e-6 + converted_bytes / (0.8 * bandwidth)
    return before + max(2 * m * n * k / (0.7 * peak), compulsory_bytes(problem) / (0.8 * bandwidth)) + 3e-6


# Ranges of problems, in the order of the rows that are printed.
RANGES: tuple[tuple[str, Callable[[Problem], bool]], ...] = (
    ("m <= 16", lambda p: p.m <= 16),
    ("16 < m <= 128", lambda p: 16 < p.m <= 128),
    ("m > 128, one of m, n, k < 512", lambda p: p.m > 128 and min(p.m, p.n, p.k) < 512),
    ("m, n, k >= 512", lambda p: min(p.m, p.n, p.k) >= 512),
    ("all", lambda p: True),
)


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted over measured - 1, one entry per problem.

    model      the predictor's
    roofline   of the two-constant roofline
    unlimited  the predictor's, with no limit of power
    """

    model: Floats
    roofline: Floats
    unlimited: Floats | None = None

    def __str__(self) -> str:
        out = f"{len(self.model)} problems"
        for name, e in (("model", self.model), ("two constants", self.roofline)):
            low, middle, high = np.percentile(e, (5, 50, 95))
            out += f"; {name}: mean absolute error {np.abs(e).mean():.1%}, bias {e.mean():+.1%}"
            out += f" (5 %: {low:+.0%}, median {middle:+.0%}, 95 %: {high:+.0%})"
        return out

    def row(self) -> str:
        """Cells of a table."""
        e = self.model
        low, high = np.percentile(e, (5, 95))
        unlimited = e if self.unlimited is None else self.unlimited
        return (
            f"{len(e):,} | {np.abs(e).mean():.1%} | {e.mean():+.1%} | {low:+.0%} to {high:+.0%} "
            f"| {np.abs(unlimited).mean():.1%} | {np.abs(self.roofline).mean():.1%}"
        ).replace("%", " %")

    def of(self, mask: NDArray[np.bool_]) -> Errors:
        """Of some of the problems."""
        unlimited = None if self.unlimited is None else self.unlimited[mask]
        return Errors(self.model[mask], self.roofline[mask], unlimited)


def errors(
    measured: Sequence[tuple[Problem, float]],
    gpu: Device,
    enumeration: Enumeration = library_kernels,
    passes: int = 0,
) -> Errors:
    """The best candidate's predicted time against each measured one, with `passes` over A before the product."""
    problems, truth = [problem for problem, _ in measured], np.array([seconds for _, seconds in measured])
    roofline = np.array([two_constant_roofline(problem, gpu, passes) for problem in problems]) / truth - 1
    before = np.array([float(conversion_seconds(problem, gpu, passes)) for problem in problems]) if passes else 0.0
    if enumeration is not library_kernels:
        model = np.array([seconds(problem, gpu, enumeration).min() for problem in problems])
        return Errors((before + model) / truth - 1, roofline)
    found = list(_best(problems, gpu))
    limited, unlimited = (np.concatenate([best[number] for best in found]) for number in (0, 1))
    return Errors((before + limited) / truth - 1, roofline, (before + unlimited) / truth - 1)


def report(path: Path, every: int) -> Iterator[str]:
    """A table in Markdown: for each device, framework and type of a file, by ranges of sizes."""
    for column in columns_of(path):
        gpu = device(column.partition(".")[0].removesuffix("_sxm"))
        for dtype in dict.fromkeys(row["dtype"] for row in table(path)):
            if dtype not in OPERANDS or not gpu.number(PEAKS[OPERANDS[dtype]]):
                continue  # or nothing on this device multiplies it
            measured = rows(path, column, dtype=dtype)[::every]
            if not measured:
                continue
            found = errors(measured, gpu, passes=PASSES.get(column.partition(".")[2], 0) if dtype != "bfloat16" else 0)
            for name, belongs in RANGES:
                mask = np.array([belongs(problem) for problem, _ in measured])
                if mask.any():
                    yield f"| {gpu.name}, {column}, {dtype} | {name} | {found.of(mask).row()} |"


HEAD = (
    "| device, column and type | sizes | problems | mean absolute error | bias | 5 % to 95 % of the errors "
    "| no power limit | two constants |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
)
CONVERSIONS_HEAD = (
    "| column | pairs with m and n exchanged | fp8, us per million elements of A more | bf16, the same "
    "| products in both types | slower in fp8 |\n| --- | --- | --- | --- | --- | --- |"
)
SUSTAINED = (
    "The tensor rate that a device sustains is that of a large product on it, where one was measured."
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of predicted matmul times against tables of measured ones.")
    parser.add_argument("table", type=Path, nargs="+", help="CSV of measured times, as it is or compressed with xz")
    parser.add_argument("--every", type=int, default=1, help="use every n-th problem")
    chosen = parser.parse_args(arguments)
    there = [path for path in chosen.table if path.exists()]
    for path in chosen.table:
        if path not in there:
            print(f"skipped: no table of measured times at {path}")
    if there:
        print(HEAD)
    for path in there:
        for line in report(path, chosen.every):
            print(line, flush=True)
    if there:
        print(SUSTAINED)
    told = [line for path in there for line in conversions(path)]
    if told:
        print("\n".join(("", CONVERSIONS_HEAD, *told)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
