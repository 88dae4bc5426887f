"""Judges of specimens: the assembler reads them, the emulator runs them and compares the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.ptx.assembling.assembler import AssemblerError, Fault, assemble
from tinygpu.ptx.cards.specimen import NEWEST_ISA, WRONG_VALUES, Field, FieldMap, Specimen, Twin
from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, LaunchError, Report, TensorMap, emulate

# Registers and places that a variant may name.
_SCAFFOLD = """.version {version}
.target {target}
.address_size 64
.visible .entry variants(.param .u64 p)
{{
  .reg .b32 %r<160>;
  .reg .b64 %d<64>;
  .reg .b16 %h<64>;
  .reg .pred %p<8>;
  .reg .b32 %s, %t;
  .reg .b64 %x;
  .shared .align 128 .b8 smem[1024];
  mov.u32 %s, smem;
  mov.u32 %t, %tid.x;
  ld.param.u64 %x, [p];
{body}
  ret;
}}
"""
# Complaints are located by searching the text, which takes longer than assembling in modules much larger than this.
_MODULE_STATEMENTS = 250
_FIRST_LINE = _SCAFFOLD[: _SCAFFOLD.index("{body}")].count("\n") + 1


def refused_by_assembler(specimen: Specimen, device: str = "") -> str:
    """The assembler's complaints about a specimen, all of them; "" where it takes it.

    device  the architecture to assemble for; by default the specimen's own target
    """
    try:
        assemble(specimen.ptx, device or specimen.architecture)
    except AssemblerError as refused:
        return "\n".join(map(str, refused.faults))
    return ""


def refused_variants(texts: Iterable[str], target: str, version: tuple[int, int] = NEWEST_ISA) -> dict[int, str]:
    """Index -> complaint, for those of `texts` that the assembler refuses for `target`.

    Many go into one module. Those that are refused leave it until what remains assembles, so that every one that is not
    in the answer was part of a module that assembles, and every one that is in it has a complaint of its own.
    """
    lines = list(texts)
    out: dict[int, str] = {}
    for start in range(0, len(lines), _MODULE_STATEMENTS):
        live = list(range(start, min(start + _MODULE_STATEMENTS, len(lines))))
        while live:
            body = "\n".join(lines[i] for i in live)
            try:
                assemble(_SCAFFOLD.format(version=f"{version[0]}.{version[1]}", target=target, body=body), target)
                break
            except AssemblerError as refused:
                # of several complaints about one statement, the first
                found = {live[place]: fault.message for fault, place in reversed(_placed(refused, len(live)))}
                out |= found
                live = [i for i in live if i not in found]
    return out


def _placed(refused: AssemblerError, count: int) -> list[tuple[Fault, int]]:
    placed = []
    for fault in refused.faults:
        if fault.line is None or not 0 <= fault.line - _FIRST_LINE < count:
            raise refused
        placed.append((fault, fault.line - _FIRST_LINE))
    return placed


def inputs_of(specimen: Specimen, seed: int = 0) -> list[NDArray[Any]]:
    """Arrays (threads of all CTAs, per_thread) of whole numbers for the inputs."""
    rng = np.random.default_rng(seed)

    def values(f: Field) -> NDArray[Any]:
        kind = dtype(f.dtype)
        first, end = f.span or (0 if kind.kind == "unsigned" else -3, 5)
        return rng.integers(first, end, (specimen.grid * specimen.threads, f.per_thread)).astype(kind.numpy)

    return [values(f) for f in specimen.fields if f.access == "in"]


def run(specimen: Specimen, inputs: list[NDArray[Any]], order: Any = "late") -> NDArray[Any]:
    """The result (threads of all CTAs, per_thread) of emulating a specimen. Raises EmulationFault and LaunchError."""
    return emulated(specimen, inputs, order)[0]


def emulated(specimen: Specimen, inputs: list[NDArray[Any]], order: Any) -> tuple[NDArray[Any], Report]:
    """The result of `run`, and the emulator's report."""
    result = specimen.fields[-1]
    out = np.zeros((specimen.grid * specimen.threads, result.per_thread), dtype=dtype(result.dtype).numpy)
    buffers = [*(DeviceBuffer(i) for i in inputs), DeviceBuffer(out)]
    named = dict(zip((f.name for f in specimen.fields), buffers, strict=True))
    report = emulate(
        specimen.ptx,
        grid=specimen.grid,
        block=specimen.threads,
        cluster=specimen.ctas,
        args=[*buffers, *(_tensor_map(m, named[m.field]) for m in specimen.maps)],
        dynamic_smem=specimen.dynamic_smem,
        order=order,
    )
    return out, report


def _tensor_map(m: FieldMap, buffer: DeviceBuffer) -> TensorMap:
    bits = dtype(m.element).bits if m.element else 8 * buffer.array.itemsize
    strides = [m.pitch_bytes or m.dims[0] * bits // 8]
    for extent in m.dims[1:-1]:
        strides.append(strides[-1] * extent)
    return TensorMap(
        buffer, m.box, dims=m.dims, strides=strides[: len(m.dims) - 1],
        swizzle=f"{m.swizzle_bytes}B" if m.swizzle_bytes else "none",
        dtype=f"16u{bits}_align16b" if m.element else None,
    )  # fmt: skip


def refused_by_launch(specimen: Specimen) -> str:
    """Why a specimen cannot be launched; "" where it can."""
    try:
        run(specimen, inputs_of(specimen))
    except LaunchError as refused:
        return str(refused)
    except EmulationFault:
        return ""
    return ""


def refused_by_emulator(specimen: Specimen, seed: int = 0) -> str:
    """What the emulator says of a specimen: a fault or an advisory, WRONG_VALUES, or "" where it gives what it means.

    Asynchronous work lands as late as it may, and in a second run as early as it may.
    """
    for order in ("late", "early"):
        inputs = inputs_of(specimen, seed)
        with np.errstate(all="ignore"):
            want = np.asarray(specimen.meaning(*(i.copy() for i in inputs)))
        try:
            got, report = emulated(specimen, inputs, order)
        except EmulationFault as fault:
            return str(fault)
        if report.advisories:
            return report.advisories[0].sentence
        same = want.shape == got.shape and np.array_equal(got.astype(float), want.astype(float), equal_nan=True)
        if not same:
            return WRONG_VALUES
    return ""


def refusal(twin: Twin) -> str:
    """What the judge of `twin` says of its illegal specimen; "" where it has no complaint, which is a mistake."""
    return _judged(twin, twin.illegal, twin.device)


def complaint(twin: Twin) -> str:
    """What the judge of `twin` says of its legal specimen: "", unless something is wrong."""
    return _judged(twin, twin.legal, "")


def _judged(twin: Twin, specimen: Specimen, device: str) -> str:
    refused = refused_by_assembler(specimen, device)
    if twin.judge == "assembler":
        return refused
    if twin.judge not in ("emulator", "launch"):
        raise ValueError(f"{twin.rule}: the judge {twin.judge!r} does not judge specimens")
    if refused:
        raise ValueError(f"{twin.rule}: the {twin.judge} judges what the assembler takes, and it says {refused}")
    return refused_by_launch(specimen) if twin.judge == "launch" else refused_by_emulator(specimen)
