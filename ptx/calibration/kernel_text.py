"""The text of a microbenchmark's kernel: a prologue, a loop between two clocks, and what it leaves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Lowest `.version` that states each target; each was assembled.
_VERSIONS = {"sm_75": "6.3", "sm_80": "7.0", "sm_89": "7.8", "sm_90": "7.8", "sm_90a": "8.0"}
_TYPES = {"r": "b32", "d": "b64", "f": "f32", "g": "f64", "h": "b16", "p": "pred"}
_REGISTER = re.compile(r"%([rdfghp])(\d+)\b")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel. Its text uses registers %r (32 bits), %d (64), %f (f32), %g (f64), %h (16) and %p, with numbers.

    name        of the entry
    threads     most threads of a CTA
    trip        one pass of the loop
    setup       what comes before the first clock; %thread is the thread in its CTA, %cta the CTA
    finish      what comes behind the second clock; it leaves in %result what the thread stores to its word of the sink
    result      register with the 32-bit word that a thread stores to the sink; "" leaves the sink as it is
    parameters  declarations of those behind clocks, sink and trips: ".u64 data"
    smem        declarations of shared variables
    version     `.version`, where the target's lowest is not enough
    barrier     whether the CTA meets before the first clock
    clocked     whether each warp writes its clocks
    """

    name: str
    threads: int
    trip: Sequence[str]
    setup: Sequence[str] = ()
    finish: Sequence[str] = ()
    result: str = ""
    parameters: Sequence[str] = ()
    smem: Sequence[str] = ()
    target: str = "sm_75"
    version: str = ""
    barrier: bool = True
    clocked: bool = True

    def text(self) -> str:
        """The PTX module."""
        body = [*self.setup, *self.trip, *self.finish]
        body += _store_result(self.result) if self.result else []
        inner = [
            *self.setup,
            *(["bar.sync 0;"] if self.barrier and self.threads > 32 else []),
            *(["mov.u64 %start, %clock64;"] if self.clocked else []),
            "TRIP:",
            '.pragma "nounroll";',
            *self.trip,
            "sub.s32 %trips, %trips, 1;",
            "setp.ne.u32 %again, %trips, 0;",
            "@%again bra TRIP;",
            *(["mov.u64 %stop, %clock64;"] if self.clocked else []),
            *self.finish,
            *(_store_result(self.result) if self.result else []),
            *(_STORE_CLOCKS if self.clocked else ()),
        ]
        return module(
            self.name, inner, body, self.parameters, self.smem, self.threads, self.target, self.version or None
        )


def module(
    name: str,
    inner: Sequence[str],
    body: Sequence[str],
    parameters: Sequence[str],
    smem: Sequence[str],
    threads: int,
    target: str,
    version: str | None = None,
) -> str:
    """A PTX module of one entry: declarations around the lines of `inner`; registers are those that `body` names."""
    declared = [".param .u64 clocks", ".param .u64 sink", ".param .u32 trips", *(f".param {p}" for p in parameters)]
    highest: dict[str, int] = {}
    for line in body:
        for kind, number in _REGISTER.findall(line):
            highest[kind] = max(highest.get(kind, 0), int(number))
    registers = [f".reg .{_TYPES[kind]} %{kind}<{most + 1}>;" for kind, most in sorted(highest.items())]
    lines = [
        f".version {version or _VERSIONS[target]}",
        f".target {target}",
        ".address_size 64",
        f".visible .entry {name}(",
        ",\n".join(f"    {p}" for p in declared),
        ")",
        f".maxntid {threads}, 1, 1",
        "{",
        *(f"    {line}" for line in (*_FIXED_REGISTERS, *registers, *smem)),
        "    ld.param.u32 %trips, [trips];",
        "    mov.u32 %thread, %tid.x;",
        "    mov.u32 %cta, %ctaid.x;",
    ]
    for line in inner:
        lines.append(line if line.endswith(":") else f"    {line}")
    return "\n".join([*lines, "    ret;", "}", ""])


_FIXED_REGISTERS = (
    ".reg .b32 %trips, %thread, %cta, %slot, %warp, %lane;",
    ".reg .b64 %start, %stop, %where, %place;",
    ".reg .pred %again, %leads;",
)
# Lane 0 of each warp stores its pair of clocks; the pairs of a CTA follow each other.
_STORE_CLOCKS = (
    "ld.param.u64 %where, [clocks];",
    "mov.u32 %warp, %ntid.x;",
    "add.s32 %warp, %warp, 31;",
    "shr.u32 %warp, %warp, 5;",
    "shr.u32 %slot, %thread, 5;",
    "mad.lo.s32 %slot, %cta, %warp, %slot;",
    "mul.wide.u32 %place, %slot, 16;",
    "add.u64 %where, %where, %place;",
    "and.b32 %lane, %thread, 31;",
    "setp.eq.u32 %leads, %lane, 0;",
    "@%leads st.global.v2.u64 [%where], {%start, %stop};",
)


def _store_result(result: str) -> list[str]:
    """Each thread stores one word to the sink, so that no assembler takes the work for unused."""
    return [
        "ld.param.u64 %where, [sink];",
        "mov.u32 %slot, %ntid.x;",
        "mad.lo.s32 %slot, %cta, %slot, %thread;",
        "mul.wide.u32 %place, %slot, 4;",
        "add.u64 %where, %where, %place;",
        f"st.global.b32 [%where], {result};",
    ]


def load(register: str, parameter: str, kind: str = "u64") -> str:
    """Reads a parameter."""
    return f"ld.param.{kind} {register}, [{parameter}];"


def folded(first: str, others: Sequence[str], operation: str = "xor.b32") -> list[str]:
    """`others` folded into `first`."""
    return [f"{operation} {first}, {first}, {other};" for other in others]
