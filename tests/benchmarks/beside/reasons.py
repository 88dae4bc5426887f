"""Why our kernel does more of something than another's, where it does: read in both PTX texts, and written here."""

from __future__ import annotations

from collections.abc import Mapping

UNEXPLAINED = "**not explained**"

NARROW = "narrower vectors, which are predicted to take as long or up to 0.5 % less time"
ENDS = "ends of columns are stored one element a lane; the emulated problem has 64 rows and the full one 16,384"
FOLDED = "PTX names positions of elements and halves of registers one by one; machine instructions are fewer"
PAIRS = "elements of 2 bytes leave shared memory one at a time, and Triton's two at a time"
SCALES = "a warp has scales of several rows, and its accesses to them fill no whole sectors; nothing leaves the warp"
PASSES = (
    "passes over a row come from L2, or CTAs of a cluster share it: of CTAs that hold a whole row too few are resident "
    "to hide the latency of DRAM, by prediction"
)

REASONS: Mapping[str, Mapping[str, str]] = {
    "bias_relu": {
        "sectors": "a CTA has fewer rows than Triton's 16 for one read of its biases, which come from L2",
        "requests": NARROW,
        "instructions": NARROW,
        "machine": NARROW,
    },
    "column_reduction": {"requests": NARROW, "sectors": ENDS, "instructions": ENDS, "machine": ENDS},
    "layer_norm": dict.fromkeys(("sectors", "requests", "wavefronts", "instructions", "machine", "barriers"), PASSES),
    "argmax": {"instructions": FOLDED},
    "transpose": {
        "wavefronts": PAIRS,
        "instructions": PAIRS,
        "machine": PAIRS,
        "barriers": "a warp exchanges 1,024 elements at a time, so that a lane has 32; Triton's has 64",
    },
    "cross_entropy": {"instructions": FOLDED},
    "matvec": {
        "requests": "vectors of 16 bytes halve the CTAs of an SM, by registers; a last wave is predicted to cost 10 %",
        "instructions": "two CTAs share rows; meeting weighs twice as much in the emulated problem as in the full one",
        "dram": "two CTAs share rows, and leave their sums in a workspace",
    },
    "rotary": {"requests": NARROW, "instructions": NARROW, "machine": NARROW},
    "quantise_int8": {"sectors": SCALES, "requests": SCALES},
    "dequantise": {
        "sectors": SCALES,
        "requests": "bytes are read 8 at a time, as halves are stored; Triton reads 16, and exchanges by shared memory",
    },
}


def reason(machine: str, count: str) -> str:
    return REASONS.get(machine, {}).get(count, UNEXPLAINED)
