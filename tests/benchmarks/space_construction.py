"""How fast spaces are built: ours and python-constraint2 side by side, in one run, with equal results asserted.

    python tests/benchmarks/space_construction.py [--rounds 5]

Three kinds of space:

- finite spaces that both can list: the tuning space of CLBlast's GEMM kernel, as published for an RTX 2080 Ti and with
  the wider value lists of the same kernel. Building means: from the lists of values and the restrictions to all valid
  points, everything included that has to be done again for another problem;
- a space of over 10^9 points with more than ten constraints that read each other's parameters: counted exactly and
  sampled uniformly, never listed, so that there is nothing to compare with;
- machines that ship, for one problem on one device: from the declared constraints to all valid points. The peer gets
  the parts up to a size, with the numbers of the problem put in beforehand.

Needs python-constraint2 (the extra "bench"). Times are wall time on the machine that runs this, medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sympy.printing.pycode import PythonCodePrinter

from tinygpu.constraints import Constraint
from tinygpu.constraints.condition import conjuncts
from tinygpu.expressions import Expr, symbol
from tinygpu.spaces import Axis, Part, Space


@dataclass(frozen=True, slots=True)
class Restriction:
    """One restriction, written for both: a Python expression over the names, and the names in it."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A space that both sides can list.

    values        parameter -> values
    restrictions  each in both notations: the text is Python, with // for exact or floored division
    """

    name: str
    values: Mapping[str, tuple[int, ...]]
    restrictions: tuple[Restriction, ...]

    @property
    def raw_size(self) -> int:
        size = 1
        for values in self.values.values():
            size *= len(values)
        return size


def restriction(text: str) -> Restriction:
    code = compile(text, "restriction", "eval")
    return Restriction(text, code.co_names)


# The restrictions of CLBlast's GEMM kernel (Nugteren, "CLBlast: A Tuned OpenCL BLAS Library", IWOCL 2018).
_GEMM = tuple(
    restriction(text)
    for text in (
        "KWG % KWI == 0",
        "MWG % (MDIMC * VWM) == 0",
        "NWG % (NDIMC * VWN) == 0",
        "MWG % (MDIMA * VWM) == 0",
        "NWG % (NDIMB * VWN) == 0",
        "KWG % ((MDIMC * NDIMC) // MDIMA) == 0",
        "KWG % ((MDIMC * NDIMC) // NDIMB) == 0",
    )
)

# The value lists under which the kernel was tuned on an RTX 2080 Ti: 82,944 points, 17,956 of them valid.
GEMM = Listed(
    "CLBlast GEMM",
    {
        "MWG": (16, 32, 64, 128),
        "NWG": (16, 32, 64, 128),
        "KWG": (32,),
        "MDIMC": (8, 16, 32),
        "NDIMC": (8, 16, 32),
        "MDIMA": (8, 16, 32),
        "NDIMB": (8, 16, 32),
        "KWI": (2,),
        "VWM": (1, 2, 4, 8),
        "VWN": (1, 2, 4, 8),
        "STRM": (0,),
        "STRN": (0,),
        "SA": (0, 1),
        "SB": (0, 1),
        "PRECISION": (32,),
    },
    _GEMM,
)

# The same kernel with the strided accesses, a second unroll factor and a second depth left open.
GEMM_WIDE = Listed(
    "CLBlast GEMM, wider",
    {
        **GEMM.values,
        "KWG": (16, 32),
        "KWI": (2, 8),
        "STRM": (0, 1),
        "STRN": (0, 1),
    },
    _GEMM,
)


def build_ours(listed: Listed) -> dict[str, Any]:
    """The valid points, one array per parameter."""
    return declare(listed).columns()


def build_ours_as_dictionaries(listed: Listed) -> list[dict[str, Any]]:
    """The valid points, one dictionary per point, as the peer gives them."""
    return list(declare(listed).points())


def declare(listed: Listed) -> Space:
    symbols = {name: symbol(name) for name in listed.values}
    constraints = tuple(
        Constraint(r.text, eval(r.text, {}, symbols), "a restriction of the kernel") for r in listed.restrictions
    )
    axes = tuple(Axis(name, values) for name, values in listed.values.items())
    return Space(listed.name, (Part({}, axes, constraints),))


def build_peer_from_text(listed: Listed) -> list[dict[str, int]]:
    """python-constraint2 with its optimised solver, restrictions as text, which it compiles to its own constraints."""
    from constraint import OptimizedBacktrackingSolver, Problem

    problem = Problem(OptimizedBacktrackingSolver(forwardcheck=False))
    for name, values in listed.values.items():
        problem.addVariable(name, list(values))
    for r in listed.restrictions:
        problem.addConstraint(r.text)
    return problem.getSolutions()  # type: ignore[no-any-return]


def build_peer_from_functions(listed: Listed) -> list[dict[str, int]]:
    """python-constraint2 with its optimised solver and restrictions as compiled functions."""
    from constraint import FunctionConstraint, OptimizedBacktrackingSolver, Problem

    problem = Problem(OptimizedBacktrackingSolver(forwardcheck=False))
    for name, values in listed.values.items():
        problem.addVariable(name, list(values))
    for r in listed.restrictions:
        function = eval(f"lambda {', '.join(r.names)}: {r.text}")
        problem.addConstraint(FunctionConstraint(function), list(r.names))
    return problem.getSolutions()  # type: ignore[no-any-return]


def large_space() -> Space:
    """A tile space of over 7 * 10^9 points under fifteen constraints that read each other's parameters."""
    names = ("bm", "bn", "bk", "wm", "wn", "stages", "va", "vb", "pa", "pb", "split", "group")
    bm, bn, bk, wm, wn, stages, va, vb, pa, pb, split, group = (symbol(n) for n in names)
    m, n, k, smem = (symbol(s) for s in ("m", "n", "k", "device.smem"))
    axes = (
        Axis("bm", tuple(range(16, 257, 16))),
        Axis("bn", tuple(range(16, 257, 16))),
        Axis("bk", (16, 32, 64, 96, 128)),
        Axis("wm", (16, 32, 48, 64, 80, 96, 128, 256)),
        Axis("wn", (8, 16, 32, 48, 64, 80, 96, 128)),
        Axis("stages", tuple(range(2, 9))),
        Axis("va", (1, 2, 4, 8)),
        Axis("vb", (1, 2, 4, 8)),
        Axis("pa", (0, 4, 8, 16)),
        Axis("pb", (0, 4, 8, 16)),
        Axis("split", (1, 2, 4, 8, 16, 32, 64, 128)),
        Axis("group", (1, 2, 4, 8, 16, 32)),
    )
    threads = (bm // wm) * (bn // wn) * 32
    tiles = ((m + bm - 1) // bm) * ((n + bn - 1) // bn) * split
    conditions: tuple[Expr, ...] = (
        bm % wm == 0,
        bn % wn == 0,
        threads <= 1024,
        threads >= 64,
        wm * wn // 32 + wm // 2 + wn // 2 <= 220,
        stages * (bm * (bk + pa) + bn * (bk + pb)) * 2 <= smem,
        k % (bk * split) == 0,
        (bm * bk) % (threads * va) == 0,
        (bn * bk) % (threads * vb) == 0,
        (bk + pa) % va == 0,
        (bk + pb) % vb == 0,
        tiles <= 65535,
        tiles >= 100,
        group <= (m + bm - 1) // bm,
        split * stages <= k // bk,
    )
    constraints = tuple(Constraint(f"rule {i}", c, "a rule of the kernel") for i, c in enumerate(conditions))
    environment = {"m": 4096, "n": 4096, "k": 12288, "device.smem": 101376}
    return Space("tiles", (Part({}, axes, constraints, environment),))


def machine_spaces() -> tuple[tuple[str, Callable[[], Space]], ...]:
    """Spaces of machines that ship: a name, and what builds the space anew from its parts."""
    from tinygpu.devices import device
    from tinygpu.language.posing import problem
    from tinygpu.machines.matmul_ampere import MatmulAmpere
    from tinygpu.machines.matmul_simt import MatmulSimt
    from tinygpu.spaces.build import build_space

    def anew(parts: tuple[Part, ...], name: str) -> Callable[[], Space]:
        return lambda: Space(
            name, tuple(Part(p.fixed, p.axes, p.constraints, p.environment) for p in parts)
        )

    out = []
    for machine in (MatmulSimt, MatmulAmpere):
        built = build_space(machine, problem(machine, {"m": 4096, "n": 4096, "k": 4096}), device("a100")).space
        out.append((machine.__name__, anew(built.parts, built.name)))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class PeerPart:
    """A part of one of our spaces as python-constraint2 takes it; numbers of problem and device are put in."""

    values: Mapping[str, tuple[Any, ...]]
    restrictions: tuple[tuple[Callable[..., bool], tuple[str, ...]], ...]
    empty: bool

    def build(self) -> list[dict[str, int]]:
        from constraint import FunctionConstraint, OptimizedBacktrackingSolver, Problem

        if self.empty:
            return []
        problem = Problem(OptimizedBacktrackingSolver(forwardcheck=False))
        for name, values in self.values.items():
            problem.addVariable(name, list(values))
        for function, names in self.restrictions:
            problem.addConstraint(FunctionConstraint(function), list(names))
        return problem.getSolutions()  # type: ignore[no-any-return]


class _Python(PythonCodePrinter):  # type: ignore[misc]
    """Conditions as Python expressions with Python's own operators: the fastest form for a function constraint."""

    def _print_FloorDiv(self, node: Any) -> str:
        return f"(({self._print(node.args[0])}) // ({self._print(node.args[1])}))"

    def _print_Remainder(self, node: Any) -> str:
        return f"(({self._print(node.args[0])}) % ({self._print(node.args[1])}))"


def peer_part(part: Part) -> PeerPart:
    """The part for the peer; not timed."""
    constants = part.constants()
    axes = {a.name: a.values for a in part.axes}
    restrictions, empty = [], False
    for constraint in part.constraints:
        for condition in conjuncts(constraint.condition):
            node = Expr(condition.node).substitute({n: constants[n] for n in condition.symbols - axes.keys()}).sympy
            names = tuple(sorted(s.name for s in node.free_symbols))
            if names:
                text = f"lambda {', '.join(names)}: {_Python().doprint(node)}"
                restrictions.append((eval(text, {"max": max, "min": min}), names))
            elif not bool(node):
                empty = True
    return PeerPart(axes, tuple(restrictions), empty)


def _median(function: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median wall time in seconds, and the last result."""
    times, result = [], None
    for _ in range(rounds):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def _as_set(columns: Mapping[str, Any], names: Sequence[str]) -> set[tuple[int, ...]]:
    return set(zip(*(columns[n].tolist() for n in names), strict=True))


def compare(listed: Listed, rounds: int) -> list[tuple[str, ...]]:
    """Rows of the table for one space; raises if the sets differ."""
    names = tuple(listed.values)
    ours, columns = _median(lambda: build_ours(listed), rounds)
    points = _as_set(columns, names)
    rows = [(listed.name, f"{listed.raw_size:,}", f"{len(points):,}", "tinyGPU", f"{ours * 1e3:.1f} ms", "1.0")]
    seconds, dictionaries = _median(lambda: build_ours_as_dictionaries(listed), rounds)
    if {tuple(p[n] for n in names) for p in dictionaries} != points:
        raise AssertionError(f"{listed.name}: the points and the columns disagree")
    rows.append(("", "", "", "tinyGPU, as dictionaries", f"{seconds * 1e3:.1f} ms", f"{seconds / ours:.1f}"))
    for label, build in (
        ("python-constraint2, text", build_peer_from_text),
        ("python-constraint2, functions", build_peer_from_functions),
    ):
        seconds, solutions = _median(lambda build=build: build(listed), rounds)  # type: ignore[misc]
        if {tuple(s[n] for n in names) for s in solutions} != points:
            raise AssertionError(f"{listed.name}: tinyGPU and {label} disagree")
        rows.append(("", "", "", label, f"{seconds * 1e3:.1f} ms", f"{seconds / ours:.1f}"))
    return rows


def compare_machine(name: str, anew: Callable[[], Space], rounds: int, limit: int) -> list[tuple[str, ...]]:
    """Rows of the table for one machine; parts of more than `limit` raw points are ours alone."""
    ours, space = _median(lambda: _listed(anew()), rounds)
    rows = [(name, f"{space.raw_size:,}", f"{space.size:,}", "tinyGPU", f"{ours * 1e3:.1f} ms", "1.0")]
    small = [p for p in space.parts if p.raw_size <= limit]
    if small:
        mine, some = _median(lambda: _listed(Space(name, tuple(small))), rounds)
        peers = [peer_part(p) for p in small]
        seconds, peer = _median(lambda: [p.build() for p in peers], 1)
        for part, solutions in zip(small, peer, strict=True):
            axes = [a.name for a in part.axes]
            expected = {tuple(s[n] for n in axes) for s in solutions}
            points = {tuple(p[n] for n in axes) for p in Space(name, (part,)).points()}
            if expected != points:
                raise AssertionError(f"{name}: tinyGPU and python-constraint2 disagree on {part.label}")
        label = f"{name}, {len(small)} of {len(space.parts)} parts"
        rows.append((label, f"{some.raw_size:,}", f"{some.size:,}", "tinyGPU", f"{mine * 1e3:.1f} ms", "1.0"))
        rows.append(("", "", "", "python-constraint2, functions", f"{seconds * 1e3:.1f} ms", f"{seconds / mine:.1f}"))
    return rows


def _listed(space: Space) -> Space:
    for _ in space.columns_by_part():
        pass
    return space


def measure_large(rounds: int) -> list[tuple[str, ...]]:
    def count() -> Space:
        space = large_space()
        if not space.size:
            raise AssertionError("the large space is empty")
        return space

    seconds, space = _median(count, rounds)
    drawn, _ = _median(lambda: space.sample(10_000, np.random.default_rng(1)), rounds)
    name = f"tiles, {len(space.parts[0].constraints)} constraints"
    return [
        (name, f"{space.raw_size:,}", f"{space.size:,}", "tinyGPU, exact count", f"{seconds * 1e3:.1f} ms", ""),
        ("", "", "", "tinyGPU, 10,000 uniform draws", f"{drawn * 1e3:.1f} ms", ""),
    ]


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    head = ("space", "raw points", "valid points", "built by", "median", "times ours")
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    for row in (head, tuple("-" * w for w in widths), *rows):
        cells = zip(row, widths, strict=True)
        print("  ".join(c.ljust(w) if i in (0, 3) else c.rjust(w) for i, (c, w) in enumerate(cells)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description="Build spaces, ours and python-constraint2's, side by side.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is built; the median is shown")
    parser.add_argument("--limit", type=int, default=10**12, help="raw points of the greatest part that the peer gets")
    options = parser.parse_args()
    rows = [row for listed in (GEMM, GEMM_WIDE) for row in compare(listed, options.rounds)]
    rows += measure_large(options.rounds)
    for name, anew in machine_spaces():
        rows += compare_machine(name, anew, options.rounds, options.limit)
    print_table(rows)


if __name__ == "__main__":
    main()
