"""How precisely a kernel is expected to compute: what each operation of a reference may be off by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# PTX ISA, lg2.approx: 2^-22 absolute near 1, where the logarithm itself is small; sin.approx, cos.approx: 2^-20.5.
LOGARITHM, CIRCULAR = 2.0**-21, 2.0**-20
# Of 16-bit types: a rounding relative to the number, half of the least number above zero, the largest number.
_KEPT = {"float16": (2.0**-11, 2.0**-25, 65504.0), "bfloat16": (2.0**-8, 2.0**-134, 3.3895313892515355e38)}


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far results of a machine may be off.

    exact          sums and products of small whole numbers are exact
    approximation  relative error of each approximate function that the reference calls; of the results, where it calls
                   none
    wide           arithmetic is in double precision, else in single
    short_sums     products of 8-bit floats are added as Hopper's wgmma adds them (see `tinygpu.ptx.bounds.short_sums`)
    kept           NumPy's name of the 16-bit type to which every sum is rounded, as memory keeps it; ""
    """

    exact: bool
    approximation: float = 0.0
    wide: bool = False
    short_sums: bool = False
    kept: str = ""

    def kept_as(self, kind: np.dtype[Any]) -> Rounding:
        """Of sums that memory keeps in a type; where a machine is said to be exact, as they are."""
        return replace(self, kept=kind.name) if not self.exact and kind.name in _KEPT else self

    @property
    def unit(self) -> float:
        """Largest relative error of one rounding."""
        return _KEPT[self.kept][0] if self.kept else self.of_its_own

    @property
    def of_its_own(self) -> float:
        """The same of numbers that are no such sums."""
        return 2.0**-53 if self.wide else 2.0**-24

    @property
    def function(self) -> float:
        """Relative error of division, roots, exponentials, logarithms: eight roundings (PTX ISA: ex2, rcp, rsqrt and
        div.full are within 2 ulp), or what the machine says.
        """
        return max(8 * self.unit, self.approximation)

    @property
    def smallest(self) -> float:
        """What a function may add to a result near zero: .ftz takes subnormal numbers for zeros."""
        return _KEPT[self.kept][1] if self.kept else float(np.finfo(np.float64 if self.wide else np.float32).tiny)

    @property
    def largest(self) -> float:
        """Results beyond this may overflow."""
        return _KEPT[self.kept][2] if self.kept else float(np.finfo(np.float64 if self.wide else np.float32).max)

    @property
    def whole(self) -> float:
        """Whole numbers up to here are exact."""
        return 1 / self.unit

    def sum(self, terms: float) -> float:
        """Error of a sum, relative to the sum of its terms' absolute values, in any order.

        Each of T - 1 additions rounds by a unit of what has been added so far at most (Higham, Accuracy and Stability
        of Numerical Algorithms, 4.2); tensor cores cut off where others round, hence twice. The further ones are for
        the terms themselves, which are rounded as products, and scaled before the sum or after it.
        """
        return 2 * (terms + 8) * self.unit
