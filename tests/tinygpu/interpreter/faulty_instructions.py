"""Machines with one instruction that is wrong: its text does something else, or its meaning says something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import right_machines as right

from tinygpu.language import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx import isa

# ---- meanings that are wrong ---------------------------------------------------------------------------------------


class Subtracts(isa.Fma):
    """d = a * b + c, and says a * b - c"""

    def meaning(self, *values: Any) -> Any:
        return values[0] * values[1] - values[2]


class ExchangesHalves(isa.LdMatrix):
    """Says that the halves of every row are exchanged"""

    def meaning(self, values: Any) -> Any:
        return np.roll(values, values.shape[1] // 2, axis=1)


class ForgetsTheSum(isa.MmaSync):
    """Says that the accumulator is lost"""

    def meaning(self, accumulator: Any, a: Any, b: Any) -> Any:
        return a @ b


class ForgetsTheSums(isa.Wgmma):
    """Says that the accumulators are lost"""

    def meaning(self, accumulator: Any, a: Any, b: Any) -> Any:
        return a @ b


class DoublesACopy(isa.CpAsync):
    """Says that what it copies is doubled"""

    def meaning(self, values: Any) -> Any:
        return values * values.dtype.type(2)


class MirrorsABox(isa.TmaLoad):
    """Says that a box comes upside down"""

    def meaning(self, values: Any) -> Any:
        return values[::-1]


class MirrorsAStore(isa.TmaStore):
    """Says that a box goes upside down"""

    def meaning(self, values: Any) -> Any:
        return values[::-1]


class MovesColumns(isa.StMatrix):
    """Says that columns move by one"""

    def meaning(self, values: Any) -> Any:
        return np.roll(values, 1, axis=1)


class NegatesWhatItStores(isa.StGlobal):
    """Says that it stores the negative"""

    def meaning(self, values: Any) -> Any:
        return -values


class KeepsTheFirst(isa.ShflBfly):
    """Says that a reduction is the first value"""

    def meaning(self, combine: Any, values: Any, axis: int) -> Any:
        return np.take(values, [0], axis=axis)


# ---- texts that are wrong ------------------------------------------------------------------------------------------


class AddsOneMore(isa.Fma):
    """d = a * b + c + 1, and says a * b + c"""

    def text(self) -> str:
        return "{{ .reg .f32 t; fma.rn.f32 t, {a}, {b}, {c}; add.f32 {d}, t, 0f3F800000; }}"


class ExchangesRegisters(isa.LdMatrix):
    """Gives the registers in the opposite order"""

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        return super().statement(registers[::-1], address, transposed)


class StoresInAnotherOrder(isa.StMatrix):
    """Takes the registers in the opposite order"""

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        return super().statement(registers[::-1], address, transposed)


class ExchangesHalvesOfA(isa.MmaSync):
    """Takes two registers of a in the wrong order"""

    def statement(self, a: Any, b: Any, d: str, x: str, y: str, across: tuple[bool, bool] = (False, False)) -> str:
        first, second, *others = x.strip("{}").split(", ")
        return super().statement(a, b, d, "{" + ", ".join([second, first, *others]) + "}", y, across)


class SubtractsProducts(isa.Wgmma):
    """Subtracts what it should add"""

    def statement(self, a: Any, b: Any, d: str, x: str, y: str, across: tuple[bool, bool] = (False, False)) -> str:
        return super().statement(a, b, d, x, y, across).replace(", 1, 1, 1", ", 1, -1, 1")


class ShufflesElsewhere(isa.ShflBfly):
    """Exchanges with the lane twice as far away"""

    def statement(self, result: str, value: str, mask: int) -> str:
        return super().statement(result, value, max(mask // 2, 1))


class LoadsBackwards(isa.LdGlobal):
    """Gives neighbours in the opposite order"""

    def statement(self, kind: Any, piece: str, registers: Sequence[str], address: str) -> str:
        return super().statement(kind, piece, registers[::-1], address)


@dataclass(frozen=True)
class Faulty:
    """One machine.

    base      the right one
    change    its attributes that are others
    asked     of the problem
    values    of the candidate
    says      the attribute of the instruction that is wrong
    device    on which it exists
    """

    base: type[Machine]
    change: Callable[[Any], dict[str, Any]]
    asked: dict[str, Any]
    values: dict[str, Any]
    says: str
    device: str = "h100"

    def machine(self) -> type[Machine]:
        """The right machine with its attributes changed."""
        body = {"__doc__": self.base.__doc__, "__module__": __name__, **self.change(self.base)}
        return type(f"Wrong{self.base.__name__}", (self.base,), body)


PLAIN = {"m": 64, "n": 64, "k": 96}
SMALL = {"bm": 32, "bn": 32, "bk": 32, "stages": 2}
LD = {"fragment_b": "ldmatrix"}
HOPPER = {"schedule": "single", "bm": 64, "bn": 32, "bk": 32, "stages": 3, "split_k": 1, "stream_k": 0}


MEANINGS: dict[str, Faulty] = {
    "an fma that subtracts": Faulty(
        MatmulSimt, lambda m: {"fma": Subtracts("f32")}, PLAIN, {"bm": 32, "bn": 32, "bk": 8}, "fma"
    ),
    "an ldmatrix that exchanges halves": Faulty(
        MatmulAmpere, lambda m: {"fragment_a": ExchangesHalves()}, PLAIN, SMALL | LD,
        "fragment_a",
    ),
    "a product that forgets its sum": Faulty(
        MatmulAmpere, lambda m: {"mma": ForgetsTheSum()}, PLAIN, SMALL | LD, "mma"
    ),
    "a wgmma that forgets its sums": Faulty(
        MatmulSkinny, lambda m: {"product": ForgetsTheSums(m.bm)}, {"m": 16, "n": 64, "k": 512},
        {"warps": 4}, "product",
    ),
    "a cp.async that doubles": Faulty(
        MatmulAmpere, lambda m: {"copy_b": DoublesACopy(m.vb)}, PLAIN, SMALL, "copy_b"
    ),
    "a TMA load that mirrors": Faulty(
        MatmulSkinny, lambda m: {"tma": MirrorsABox()}, {"m": 16, "n": 64, "k": 512}, {}, "tma"
    ),
    "a TMA store that mirrors": Faulty(
        MatmulHopper, lambda m: {"put": MirrorsAStore()}, PLAIN, HOPPER | {"store": "staged"}, "put"
    ),
    "an stmatrix that moves columns": Faulty(
        MatmulHopper, lambda m: {"st_matrix": MovesColumns()}, PLAIN, HOPPER | {"store": "stmatrix"}, "st_matrix"
    ),
    "a store that negates": Faulty(
        right.Saxpy, lambda m: {"st": NegatesWhatItStores(m.vector)}, {"n": 70}, {}, "st", "a100"
    ),
    "a shuffle that keeps the first": Faulty(
        right.RowSum, lambda m: {"shuffle": KeepsTheFirst()}, {"m": 9, "n": 70}, {}, "add", "a100"
    ),
}
TEXTS: dict[str, Faulty] = {
    "an fma that adds one": Faulty(
        MatmulSimt, lambda m: {"fma": AddsOneMore("f32")}, PLAIN, {"bm": 32, "bn": 32, "bk": 8}, "fma"
    ),
    "an ldmatrix with exchanged registers": Faulty(
        MatmulAmpere, lambda m: {"fragment_a": ExchangesRegisters()}, PLAIN, SMALL | LD,
        "fragment_a",
    ),
    "an stmatrix with exchanged registers": Faulty(
        MatmulHopper, lambda m: {"st_matrix": StoresInAnotherOrder()}, PLAIN, HOPPER | {"store": "stmatrix"},
        "st_matrix",
    ),
    "a product with exchanged halves": Faulty(
        MatmulAmpere, lambda m: {"mma": ExchangesHalvesOfA()}, PLAIN, SMALL | LD, "mma"
    ),
    "a wgmma that subtracts": Faulty(
        MatmulHopper, lambda m: {"wgmma": SubtractsProducts(m.bn)}, PLAIN, HOPPER, "wgmma"
    ),
    "a shuffle with another lane": Faulty(
        right.RowSum, lambda m: {"shuffle": ShufflesElsewhere()}, {"m": 9, "n": 70}, {}, "add", "a100"
    ),
    "a load that gives neighbours backwards": Faulty(
        right.Saxpy, lambda m: {"ld": LoadsBackwards(m.vector)}, {"n": 72}, {"vector": 2}, "ld", "a100"
    ),
}
