"""Instructions of a user's own, written against the families: searched, lowered, right, in each of their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import (
    Elementwise,
    Machine,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.meanings import meaning_fault

# file, machine, device, problem, what its kernels say
KERNELS = (
    ("double_matmul", "MatmulDouble", "a100", {"m": 40, "n": 36, "k": 24}, "mma.sync.aligned.m8n8k4.row.col.f64.f64"),
    ("pair_loads", "MatmulPairs", "a100", {"m": 40, "n": 48, "k": 40}, "ldmatrix.sync.aligned.m8n8.x2.shared.b16"),
    ("half_chain", "ScaleShift", "a100", {"m": 5, "n": 130}, "fma.rn.f16x2 %r"),
    ("atomic_sum", "ColumnSum", "a100", {"m": 30, "n": 130}, "red.global.add.f32 [%d"),
    ("bulk_rows", "ScaleRows", "h100", {"m": 8, "n": 256}, "cp.async.bulk.global.shared::cta.bulk_group [%d"),
    ("byte_matmul", "MatmulBytes", "b200", {"m": 40, "n": 48, "k": 64}, "ldmatrix.sync.aligned.m16n16.x2.trans.shared"),
    ("row_max", "RowMax", "h100", {"b": 2, "m": 5, "n": 21}, "shfl.sync.bfly.b32 %r"),
    ("turned", "Turned", "a100", {"m": 37, "n": 24}, ".trans.shared.b16 {%r"),
    ("contraction", "Contraction", "h100", {"b": 2, "m": 17, "n": 20, "k": 9}, "cp.async"),
    ("mix", "Mix", "a100", {"m": 5, "k": 7, "n": 130}, "ld.const.b32 %r"),
)


@cache
def machine(file: str, name: str) -> type[Machine]:
    found: type[Machine] = getattr(__import__(file), name)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("file", "name", "target", "dims", "says"), KERNELS, ids=[k[0] for k in KERNELS])
def test_machines_on_own_instructions_are_searched_lowered_and_right(
    file: str, name: str, target: str, dims: dict[str, int], says: str
) -> None:
    space = build_space(machine(file, name), machine(file, name).problem(**dims), device(target))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(4)))
    kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
    assert says in kernel.ptx
    assert verify(kernel, machine(file, name), space.problem).passed


# --- what both texts of an element-wise instruction say -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Half(Elementwise):
    """d = a + b in f16, or not."""

    one: str = "add.rn.f16 {d}, {a}, {b};"
    two: str = "add.rn.f16x2 {d}, {a}, {b};"
    operands: ClassVar[tuple[str, ...]] = ("f16", "f16")
    result: ClassVar[str] = "f16"

    def text(self) -> str:
        return self.one

    def packed_text(self) -> str:
        return self.two

    def meaning(self, *values: Any) -> Any:
        return values[0] + values[1]


@dataclass(frozen=True, eq=False)
class Pairs(Elementwise):
    """d = a + b of the two values in a register, or not; types are packed, as PTX has them."""

    kind: str = "f16"
    op: str = "add"

    def types(self) -> tuple[tuple[str, ...], str]:
        return (f"{self.kind}x2",) * 2, f"{self.kind}x2"

    def text(self) -> str:
        return f"{self.op}.rn.{self.kind}x2 {{d}}, {{a}}, {{b}};"

    @property
    def target(self) -> int:  # type: ignore[override]
        return 90 if self.kind == "bf16" else 80

    def meaning(self, *values: Any) -> Any:
        return values[0] + values[1]


def test_a_packed_text_that_says_something_else_than_the_meaning_is_found() -> None:
    def said(instruction: Elementwise) -> str:
        return meaning_fault(instruction, np.random.default_rng(1), 0.0)

    assert said(Half()) == ""
    assert said(Half(one="")) == ""
    assert said(isa.Cvt("f32", "bf16")) == ""
    assert said(Pairs()) == ""
    assert said(Pairs("bf16")) == ""
    assert "and its packed text, emulated, " in said(Pairs(op="sub"))
    wrong = said(Half(two="sub.rn.f16x2 {d}, {a}, {b};"))
    assert wrong.startswith("of a = ")
    assert "and its packed text, emulated, " in wrong
    crossed = "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {b}; mov.b32 {d}, {{h, l}}; add.rn.f16x2 {d}, {a}, {d}; }}"
    assert "and its packed text, emulated, " in said(Half(two=crossed))


@dataclass(frozen=True, eq=False)
class Remainder(Elementwise):
    """d = a % b, of b beyond `least`"""

    operands, result = ("u32", "u32"), "u32"
    template = "rem.u32 {d}, {a}, {b};"
    least: int = 0
    off: int = 0

    def meaning(self, *values: Any) -> Any:
        return (values[0] + self.off) % values[1]

    def defined(self, *values: Any) -> Any:
        return values[1] >= self.least


def test_meaning_and_text_may_differ_where_nothing_is_specified_and_there_alone() -> None:
    def said(instruction: Elementwise) -> str:
        return meaning_fault(instruction, np.random.default_rng(1), 0.0)

    assert said(Remainder(least=1)) == ""
    by_zero = r"of a = \d+, b = 0 its meaning makes 0, and its text, emulated, \d+ \(\d+ of 256 values differ\)"
    assert re.fullmatch(by_zero, said(Remainder()))
    assert re.match(r"of a = \d+, b = [1-9]\d* its meaning makes", said(Remainder(least=1, off=1)))
