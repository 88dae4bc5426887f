"""A kernel of our own that judges results on the GPU: it counts the elements outside their intervals.

Bits are turned into unsigned numbers in the order of the values that they stand for, so that floats, integers and
poison are compared alike; copying every candidate's result to the host would take longer than timing it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.context import Context
from tinygpu.ptx.runtime.elements import Element
from tinygpu.ptx.runtime.launch import Argument, Launch, Tensor
from tinygpu.ptx.runtime.loaded import LoadedKernel, load_kernel

_THREADS, _MOST_CTAS = 256, 2048
_POINTERS = ("got", "low", "high", "found")


@dataclass(frozen=True, slots=True)
class Outside:
    """How many elements are outside their intervals, and the first of them in memory; -1 where none is."""

    count: int
    first: int


class Comparer:
    """Compares arrays on one GPU."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._loaded: dict[tuple[int, str], LoadedKernel] = {}
        self._found = context.allocate(16, "the count of wrong elements")

    def outside(self, kind: Element, got: int, low: int, high: int, count: int) -> Outside:
        """Compares `count` elements from address `got` on with the intervals from `low` and `high` on; waits."""
        key = (kind.bits, kind.kind)
        launch = _launch(count)
        if key not in self._loaded:
            self._loaded[key] = load_kernel(self.context, launch, comparing_ptx(kind).encode())
        loaded = self._loaded[key].for_launch(launch)
        self._found.write(np.array([0, 2**64 - 1], dtype=np.uint64))
        addresses = dict(zip(_POINTERS, (got, low, high, self._found.address), strict=True))
        loaded.run(ArgumentBuffer(self.context.driver, launch, addresses), loaded.config(0))
        self.context.synchronize()
        wrong, first = self._found.read().view(np.uint64).tolist()
        return Outside(wrong, first if wrong else -1)

    def close(self) -> None:
        self._found.free()
        for loaded in self._loaded.values():
            loaded.unload()


def _launch(count: int) -> Launch:
    ctas = min(-(-count // _THREADS), _MOST_CTAS)
    numbers = (Argument("number", "count", "u64", count),)
    arguments = (*(Argument("address", name) for name in _POINTERS), *numbers)
    tensors = tuple(Tensor(name, "u8", (1,), (1,), 1, "in") for name in _POINTERS)
    return Launch("outside", "sm_75", ctas, _THREADS, 1, 0, arguments, tensors)


def comparing_ptx(kind: Element) -> str:
    """The kernel for elements of one width and kind."""
    wide = kind.bits == 64
    register, size = ("d", "64") if wide else ("r", "32")
    load = f"ld.global.u{kind.bits}"
    lines = []
    for number, name in enumerate(("got", "low", "high")):
        value = f"%{register}{number}"
        lines += [f"  mad.lo.u64 %a3, %i0, {kind.bytes}, %a{number};", f"  {load} {value}, [%a3]; // {name}"]
        lines += _key(kind, value, register, size)
    return "\n".join(
        [
            "// counts elements outside their intervals",
            ".version 6.3",
            ".target sm_75",
            ".address_size 64",
            "",
            ".visible .entry outside(",
            *(f"  .param .u64 {name}," for name in _POINTERS),
            "  .param .u64 count",
            ")",
            "{",
            "  .reg .b64 %a<5>, %i<4>, %d<5>;",
            "  .reg .b32 %r<5>, %t<4>;",
            "  .reg .pred %p<4>;",
            *(
                f"  ld.param.u64 %a{n}, [{name}];\n  cvta.to.global.u64 %a{n}, %a{n};"
                for n, name in ((0, "got"), (1, "low"), (2, "high"), (4, "found"))
            ),
            "  ld.param.u64 %i1, [count];",
            "  mov.u32 %t0, %tid.x;",
            "  mov.u32 %t1, %ctaid.x;",
            "  mov.u32 %t2, %ntid.x;",
            "  mov.u32 %t3, %nctaid.x;",
            "  mul.wide.u32 %i0, %t1, %t2;",
            "  cvt.u64.u32 %i2, %t0;",
            "  add.u64 %i0, %i0, %i2;",
            "  mul.wide.u32 %i2, %t2, %t3;",
            "NEXT:",
            "  setp.ge.u64 %p0, %i0, %i1;",
            "  @%p0 bra DONE;",
            *lines,
            f"  setp.lt.u{size} %p1, %{register}0, %{register}1;",
            f"  setp.gt.or.u{size} %p1, %{register}0, %{register}2, %p1;",
            "  @!%p1 bra INSIDE;",
            "  red.global.add.u64 [%a4], 1;",
            "  red.global.min.u64 [%a4+8], %i0;",
            "INSIDE:",
            "  add.u64 %i0, %i0, %i2;",
            "  bra NEXT;",
            "DONE:",
            "  ret;",
            "}",
            "",
        ]
    )


def _key(kind: Element, value: str, register: str, size: str) -> list[str]:
    """Bits to their place in the order of values (see `Element.keys`)."""
    top, every = 1 << (kind.bits - 1), (1 << kind.bits) - 1
    if kind.kind == "unsigned":
        return []
    if kind.kind == "signed":
        return [f"  xor.b{size} {value}, {value}, {top};"]
    other = f"%{register}4"
    return [
        f"  setp.ge.u{size} %p3, {value}, {top};",
        f"  selp.b{size} {other}, {every}, {top}, %p3;",
        f"  xor.b{size} {value}, {value}, {other};",
    ]
