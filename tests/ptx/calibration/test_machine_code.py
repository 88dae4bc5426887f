"""What assemblers make of the loops: exactly the instructions that a formula counts, where there is an nvdisasm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache

import pytest

from tests.benchmarks.disassembly import find_nvdisasm
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.calibration import Microbenchmark, microbenchmarks
from tinygpu.ptx.calibration.chip import tiny_chip

DISASSEMBLER = find_nvdisasm()
TARGETS = {"sm_75": 75, "sm_80": 80, "sm_89": 89, "sm_90a": 90, "sm_100a": 100, "sm_120": 120}
# How machine code spells an opcode of PTX.
SPELLINGS = {
    "fma.rn.f32": r"FFMA", "fma.rn.f64": r"DFMA", "rsqrt.approx.ftz.f32": r"MUFU\.RSQ", "max.u32": r"V?IMNMX",
    "xor.b32": r"LOP3", "ld.global.u64": r"LDG\.E\.64", "ld.global.cg.u64": r"LDG\.E\.64\.STRONG\.GPU",
    "ld.global.v4.u32": r"LDG\.E\.128", "atom.global.add.u32": r"ATOMG\.E\.ADD", "ld.shared.u32": r"LDS",
    "red.global.add.u32": r"REDG?\.E\.ADD", "atom.shared.add.u32": r"ATOMS", "bar.sync": r"BAR\.SYNC",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": r"LDSM\.16\.M88\.4", "cp.async.cg.shared.global": r"LDGSTS",
}  # fmt: skip
# Bytes by instructions of 16 bytes a lane.
COUNTED = {
    "shared_load_bytes": r"LDS(?:\.U)?\.128|LDSM", "shared_store_bytes": r"STS\.128",
    "global_load_bytes": r"LDG\.E\.128",
    "global_store_bytes": r"STG\.E\.128",
}  # fmt: skip
# Additions are counted where a unit of their own does them.
LEFT_OUT = ("clock", "addition-rate", "launch", "mbarrier-pair", "mbarrier-round", "cp-async-l2")


def spelled(name: str) -> tuple[str, int] | None:
    """How machine code spells a count, and how much one instruction of a warp adds to it."""
    if name in COUNTED:
        return COUNTED[name], 512
    if name.startswith("mma.sync"):
        return r"[A-Z]MMA\.", 1
    if name.startswith("wgmma.mma_async"):
        return r"[HIQ]GMMA\.", 1
    return (SPELLINGS[name], 1) if name in SPELLINGS else None


CASES = [
    pytest.param(b, target, id=f"{b.name}-{target}")
    for b in microbenchmarks()
    if b.name not in LEFT_OUT and any(spelled(name) for name in b.counts(b.plan(tiny_chip(b.target), 1), 1))
    for target, cc in TARGETS.items()
    if b.runs_on(type(tiny_chip("sm_75"))(cc, 1, 1, 1))
]


@cache
def loops(ptx: str, target: str) -> tuple[str, ...]:
    """The text of each loop of the machine code, from its label to the branch back to it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(assemble(ptx, target).cubin)
        file.flush()
        text = subprocess.run([str(DISASSEMBLER), file.name], capture_output=True, text=True, check=True).stdout
    both = re.compile(r"(\.L_x_\d+:)|\s+/\*[0-9a-f]{4,5}\*/\s+(.*?);")
    lines = [match[1] or match[2] for line in text.splitlines() if (match := both.match(line))]
    places = {line[:-1]: n for n, line in enumerate(lines) if line.startswith(".L_x")}
    found = []
    for n, line in enumerate(lines):
        target_of = re.search(r"BRA.*?(\.L_x_\d+)", line)
        if target_of and places.get(target_of[1], n) < n:
            found.append("\n".join(lines[places[target_of[1]] : n]))
    return tuple(found)


@pytest.mark.slow
@pytest.mark.skipif(DISASSEMBLER is None, reason="there is no nvdisasm: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize(("benchmark", "target"), CASES)
def test_a_trip_is_in_machine_code_what_it_is_in_ptx(benchmark: Microbenchmark, target: str) -> None:
    launch = benchmark.plan(tiny_chip(benchmark.target), 3)
    per_trip = benchmark.per_trip(launch)
    for name in per_trip:
        how = spelled(name)
        if how is None:
            continue
        spelling, each = how
        rows = launch.rows if not launch.joined else 1
        wanted = per_trip[name] / each / launch.warps / rows
        pattern = re.compile(rf"^(?:@!?U?P\w+ )?(?:{spelling})", re.MULTILINE)
        counts = [len(pattern.findall(loop)) for loop in loops(benchmark.ptx, target)]
        assert wanted in counts, (name, counts)
