"""Wrong machines: a right one, one edit of its source, and what a report of it has to name."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import right_machines

from tinygpu.language import Machine


@dataclass(frozen=True)
class Plant:
    """One mistake.

    what   the mistake, in words
    base   the right machine
    edits  (text of its source, text that takes its place), each found exactly once
    tier   the tier that has to find it
    names  words that the report has to hold: the planted constraint or statement
    """

    what: str
    base: str
    edits: tuple[tuple[str, str], ...]
    tier: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.base}: {self.what}"


def plant(
    what: str, base: str, old: str, new: str, tier: int, *names: str, more: tuple[tuple[str, str], ...] = ()
) -> Plant:
    return Plant(what, base, ((old, new), *more), tier, names)


PLANTS = (
    # -- references
    plant("reference subtracts", "Saxpy", "return a * x + y", "return a * x - y", 5, "Saxpy.reference"),
    plant("reference sums the wrong axis", "Softmax", "e / e.sum(axis=1", "e / e.sum(axis=0", 5, "Softmax.reference"),
    plant("reference is a mean", "RowSum", "x.sum(axis=1)", "x.mean(axis=1)", 5, "RowSum.reference"),
    plant("reference of another product", "Gram", "return a @ a.T", "return (a * 2) @ a.T", 5, "Gram.reference"),
    plant(
        "reference forgets an option",
        "Outer",
        'np.maximum(np.outer(a, b), 0) if activation == "relu" else np.outer(a, b)',
        "np.outer(a, b)",
        5,
        "activation=relu",
    ),
    # -- partitions
    plant(
        "lanes one element apart",
        "Batched",
        "(32, self.vector * E(2))",
        "(32, E(2))",
        2,
        "ld (ld.global) of x",
    ),
    plant(
        "warps side by side are forgotten",
        "Batched",
        "(self.warps, E(1))",
        "(self.warps, 0)",
        2,
        "ld (ld.global) of x",
    ),
    plant(
        "warps two rows apart",
        "Batched",
        "(self.warps, E(1))",
        "(self.warps, 2 * E(1))",
        2,
        "ld (ld.global) of x",
    ),
    # -- hops
    plant(
        "what is loaded is not stored", "Staged", "p.load(self.get, slot.t, who))", "p.full(who, 'f32'))", 1, "ring.t"
    ),
    plant("one operand stays away", "Outer", "self.mul, a, b, into", "self.mul, a, a, into", 1, "b"),
    # -- constraints
    plant("a row need not fit", "Softmax", "Require(columns >= n,", "Require(2 * columns >= n,", 5, "'whole row'"),
    plant(
        "nothing says that a row fits", "Softmax", "Require(columns >= n,", "Require(columns >= 1,", 5, "'whole row'"
    ),
    plant(
        "twice a row has to fit",
        "Softmax",
        "Require(columns >= n,",
        "Require(columns >= 2 * n,",
        4,
        "'whole row'",
        "too tight",
    ),
    plant(
        "no wide vectors",
        "Saxpy",
        "def program",
        "narrow = Require(vector < 4, 'narrow')\n\n    def program",
        4,
        "'narrow'",
        "too tight",
    ),
    plant(
        "whole tiles only",
        "Transpose",
        "def program",
        "whole = Require(symbol('m') % bm == 0, 'whole')\n\n    def program",
        4,
        "'whole'",
        "too tight",
    ),
    plant(
        "deep rings only", "Gram", "Require(stages * bk >= 16,", "Require(stages * bk >= 48,", 4, "'deep'", "too tight"
    ),
    plant(
        "long rows only",
        "Staged",
        'Require(symbol("x.ld") >= v,',
        'Require(symbol("x.ld") >= 8 * v,',
        4,
        "'wide'",
        "too tight",
    ),
    plant(
        "what no point satisfies",
        "RmsNorm",
        "def program",
        "most = Require(warps * rows >= 16, 'most')\n\n    def program",
        1,
        "most",
    ),
    # -- stores
    plant("tiles overlap", "Saxpy", "p.grid((self.n, shape[0]))", "p.grid((self.n, 32))", 2, "y[", "st (st.global)"),
    plant(
        "every CTA stores the first rows",
        "RowSum",
        "self.y.column(i, shape[0])",
        "self.y.column(0, shape[0])",
        2,
        "y[",
        "st (st.global)",
    ),
    plant(
        "half of the columns are stored",
        "Handed",
        "self.y.tile(i, j, shape=shape)",
        "self.y.tile(i, 0, shape=shape)",
        2,
        "y[",
        "st (st.global)",
    ),
    # -- instructions
    plant(
        "a meaning that exchanges operands",
        "Signs",
        "np.copysign(values[0], values[1])",
        "np.copysign(values[1], values[0])",
        1,
        "copysign",
    ),
    plant(
        "a meaning of another power",
        "Signs",
        "values[0] ** self.exponent",
        "values[0] ** (self.exponent + 1)",
        1,
        "power",
    ),
    plant("text exchanges operands", "Signs", "{d}, {b}, {a};", "{d}, {a}, {b};", 1, "copysign"),
    plant("text multiplies once more", "Signs", "range(self.exponent - 1)", "range(self.exponent)", 1, "power"),
    plant("text with a word too many", "Signs", "copysign.f32 {d}", "copysign.rn.f32 {d}", 5, "copysign"),
    # -- layouts
    plant(
        "vectors where rows are odd",
        "Staged",
        "get, st = isa.LdShared(v)",
        "get, st = Loose(v)",
        5,
        "bring",
        "pad=0",
        more=(
            (
                "class Staged(Machine):",
                "class Loose(isa.LdShared):\n    def legality(self, *tiles):\n        return ()\n\n\n"
                "class LooseStore(isa.StShared):\n    def legality(self, *tiles):\n        return ()\n\n\n"
                "class Staged(Machine):",
            ),
            ("Param(0, 4), Param(1, 2, 4)", "Param(0, 1), Param(1, 2, 4)"),
            ("isa.StShared(v)", "LooseStore(v)"),
        ),
    ),
    # -- what is claimed of cost
    plant(
        "sectors cost nothing",
        "RowSum",
        "def program",
        'heuristics = ("bank conflicts", "occupancy")\n\n    def program',
        3,
        "'coalescing'",
    ),
    plant("what is fast is removed", "RowSum", "warps * across >= 8", "warps * across <= 4", 6, "'fast'"),
    # -- numbers
    plant(
        "no maximum is subtracted",
        "Softmax",
        "p.apply(self.sub, x, top)",
        "x",
        5,
        "Softmax",
        more=(("            top = p.reduce(self.larger, x, axis=1, by=self.shuffle)\n", ""),),
    ),
    plant("another epsilon", "RmsNorm", "self.n), 1e-5)", "self.n), 1e-3)", 5, "RmsNorm.reference"),
    plant("the mean of the other dim", "RmsNorm", "total, self.n)", "total, self.m)", 5, "div"),
    # -- statements
    plant("edges are zero", "Softmax", ', fill=float("-inf")', "", 5, "ld"),
    plant("edges are one", "RowSum", "shape=shape), who), into", "shape=shape), who, fill=1.0), into", 5, "ld"),
    plant("operands exchanged", "Softmax", "self.sub, x, top", "self.sub, top, x", 5, "sub"),
    plant(
        "sums are maxima",
        "Softmax",
        "p.reduce(self.add, e",
        "p.reduce(self.larger, e",
        5,
        "larger",
    ),
    plant("half of the rows' length", "RowSum", "p.loop(self.n, step", "p.loop(self.n // 2, step", 5, "loop"),
    plant("one element further", "RowSum", "self.x.tile(i, j, shape", "self.x.tile(i, j + 1, shape", 5, "ld"),
    plant(
        "tiles are stored where they came from",
        "Transpose",
        "self.y.tile(j, i, shape",
        "self.y.tile(i, j, shape",
        5,
        "st",
    ),
    plant("always the first fragment", "Gram", "slot.right.window((kt, 0)", "slot.right.window((0, 0)", 5, "fragment"),
    plant("sums begin at one", "Gram", 'p.full(t.c, "f32")', 'p.full(t.c, "f32", 1.0)', 5, "%"),
    plant(
        "a tile too far",
        "Handed",
        "self.x.tile(i, j, shape=shape), slot",
        "self.x.tile(i, j + 32, shape=shape), slot",
        5,
        "copy",
    ),
    plant("every part sums everything", "SharedRows", ", divided=True", "", 5, "loop"),
    plant("the other index", "Outer", "self.b.row(j, shape[1])", "self.b.row(i, shape[1])", 5, "ld_b"),
    plant("the wrong operation", "Handed", 'isa.Add("f32")', 'isa.Mul("f32")', 5, "add"),
)


def right(name: str) -> type[Machine]:
    machine = getattr(right_machines, name)
    assert issubclass(machine, Machine)
    return machine


def wrong(planted: Plant, folder: Path) -> type[Machine]:
    """The wrong machine, from a file of its own. Raises DeclarationError where it cannot even be declared."""
    source = Path(inspect.getfile(right_machines)).read_text()
    # the classes of the others are left out: an edit is about one of them
    begin = source.index(f"class {planted.base}(Machine):")
    begin = source.index("class CopySign") if planted.base == "Signs" else begin
    end = source.find("\n\n\nclass ", source.index(f"class {planted.base}(Machine):"))
    text = source[: source.index("class Saxpy")] + source[begin : end if end > 0 else len(source)] + "\n"
    for old, new in planted.edits:
        assert text.count(old) == 1, (planted.what, old, text.count(old))
        text = text.replace(old, new)
    path = folder / f"planted_{planted.base.lower()}.py"
    path.write_text(text)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    made = getattr(module, planted.base)
    assert issubclass(made, Machine)
    return made
