"""What one kernel does, counted: by the emulator on a slice of a GPU, by the assembler, and in its machine code."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tinygpu.cost.occupancy import occupancy
from tinygpu.devices import Device
from tinygpu.ptx.assembling.ptxas import Ptxas
from tinygpu.ptx.emulator import Caches, Report

SLICE_SMS = 8
_SECTOR_BYTES = 32
_WIDTHS = {"b16": 2, "u16": 2, "s16": 2, "f16": 2, "b8": 1, "u8": 1, "s8": 1, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
_PLACE = re.compile(r'//##\s*File "[^"]*kernel\.ptx", line (\d+)')
_CODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the assembler makes of a kernel.

    registers   of a thread
    spills      bytes of a thread that go to local memory and come back
    by_line     machine instructions that come of each line of the PTX; loops are not unrolled by the assembler
    resident    CTAs that an SM holds
    """

    registers: int
    spills: int
    by_line: Mapping[int, int]
    resident: int


@dataclass(frozen=True, slots=True)
class Counts:
    """One kernel's counts for one problem.

    dram          bytes between DRAM and L2, over those of every operand once
    sectors       of 32 bytes that L2 is asked for
    requests      warp instructions that access global memory
    wavefronts    of shared memory
    conflicts     those of them that are more than one for each 32 words
    instructions  of PTX, issued by warps
    machine       of machine code: those of each line of the PTX as often as the line was issued
    barriers      of the CTA, waited at by warps
    registers, spills, resident  as the assembler gives them, the bytes and the CTAs of an SM
    """

    dram: float
    sectors: int
    requests: int
    wavefronts: int
    conflicts: int
    instructions: int
    machine: int
    barriers: int
    registers: int
    spills: int
    resident: int


def slice_of(gpu: Device, resident: int) -> Caches:
    """Some SMs with their share of L2."""
    share = gpu.l2_near_bytes * SLICE_SMS // gpu.sm_count // _SECTOR_BYTES * _SECTOR_BYTES
    return Caches(0, share, SLICE_SMS, max(resident, 1))


def counts_of(report: Report, assembled: Assembled, compulsory_bytes: int) -> Counts:
    """Of a run that was given caches."""
    c, traffic = report.counters, report.traffic
    if traffic is None:
        raise ValueError(f"{report.kernel} was emulated without caches")
    wavefronts = c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_atomic_wavefronts
    least = sum(_least_wavefronts(report, line) for line in report.lines)
    return Counts(
        dram=(traffic.dram_read_bytes + traffic.dram_write_bytes) / compulsory_bytes,
        sectors=traffic.l2_load_sectors + traffic.l2_store_sectors + traffic.l2_atomic_sectors,
        requests=c.global_load_requests + c.global_store_requests + c.global_atomic_requests + c.bulk_load_requests,
        wavefronts=wavefronts,
        conflicts=wavefronts - least,
        instructions=c.instructions,
        machine=machine_instructions(report, assembled),
        barriers=c.barriers,
        registers=assembled.registers,
        spills=assembled.spills,
        resident=assembled.resident,
    )


def machine_instructions(report: Report, assembled: Assembled) -> int:
    return sum(n * report.lines[line].executed for line, n in assembled.by_line.items() if line in report.lines)


def _least_wavefronts(report: Report, line: int) -> int:
    """Wavefronts of a line whose requests meet no bank twice."""
    counted = report.lines[line]
    if not counted.wavefronts:
        return 0
    return min(counted.wavefronts, counted.requests * max(1, _bytes_of(report.line_texts.get(line, "")) // 4))


def _bytes_of(text: str) -> int:
    """Bytes that each lane of an access to shared memory moves."""
    opcode = text.split("//")[0]
    vector = 4 if ".v4" in opcode or ".x4" in opcode else 2 if ".v2" in opcode or ".x2" in opcode else 1
    kind = re.search(r"\.([bfsu](?:8|16|32|64))\b", opcode)
    return vector * (_WIDTHS.get(kind[1], 4) if kind else 4)


def assemble(ptx: str, target: str, ptxas: Ptxas, nvdisasm: Path, gpu: Device, threads: int, smem: int) -> Assembled:
    """Registers and spills of the kernel as it is, and the machine instructions of its lines."""
    assembly = ptxas.assemble(ptx, target)
    shared = smem + assembly.static_smem_bytes
    held = int(occupancy(gpu, threads, assembly.registers, shared).ctas_per_sm)
    spills = assembly.spill_store_bytes + assembly.spill_load_bytes
    return Assembled(assembly.registers, spills, lines_of(ptx, target, ptxas, nvdisasm), held)


def lines_of(ptx: str, target: str, ptxas: Ptxas, nvdisasm: Path) -> Mapping[int, int]:
    """How many machine instructions come of each line of the PTX, where the assembler unrolls no loop.

    An instruction that stands for no line counts to the one before it.
    """
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(numbered(ptx), encoding="utf-8")
        command = [str(ptxas.path), f"-arch={target}", "--generate-line-info", str(source), "-o", str(cubin)]
        subprocess.run(command, check=True, capture_output=True)
        command = [str(nvdisasm), "-c", "-g", str(cubin)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: Counter[int] = Counter()
    line = 0
    for row in text.splitlines():
        if place := _PLACE.search(row):
            line = int(place[1])
        elif (code := _CODE.match(row)) and code[1] != "NOP" and line:
            found[line] += 1
    return found


def numbered(ptx: str) -> str:
    """The text with a .loc of its own number before every instruction, and no loop unrolled."""
    out: list[str] = []
    inside = False
    for number, row in enumerate(ptx.splitlines(), 1):
        line = row.split("//")[0].strip()
        if line.startswith((".loc", ".file", ".pragma", ".section")):
            continue
        if inside and line.endswith(";") and not line.startswith((".", "}", "{")):
            out.append(f".loc 1 {number} 0")
        out.append(row)
        if inside and re.fullmatch(r"[$\w%]+:", line):
            out.append('.pragma "nounroll";')
        inside = inside or line == "{"
        if line == "{" or line.endswith("{"):
            inside = True
    return "\n".join([*out, '.file 1 "kernel.ptx"', ""])
