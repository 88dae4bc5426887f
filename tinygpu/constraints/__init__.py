"""Constraints: one condition, used as a filter, a Z3 term, an explanation and a row of the documentation."""

from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import Violation, describe, find_violation, state
from tinygpu.constraints.table import constraint_row, constraint_table

__all__ = ["Constraint", "Violation", "constraint_row", "constraint_table", "describe", "find_violation", "state"]
