"""Times of others, published with device, sizes and type, and what is predicted of our best candidate for the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.benchmarks.memory_figures import figures, posed, shipped
from tinygpu.devices import device
from tinygpu.language.problem import Problem

LIGER = (
    "https://github.com/linkedin/Liger-Kernel/blob/ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c/benchmark/data/"
    "all_benchmark_data.csv"
)
CUB = "https://github.com/yencal/gpu-scan-optimization"


@dataclass(frozen=True, slots=True)
class Published:
    """One published time.

    who     the library, with its version where the source says it
    us      the median, microseconds
    gpu     the device as the source names it, and our profile of it
    """

    machine: str
    sizes: Mapping[str, int]
    who: str
    us: float
    gpu: tuple[str, str]
    source: str
    types: Mapping[str, str] = field(default_factory=dict)


A100, H100 = ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100")


def of_liger(
    machine: str, m: int, gpu: tuple[str, str], who: str, us: Mapping[int, float], kind: str
) -> list[Published]:
    """Times of rows of many lengths: length -> us."""
    return [Published(machine, {"m": m, "n": n}, who, t, gpu, LIGER, {"x": kind}) for n, t in us.items()]


PUBLISHED: tuple[Published, ...] = (
    *of_liger(
        "layer_norm", 4096, A100, "Liger Kernel 0.2.1",
        {1024: 30.27, 2048: 49.92, 4096: 88.16, 8192: 165.22, 16384: 322.30}, "f32",
    ),
    *of_liger(
        "layer_norm", 4096, H100, "Liger Kernel 0.6.0",
        {1024: 18.85, 2048: 29.15, 4096: 51.04, 8192: 94.75, 16384: 184.77}, "f32",
    ),
    *of_liger(
        "rms_norm", 2048, A100, "Liger Kernel 0.2.1",
        {1024: 13.60, 2048: 20.00, 4096: 31.07, 8192: 51.74, 16384: 95.26, 32768: 182.24}, "bf16",
    ),
    *of_liger(
        "rms_norm", 4096, H100, "Liger Kernel 0.8.0",
        {1024: 12.16, 2048: 17.57, 4096: 29.18, 8192: 50.91, 16384: 95.01}, "bf16",
    ),
    *of_liger(
        "rms_norm", 4096, H100, "PyTorch", {1024: 12.77, 2048: 19.04, 4096: 32.48, 8192: 74.50, 16384: 149.25}, "bf16",
    ),
    Published("embedding", {"m": 16384, "n": 4096, "v": 32768}, "Liger Kernel 0.2.1", 304.61, A100, LIGER),
    Published("long_scan", {"m": 1, "n": 1 << 30}, "CUB DeviceScan", 3470.0, ("H100", "h100"), CUB, {"x": "s32"}),
)  # fmt: skip


def problem_of(one: Published) -> Problem:
    machine = shipped(one.machine)
    if not one.types:
        return posed(machine, one.sizes)
    return machine.problem(**one.sizes, dtypes=one.types)


HEAD = (
    "| machine | sizes, type | device | who | published us | predicted us | published over predicted | share of the "
    "roofline, predicted |\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"
)


def row(one: Published) -> str:
    """Published beside predicted, in Markdown."""
    problem = problem_of(one)
    found = figures(shipped(one.machine), problem, device(one.gpu[1]))
    if found is None:
        raise LookupError(f"{one.machine} has no candidate for {problem} on {one.gpu[1]}")
    predicted = float(found.prediction.seconds) * 1e6
    sizes = ", ".join(f"{name}={size}" for name, size in one.sizes.items())
    return (
        f"| `{one.machine}` | {sizes}, {problem.operands[0].dtype.name} | {one.gpu[0]} | [{one.who}]({one.source}) | "
        f"{one.us:,.1f} | {predicted:,.1f} | {one.us / predicted:.2f} | {100 * found.bandwidth:.0f} % |"
    )


def rows() -> Iterator[str]:
    yield from map(row, PUBLISHED)
