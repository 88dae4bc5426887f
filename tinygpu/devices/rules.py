"""Rules for figures that no source gives: each returns a derived figure that says which rule it was.

The library keeps "no source was found" as it is (kind "null"). Where the predictor cannot do without a number, a rule
of this file stands in, and the figure that comes out has kind "derived" and the rule as its source, so that a reader
of any table sees that nobody measured it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinygpu.devices.fields import DERIVED, UNITS
from tinygpu.devices.figure import Figure

Figures = Mapping[str, Figure]
# A rule gives (value, sentence), or another figure as it stands, or None where it does not apply.
Rule = Callable[[Figures], tuple[float, str] | Figure | None]


def derive(field: str, figures: Figures) -> Figure | None:
    """The derived figure of `field`, or None when there is no rule or the rule does not apply.

    field    a field of UNITS whose value is null, or one of DERIVED
    figures  every given figure of the device
    """
    rule = _RULES.get(field)
    found = rule(figures) if rule else None
    if found is None or isinstance(found, Figure):
        return found
    value, sentence = found
    return Figure(value, UNITS.get(field) or DERIVED[field], f"rule: {sentence}", "derived")


def _number(figures: Figures, field: str) -> float | None:
    figure = figures.get(field)
    if figure is None or figure.value is None or isinstance(figure.value, str):
        return None
    return figure.value


def _need(figures: Figures, field: str) -> float:
    value = _number(figures, field)
    if value is None:
        raise ValueError(f"a device needs the figure {field!r}")
    return value


def _cc(figures: Figures) -> int:
    major, minor = str(figures["compute_capability"].value).split(".")
    return int(major) * 10 + int(minor)


def _constant(value: float, sentence: str) -> Rule:
    return lambda figures: (value, sentence)


def _copy(field: str, sentence: str) -> Rule:
    def rule(figures: Figures) -> tuple[float, str] | None:
        value = _number(figures, field)
        return None if value is None else (value, sentence)

    return rule


def _dram_sustained(figures: Figures) -> tuple[float, str] | Figure:
    if _number(figures, "dram_bw_gbs_measured") is not None:
        return figures["dram_bw_gbs_measured"]
    # Measured / datasheet over the library: 0.97 V100, 0.96 A100-40, 0.97 H100 PCIe, 0.96 3090, 0.90 5090, H200 and
    # H100 SXM, 0.93 B300, 0.88 B200 (0.77 T4).
    sheet = _need(figures, "dram_bw_gbs_datasheet")
    return round(0.92 * sheet, 1), "0.92 x dram_bw_gbs_datasheet, the middle of what other parts reach"


def _l2_sustained(figures: Figures) -> tuple[float, str] | Figure:
    measured = _number(figures, "l2_bw_gbs_measured")
    sms, clock = _need(figures, "sm_count"), _need(figures, "boost_clock_mhz")
    # The topology tool reads too little (its own note says "not saturated"); another part of the same die was
    # saturated: H200, 9650 GB/s at 1980 MHz over 132 SMs.
    if str(figures["chip"].value) == "GH100" and (
        measured is None or figures["l2_bw_gbs_measured"].source.startswith("MT4G")
    ):
        value = round(36.9 * sms * clock / 1e3, 0)
        return value, "36.9 B/clk/SM as measured on H200-SXM (same die) x SMs x boost clock"
    if measured is not None:
        return figures["l2_bw_gbs_measured"]
    # Measured per SM and clock: 12.8 B (2080 Ti), 15 to 20 B (GA102, AD102), 22 B (V100), 36 B (A100).
    dram = _number(figures, "dram_bw_gbs_measured") or _need(figures, "dram_bw_gbs_datasheet")
    value = round(max(16 * sms * clock / 1e3, dram), 0)
    return value, "16 B/clk/SM x SMs x boost clock (12.8 to 19.9 measured on parts of that size), at least the DRAM's"


def _f16_sustained(figures: Figures) -> tuple[float, str] | Figure | None:
    sheet = _number(figures, "tflops_f16_dense")
    if not sheet:
        rate = _number(figures, "tensor_f16_fp32acc_flop_per_clk_sm")
        if not rate:
            return None
        sheet = rate * _need(figures, "sm_count") * _need(figures, "boost_clock_mhz") * 1e-6
    measured = _number(figures, "gemm_f16_bf16_tflops_measured")
    if measured is not None and measured <= sheet:
        return figures["gemm_f16_bf16_tflops_measured"]
    if measured is not None:
        return sheet, "tflops_f16_dense: what was measured was a single instruction, above the datasheet's clock"
    cc, rate = _cc(figures), _number(figures, "tensor_f16_fp32acc_flop_per_clk_sm") or 0
    for sibling in SUSTAINED_SIBLINGS:
        if (cc, rate) == (sibling.cc, sibling.rate):
            sms = _need(figures, "sm_count")
            watts = (_number(figures, "tdp_w") or sibling.watts_per_sm * sms) / sms / sibling.watts_per_sm
            value = sms * rate * sibling.clock_hz * watts ** (1 / 3) * 1e-12
            return round(min(value, sheet), 1), sibling.sentence(watts)
    return round(0.86 * sheet, 1), "0.86 x tflops_f16_dense, the median of the shares measured on other parts"


@dataclass(frozen=True, slots=True)
class Sibling:
    """A part whose library products were measured and that its power limit bounds.

    rate  FLOP per clock and SM in f16 with f32 sums
    """

    name: str
    cc: int
    sms: int
    watts: float
    rate: int
    tflops: float

    @property
    def watts_per_sm(self) -> float:
        return self.watts / self.sms

    @property
    def clock_hz(self) -> float:
        """The mean clock at which its tensor cores would have to be always busy."""
        return self.tflops * 1e12 / (self.sms * self.rate)

    def sentence(self, watts: float) -> str:
        begun = f"SMs x rate x the clock that {self.name} sustains (same architecture and rate)"
        return begun if abs(watts - 1) < 0.01 else f"{begun} x cube root of {watts:.2f}, the watts per SM over its own"


# Dynamic power is proportional to f V^2, and V to f: with the same architecture the clock that a power limit lets
# through goes with the cube root of the watts per SM. (What memory and leakage take of them is left out.) Library
# products over the datasheet peak: 0.93 RTX-4090, 0.88 H100-PCIe (by proxy) and RTX-5090, 0.86 RTX-PRO-6000, 0.84
# A100-SXM4-40GB, 0.79 H200-SXM, 0.72 L4, 0.69 B200. Parts of half or a quarter of the rate (GeForce, H20) do not reach
# the limit.
SUSTAINED_SIBLINGS = (
    Sibling("A100-SXM4-40GB", 80, 108, 400, 2048, 261.8),
    Sibling("H200-SXM", 90, 132, 700, 4096, 783.5),
    Sibling("L4", 89, 60, 72, 1024, 87.0),
    Sibling("B200", 100, 148, 1000, 8192, 1562.0),
)


_L2_NEAR_CYCLES = 286


def _l2_far(figures: Figures) -> tuple[float, str] | None:
    near = _number(figures, "lat_l2_hit_near")
    base = _L2_NEAR_CYCLES if near is None else near
    partitions = _number(figures, "l2_partitions") or _partitions(figures)[0]
    if partitions < 2:
        return base, "lat_l2_hit_near: the L2 of this part has one partition"
    # 208 / 357 on A100, 258 / 414 on H800.
    return base + 150, "lat_l2_hit_near + 150 cycles, as measured on A100 and H800"


def _partitions(figures: Figures) -> tuple[float, str]:
    two = _cc(figures) in (80, 90, 100, 103)
    sentence = "2 on the dies of A100, H100 and B200 class, 1 elsewhere, as measured on GV100, TU102 and AD102"
    return (2 if two else 1), sentence


def _mma_interval(figures: Figures) -> tuple[float, str] | None:
    rate = _number(figures, "tensor_f16_fp32acc_flop_per_clk_sm")
    if not rate:
        return None
    cc = _cc(figures)
    if cc == 90:
        # 494 TFLOP/s of 757 on an H800 (Luo et al.). That parts whose wgmma is slower reach the same share of it agrees
        # with FlashAttention-2 on an H20: 84 of 148 TFLOP/s (github.com/Dao-AILab/flash-attention, issue 1310).
        return 6.6 * 4096 / rate, "6.6 cycles where wgmma does 4096 FLOP, as measured on H800: the same share of wgmma"
    if cc // 10 in (10, 11):
        # 577 TFLOP/s with mma.sync against 2325 with tcgen05 on B300.
        return 8.18, "8.18 cycles as measured on B300: mma.sync runs at a quarter of tcgen05"
    return 4096 * 4 / rate, "4096 FLOP x 4 schedulers / tensor_f16_fp32acc_flop_per_clk_sm"


def _fp64_tensor(figures: Figures) -> tuple[float, str] | None:
    fma = _number(figures, "fp64_fma_per_clk_sm")
    return None if fma is None else (2 * fma, "2 x fp64_fma_per_clk_sm: no faster f64 path is known")


def _clusters_of_8(figures: Figures) -> tuple[float, str]:
    sms, cc = _need(figures, "sm_count"), _cc(figures)
    if (cc, sms) == (90, 132):
        return 15, "15 as on H100-SXM5, of the same die and as many SMs"
    if cc // 10 == 10 and sms == 148:
        return 18, "18 as on B300, of as many SMs"
    return _clusters(4)(figures)


def _clusters(half: int) -> Callable[[Figures], tuple[float, str]]:
    """Clusters of twice the size: two of the smaller ones each, at most."""

    def rule(figures: Figures) -> tuple[float, str]:
        field = f"active_clusters_of_{half}"
        given = _number(figures, field)
        found = _RULES[field](figures) if given is None else (given, "")
        assert isinstance(found, tuple)
        return found[0] // 2, f"{field} / 2, rounded down: at most, as the sizes of GPCs are not known"

    return rule


def _int8(figures: Figures) -> tuple[float, str] | None:
    rate = _number(figures, "tensor_f16_fp32acc_flop_per_clk_sm")
    return None if rate is None else (rate, "tensor_f16_fp32acc_flop_per_clk_sm: no int8 rate is known")


_RULES: Mapping[str, Rule] = {
    "dram_bw_gbs_sustained": _dram_sustained,
    "l2_bw_gbs_sustained": _l2_sustained,
    "tflops_f16_sustained": _f16_sustained,
    "l1_smem_unified_kb": lambda f: (
        _need(f, "max_smem_per_sm") / 1024,
        "max_smem_per_sm: what is certain to be there",
    ),
    "max_cluster_size_nonportable": _copy("max_cluster_size_portable", "max_cluster_size_portable"),
    "int32_add_per_clk_sm": _constant(64, "64 ops/clk/SM, as on V100 to B300"),
    "sfu_per_clk_sm": _constant(16, "16 ops/clk/SM, as on most parts since V100"),
    "ldst_lanes_per_clk_sm": _constant(32, "32 lanes/clk/SM, one shared-memory wavefront a clock"),
    "smem_bytes_per_clk_sm": _constant(128, "32 banks of 4 bytes, as measured on every part since A100"),
    "l1_bytes_per_clk_sm": _copy("smem_bytes_per_clk_sm", "smem_bytes_per_clk_sm: L1 and shared memory are one array"),
    "fp64_fma_per_clk_sm": _constant(2, "2 FMA/clk/SM, the rate of parts without FP64 units"),
    "tensor_f64_flop_per_clk_sm": _fp64_tensor,
    "tensor_int8_op_per_clk_sm": _int8,
    "active_clusters_of_4": lambda f: (
        _need(f, "sm_count") // 4,
        "sm_count / 4, rounded down: at most, as the sizes of GPCs are not known",
    ),
    "active_clusters_of_8": _clusters_of_8,
    "active_clusters_of_16": _clusters(8),
    "tensor_clock_implied_mhz": _copy("boost_clock_mhz", "boost_clock_mhz"),
    "l2_partitions": _partitions,
    "lat_fma_dependent": _constant(4, "4 cycles, as on every part since V100"),
    "lat_smem_load": _constant(29, "29 cycles, the median of the measured parts (23.5 to 30.1)"),
    "lat_l1_hit": _constant(40, "40 cycles, the median of the measured parts (36 to 44)"),
    "lat_l2_hit_near": _constant(_L2_NEAR_CYCLES, "286 cycles, the median of the measured parts (176 to 360)"),
    "lat_l2_hit_far": _l2_far,
    "lat_dram": _constant(673, "673 cycles, the median of the measured parts (460 to 936)"),
    "lat_sfu": _constant(21, "21 cycles, as measured on V100 class (TITAN V)"),
    "lat_ldmatrix": lambda f: (
        (_number(f, "lat_smem_load") or 29) + 4,
        "lat_smem_load + 4 cycles, as between 29 and 33 on sm_120",
    ),
    "lat_mma_m16n8k16": _constant(24.6, "24.6 cycles, the median of the measured parts (20.8 to 24.6)"),
    "issue_interval_mma_m16n8k16": _mma_interval,
    "lat_barrier_cta": _constant(45, "45 cycles, as measured on B300 with 512 threads"),
    "lat_mbarrier_roundtrip": _constant(54, "54 cycles, as measured on B300"),
    "launch_overhead_graph_us": _constant(1.34, "1.34 us, the median of the measured parts (1.26 to 1.4)"),
    "launch_overhead_stream_us": _constant(2.42, "2.42 us, the median of the measured parts (2.05 to 2.6)"),
}
