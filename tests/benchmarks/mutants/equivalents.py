"""Edits that change nothing that a test could see, each with its argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Equivalent:
    """path           the module
    before, after  the edited lines, as the table of survivors prints them
    why            why no result changes
    """

    path: str
    before: str
    after: str
    why: str


EQUIVALENTS = (
    Equivalent(
        "tinygpu/cost/banks.py",
        "words = np.where(first < 0, -1, first + np.arange(words_per_lane))",
        "words = np.where(first < 0, -1, (first - np.arange(words_per_lane)))",
        "vectors are aligned: two of them meet in the bank of their first words if they meet at all, up or down",
    ),
    Equivalent(
        "tinygpu/cost/banks.py",
        "words = np.where(first < 0, -1, first + np.arange(words_per_lane))",
        "words = np.where(first < 0, -2, first + np.arange(words_per_lane))",
        "any negative word is that of a lane that stays out",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "DEFAULT_ROW_BUDGET = 40_000_000",
        "DEFAULT_ROW_BUDGET = 40000001",
        "how many rows are too many is a matter of taste, not of one row",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "DEFAULT_ROW_BUDGET = 40_000_000",
        "DEFAULT_ROW_BUDGET = (39999999)",
        "how many rows are too many is a matter of taste, not of one row",
    ),
    Equivalent(
        "tinygpu/constraints/query.py",
        "DEFAULT_SEED = 1",
        "DEFAULT_SEED = 2",
        "a seed is there so that an answer repeats; which one it is, nothing relies on",
    ),
    Equivalent(
        "tinygpu/constraints/query.py",
        "DEFAULT_SEED = 1",
        "DEFAULT_SEED = (0)",
        "a seed is there so that an answer repeats; which one it is, nothing relies on",
    ),
    Equivalent(
        "tinygpu/constraints/intervals.py",
        "elif self.lo >= 0 and self.hi < low:",
        "elif (self.lo > 0) and self.hi < low:",
        "from 0 on, the last branch gives the same: from 0 to the lesser of self.hi and high - 1, which is self.hi",
    ),
    Equivalent(
        "tinygpu/constraints/intervals.py",
        "def __init__(self, lo: int, hi: int, peak: int = 0, safe: bool = True) -> None:",
        "def __init__(self, lo: int, hi: int, peak: int = (-1), safe: bool = True) -> None:",
        "the greater of -lo and hi is never negative, since lo <= hi",
    ),
    Equivalent(
        "tinygpu/program/tree.py",
        "return value if all(a is b for a, b in zip(value, new, strict=True)) else new",
        "return value if all(a is b for a, b in (zip(new, value, strict=True))) else new",
        "a is b wherever b is a",
    ),
    Equivalent(
        "tinygpu/program/tree.py",
        "same = all(a is b for a, b in zip(old, new, strict=True))",
        "same = all(a is b for a, b in (zip(new, old, strict=True)))",
        "a is b wherever b is a",
    ),
    Equivalent(
        "tinygpu/program/windows.py",
        "total += int(coefficient) * int(node)",
        "total += (int(coefficient) // int(node))",
        "the only number among sympy's coefficients is that of 1, so that node is 1",
    ),
    Equivalent(
        "tinygpu/constraints/z3_terms.py",
        "out = z3.If(out >= part if isinstance(node, sympy.Max) else out <= part, out, part)",
        "out = z3.If((out > part) if isinstance(node, sympy.Max) else out <= part, out, part)",
        "where both are the same number either is the greater one",
    ),
    Equivalent(
        "tinygpu/constraints/z3_terms.py",
        "out = z3.If(out >= part if isinstance(node, sympy.Max) else out <= part, out, part)",
        "out = z3.If(out >= part if isinstance(node, sympy.Max) else (out < part), out, part)",
        "where both are the same number either is the lesser one",
    ),
    Equivalent(
        "tinygpu/constraints/condition.py",
        '"_max": lambda a, b: a if a > b else b,',
        '"_max": lambda a, b: a if (a >= b) else b,',
        "where both are the same whole number either is the greater one",
    ),
    Equivalent(
        "tinygpu/constraints/condition.py",
        '"_min": lambda a, b: a if a < b else b,',
        '"_min": lambda a, b: a if (a <= b) else b,',
        "where both are the same whole number either is the lesser one",
    ),
    Equivalent(
        "tinygpu/constraints/intervals.py",
        "elif self.lo >= 0 and self.hi < low:",
        "elif self.lo >= 1 and self.hi < low:",
        "from 0 on, the last branch gives the same: from 0 to the lesser of self.hi and high - 1, which is self.hi",
    ),
    Equivalent(
        "ptx/calibration/measuring.py",
        "most = (MOST_LAUNCHES - 2) // 6",
        "most = (MOST_LAUNCHES - 3) // 6",
        "of 64 launches, 61 are ten rounds of six as 62 are",
    ),
    Equivalent(
        "tinygpu/language/blocked.py",
        "axis: int = -1,",
        "axis: int = (1),",
        "of tiles with one axis and with two, axis 1 counted on from the first is the last one, as axis -1 is",
    ),
    Equivalent(
        "tinygpu/language/instruction/base.py",
        'return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]',
        'return words[(-1)] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]',
        "of one word the first is the last",
    ),
    Equivalent(
        "ptx/lowering/gmem.py",
        'apart = emit.mul64(pitch, rows) if pitch.kind == "d" else emit.wide(pitch, rows, signed=rows < 0)',
        'apart = emit.mul64(pitch, rows) if pitch.kind == "d" else emit.wide(pitch, rows, signed=(rows <= 0))',
        "no rows are no bytes, with a sign and without",
    ),
    Equivalent(
        "tinygpu/solver/swizzle_search.py",
        "RLIMIT = 400_000",
        "RLIMIT = 400001",
        "how long Z3 may take is a matter of taste, not of one unit",
    ),
    Equivalent(
        "tinygpu/solver/swizzle_search.py",
        "RLIMIT = 400_000",
        "RLIMIT = (399999)",
        "how long Z3 may take is a matter of taste, not of one unit",
    ),
    Equivalent(
        "tinygpu/solver/swizzle_search.py",
        "SPARSE_RLIMIT = 40_000",
        "SPARSE_RLIMIT = 40001",
        "how long Z3 may take is a matter of taste, not of one unit",
    ),
    Equivalent(
        "tinygpu/solver/swizzle_search.py",
        "SPARSE_RLIMIT = 40_000",
        "SPARSE_RLIMIT = (39999)",
        "how long Z3 may take is a matter of taste, not of one unit",
    ),
    Equivalent(
        "tinygpu/solver/swizzle_search.py",
        "self.said[pair] = self.swizzled(pair.source, 0) == self.number(pair.bank)",
        "self.said[pair] = self.swizzled(pair.source, 1) == self.number(pair.bank)",
        "bits inside a word are cut off from every place, so that byte 1 of it is byte 0",
    ),
    Equivalent(
        "tinygpu/spaces/diagram.py",
        "alive = np.ones(1, dtype=np.bool_)",
        "alive = np.ones(2, dtype=np.bool_)",
        "every edge of the last layer leads to the first of these, and the second is never asked for",
    ),
    Equivalent(
        "tinygpu/spaces/nearest.py",
        "_TIE = 1.0 / 1024",
        "_TIE = 1.0 / 1025",
        "the excesses of up to a thousand broken conditions weigh less than one condition more, either way",
    ),
    Equivalent(
        "tinygpu/spaces/nearest.py",
        "_TIE = 1.0 / 1024",
        "_TIE = 1.0 / (1023)",
        "the excesses of up to a thousand broken conditions weigh less than one condition more, either way",
    ),
    Equivalent(
        "tinygpu/spaces/nearest.py",
        "state, picked = 0, {}",
        "state, picked = (-1), {}",
        "once all axes are chosen one state is left, which is the first and the last",
    ),
    Equivalent(
        "tinygpu/spaces/diagram.py",
        "counts: NDArray[Any] = np.ones(1, dtype=exact_type(self.raw))",
        "counts: NDArray[Any] = np.ones(2, dtype=exact_type(self.raw))",
        "every edge of the last layer leads to the first of these, and the second is never asked for",
    ),
    Equivalent(
        "tinygpu/spaces/diagram.py",
        "out: list[NDArray[Any]] = [np.ones(1, dtype=dtype)]",
        "out: list[NDArray[Any]] = [np.ones(2, dtype=dtype)]",
        "every edge of the last layer leads to the first of these, and the second is never asked for",
    ),
    Equivalent(
        "tinygpu/spaces/diagram.py",
        "reached = np.ones(1, dtype=np.bool_)",
        "reached = np.ones(2, dtype=np.bool_)",
        "every edge of the first layer leaves the first of these, and the second is never asked for",
    ),
    Equivalent(
        "tinygpu/spaces/solution.py",
        "return max((order[s] for s in rule.condition.symbols if s in order), default=-1)",
        "return max((order[s] for s in rule.condition.symbols if s in order), default=-2)",
        "places begin at 0: -2 stands before them all, as -1 does",
    ),
    Equivalent(
        "tinygpu/spaces/elimination.py",
        "_PLAIN_ROWS = 1_000_000",
        "_PLAIN_ROWS = 1000001",
        "which way is taken beyond so many rows is a matter of taste, not of one row; the answers are the same",
    ),
    Equivalent(
        "tinygpu/spaces/elimination.py",
        "_PLAIN_ROWS = 1_000_000",
        "_PLAIN_ROWS = (999999)",
        "which way is taken beyond so many rows is a matter of taste, not of one row; the answers are the same",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "DEFAULT_LIST_LIMIT = 20_000_000",
        "DEFAULT_LIST_LIMIT = 20000001",
        "how many points are too many to list is a matter of taste, not of one point",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "DEFAULT_LIST_LIMIT = 20_000_000",
        "DEFAULT_LIST_LIMIT = (19999999)",
        "how many points are too many to list is a matter of taste, not of one point",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "_CHUNK = 1 << 14",
        "_CHUNK = 2 << 14",
        "points are made in batches of some size; what is listed is the same in any, as a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "_CHUNK = 1 << 14",
        "_CHUNK = 1 << 15",
        "points are made in batches of some size; what is listed is the same in any, as a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/space.py",
        "_CHUNK = 1 << 14",
        "_CHUNK = 1 << (13)",
        "points are made in batches of some size; what is listed is the same in any, as a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/solution.py",
        "_PATIENCE = 8",
        "_PATIENCE = 9",
        "how much more work a shorter funnel is worth is a matter of taste; that the number counts, a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/solution.py",
        "_PATIENCE = 8",
        "_PATIENCE = (7)",
        "how much more work a shorter funnel is worth is a matter of taste; that the number counts, a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/solution.py",
        "_FREE_ROWS = 2_000_000",
        "_FREE_ROWS = 2000001",
        "how much work is free is a matter of taste, not of one row; that the number counts, a test shows",
    ),
    Equivalent(
        "tinygpu/spaces/solution.py",
        "_FREE_ROWS = 2_000_000",
        "_FREE_ROWS = (1999999)",
        "how much work is free is a matter of taste, not of one row; that the number counts, a test shows",
    ),
    Equivalent(
        "tinygpu/solver/smem.py",
        "LISTED_PAIRS = 4_000_000",
        "LISTED_PAIRS = 4000001",
        "how many pairs are compared before Z3 is asked is a matter of taste, not of one pair; a test sets it",
    ),
    Equivalent(
        "tinygpu/solver/smem.py",
        "LISTED_PAIRS = 4_000_000",
        "LISTED_PAIRS = (3999999)",
        "how many pairs are compared before Z3 is asked is a matter of taste, not of one pair; a test sets it",
    ),
    Equivalent(
        "tinygpu/solver/smem.py",
        "LISTED_AT_ONCE = 128",
        "LISTED_AT_ONCE = 129",
        "lists are tried in pieces of some size; the best is the same in any, as a test shows",
    ),
    Equivalent(
        "tinygpu/solver/smem.py",
        "LISTED_AT_ONCE = 128",
        "LISTED_AT_ONCE = (127)",
        "lists are tried in pieces of some size; the best is the same in any, as a test shows",
    ),
    Equivalent(
        "tinygpu/solver/phases.py",
        "distinct, counts = np.unique(np.where(active[..., None], units, -1), axis=0, return_counts=True)",
        "distinct, counts = np.unique(np.where(active[..., None], units, -2), axis=0, return_counts=True)",
        "any negative row marks a lane that stays out",
    ),
)
