"""Tables: numbers that have no closed form and are counted by a Python function, as part of expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy


@dataclass(frozen=True)
class Table:
    """How a number that is not negative is counted.

    name    an identifier of its own for each table
    rule    what it is for given integers: an integer, or a mean that a float holds exactly
    arrays  the same for arrays of them; None: the rule is asked once for each combination that occurs
    least   from what each argument is at least and at most, (lo, hi) pairs, to what it is at least; None: 0
    """

    name: str
    rule: Callable[..., float]
    arrays: Callable[..., Any] | None = None
    least: Callable[..., int] | None = None

    @property
    def over_arrays(self) -> Callable[..., Any]:
        """The count for arrays of arguments."""
        return self.arrays or self._by_rows

    def _by_rows(self, *arguments: Any) -> Any:
        columns = np.broadcast_arrays(*arguments)
        rows, place = np.unique(np.stack([c.ravel() for c in columns], axis=1), axis=0, return_inverse=True)
        found = np.array([self.rule(*map(int, row)) for row in rows])
        return found[place.reshape(-1)].reshape(columns[0].shape)


class Tabulated(sympy.Function):  # type: ignore[misc]
    """What a table counts for some expressions, made by `tabulated`.

    Costs may hold such numbers; conditions do not, because no solver knows them.
    """

    table: Table

    @classmethod
    def eval(cls, *args: Any) -> Any:
        if not all(a.is_Integer for a in args):
            return None
        found = cls.table.rule(*map(int, args))
        return sympy.Integer(int(found)) if found == int(found) else sympy.Rational(found)

    def _eval_is_nonnegative(self) -> bool:
        return True


@lru_cache(maxsize=1 << 15)
def function_of(table: Table) -> Any:
    """The sympy function that stands for a table."""
    return type(table.name, (Tabulated,), {"table": table})
