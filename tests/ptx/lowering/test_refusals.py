"""What lowering cannot write is refused when a machine is declared, or is no candidate.

Every `raise LoweringError` of the room is listed, with the declaration that refuses it first, or with why nothing can
reach it. A place that is added without an entry fails the first test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused_machines import (
    Lax,
    Narrow,
    brought,
    by_turns,
    dealt,
    half,
    held,
    left_loop,
    multiplied,
    plain,
    rows_by_hand,
)

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language import (
    DeclarationError,
    Machine,
    blocked,
    maximum,
    minimum,
    symbol,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ROOM = Path(__file__).parents[3] / "ptx" / "lowering"

# --- what is refused first ----------------------------------------------------------------------------------------

COMPUTES = "a kernel computes with + - * // %, minimum and maximum of dims, leading dimensions and indices"
LATE = "is known at launch only; give it in numbers and parameters"
BEGIN = "windows that threads move begin at sums of multiples of indices, dims, and quotients and remainders of these"
NEVER = "it can never work, whatever the parameters"
EXIST = "copy_ (cp.async.bulk) moves rows that exist, and the windows of x along axis"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "fact": (
        lambda: plain(operand=lambda s, p, i, j: symbol("x.align")),
        f"an operand of mul is x.align, and a kernel does not know x.align there; {COMPUTES}",
    ),
    "moving part": (
        lambda: plain(operand=lambda s, p, i, j: p.full(blocked((4, 32), threads=32), "f32").window((i, 0), (2, 32))),
        "%v2[4*tile0:+2, 0:+32] begins at 4*tile0 along axis 0, and which registers hold it has to be known before the "
        "launch; tile0 is not: let p.unroll give it",
    ),
    "device": (
        lambda: plain(rounds=lambda s, p: symbol("device.sm_count")),
        f"the trip count of a loop is device.sm_count, and a kernel does not know device.sm_count there; {COMPUTES}",
    ),
    "outside": (
        lambda: plain(read=lambda s, p, i, j: (left_loop(s, p), j)),
        f"the offset of a window of x is i1, and a kernel does not know i1 there; {COMPUTES}",
    ),
    "comparison": (
        lambda: plain(operand=lambda s, p, i, j: s.n > 5),
        f"an operand of mul is n > 5; {COMPUTES}",
    ),
    "product": (
        lambda: plain(read=lambda s, p, i, j: (i * s.n, j)),
        f"a window of x begins at 4*n*tile0; {BEGIN}",
    ),
    "not before the tensor": (
        lambda: plain(read=lambda s, p, i, j: (maximum(i - 8, 0), j)),
        f"a window of x begins at max(4*tile0 - 8, 0); {BEGIN}; instead of at maximum(x, 0) begin at x: what lies "
        "before a tensor is filled",
    ),
    "size of a tile": (
        lambda: plain(axes=lambda s: ((s.m, s.n), (s.n, 32))),
        f"n is a size of a tile along m, and n {LATE}",
    ),
    "axis": (
        lambda: plain(axes=lambda s: ((2 * s.m, 8), (s.n, 32))),
        "p.grid runs over 2*m; each of its axes runs over a Dim of the machine, or over what numbers and parameters "
        "make",
    ),
    "threads": (
        lambda: held(
            lambda s: blocked((64 * s.w,), threads=32, vector=2), lambda s, p, a, b, who: p.apply(s.add, a, b)
        ),
        f"{NEVER}: each thread holds the values of v2 that add combines with its own",
    ),
    "no swizzle": (
        lambda: brought(swizzle=None),
        "ring.t is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128",
    ),
    "part of a buffer": (lambda: brought(stage=(32, 32)), "box moves to or from all of ring.t, not a window of it"),
    "a box with steps": (
        lambda: brought(window=lambda s, at, j: s.x.tile(0, j, shape=(8, 32), step=(2, 1)), shape=(8, 32)),
        "box moves boxes, and x[0:+8:2, 32*i1:+32] is none: copy it thread by thread",
    ),
    "multicast": (
        lambda: brought(
            multicast=0, cluster=3, shape=(8, 32), window=lambda s, at, j: s.x.tile(0, j, shape=(8, 32))
        ),
        f"{NEVER}: each CTA of the cluster brings the same number of rows of x, a multiple of 128 bytes",
    ),
    "one row of all": (
        lambda: brought(rows_by_hand(), swizzle=None, window=lambda s, at, j: s.x.tile(0, j, shape=(16, 32))),
        f"{EXIST} 0, which begin at 0, do not follow one another over m",
    ),
    "one part of a batch": (
        lambda: brought(
            rows_by_hand(), (1, 8, 32), None, lambda s, at, j: s.x.at(3).tile(at[1], j, shape=(8, 32)).unsqueeze(0)
        ),
        f"{EXIST} 0, which begin at 3, do not follow one another over b",
    ),
    "more than copies": (
        lambda: brought(
            more=lambda s, p, at, j, slot, who: p.store(
                isa.StShared(1), slot.t, p.load(isa.LdGlobal(1), s.x.tile(*at, j, shape=(16, 32)), who)
            )
        ),
        "'ring' is produced by TMA, and its produce() does more than copy by TMA: %v3 = ld.global "
        "x[16*tile0:+16, 32*i1:+32]",
    ),
    "two completions": (
        lambda: brought(
            more=lambda s, p, at, j, slot, who: p.copy(s.by_threads, s.x.tile(*at, j, shape=(16, 32)), slot.t, who)
        ),
        "slots of 'ring' are completed by mbarrier (token2(ring.t: mbarrier): ring.t[0:+16, 0:+32] = copy_ "
        "x[16*tile0:+16, 32*i1:+32]) and by commit group (token3(ring.t: commit group): ring.t[0:+16, 0:+32] = "
        "by_threads x[16*tile0:+16, 32*i1:+32]); give what completes otherwise a pipeline of its own",
    ),
    "stream-K": (
        lambda: dealt(lambda s: s.n * 2),
        "a loop over 2*n is divided, and stream-K deals out the rounds of loops over a dim; write p.loop(DIM, "
        "divided=True)",
    ),
    "turns": (
        lambda: by_turns((8, 4)),
        "the roles r0 and r1 take turns at tiles, and add fixes up 256 values in one and 128 in the other; they "
        "share a workspace",
    ),
    "plain operands": (
        lambda: multiplied(Lax(64), swizzle=None, own=True),
        "mma (wgmma) reads ring.a by descriptors, and it has no swizzle; give its width, swizzle=32, 64 or 128",
    ),
    "moving operands": (
        lambda: multiplied(moving=True),
        "the window of ring.a moves with i6 at run time, and mma multiplies windows that stand still or move in "
        "p.unroll",
    ),
    "idle warpgroups": (
        lambda: multiplied(warps=8),
        f"{NEVER}: the warpgroups of the role divide the rows of %v4, and each has all columns",
    ),
    "columns": (
        lambda: multiplied(warps=8, tiles=(1, 2), columns=128),
        f"{NEVER}: the warpgroups of the role divide the rows of %v4, and each has all columns",
    ),
    "narrow": (
        lambda: multiplied(Narrow(64), 8, (2, 1), 32, swizzle=64, major="col"),
        f"{NEVER}: the rows of ring.a that a warpgroup multiplies are whole widths of its swizzle",
    ),
    "steps of operands": (
        lambda: multiplied(begin=lambda s: (4, 0)),
        f"{NEVER}: the windows of ring.b begin at multiples of an instruction's depth, 16, along k",
    ),
    "rows of operands": (
        lambda: multiplied(begin=lambda s: (0, 4)),
        f"{NEVER}: the windows of ring.b begin at multiples of 8 rows, as its swizzle does",
    ),
    "widths of operands": (
        lambda: multiplied(begin=lambda s: (0, 16), order=1),
        f"{NEVER}: the windows of ring.b begin at widths of its swizzle, or at multiples of their own",
    ),
    "own operands": (
        lambda: multiplied(own=True),
        "mma (wgmma) reads ring.a from shared memory, which threads fill; another role brings it there by TMA",
    ),
    "own right operand": (
        lambda: multiplied(isa.WgmmaRegisters(64), own=True, registers=True),
        "mma (wgmma.registers) reads ring.b from shared memory, which threads fill; another role brings it there by "
        "TMA",
    ),
}


# Of which parameters may decide.
NO_CANDIDATE: dict[str, tuple[Callable[[], type[Machine]], str]] = {
    "values": (
        lambda: held(half, lambda s, p, a, b, who: p.apply(s.add, a, b)),
        "each thread holds the values of v2 that add combines with its own",
    ),
    "relayout": (
        lambda: held(half, lambda s, p, a, b, who: p.apply(s.add, a, p.relayout(b, who))),
        "the partitions of %v2 before and behind have all of its elements",
    ),
    "other threads": (
        lambda: held(
            lambda s: blocked((64 * s.w,), threads=32, vector=2),
            lambda s, p, a, b, who: p.apply(s.add, a, p.relayout(b, who)),
        ),
        "every thread has the values of %v2 that it is given; what exchanges them is said with by=",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_told_when_a_machine_is_declared(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value).partition(".program: ")[2] == sentence


def test_which_windows_descriptors_reach_may_be_a_matter_of_parameters() -> None:
    machine = multiplied(begin=lambda s: (s.shift, 64))
    space = build_space(machine, machine.problem(m=128, n=128, k=64), device("h100")).space
    assert {point["shift"] for point in space.points()} == {16}


@pytest.mark.parametrize("name", NO_CANDIDATE)
def test_what_cannot_be_written_is_no_candidate(name: str) -> None:
    make, sentence = NO_CANDIDATE[name]
    space = build_space(make(), make().problem(n=100), device("a100")).space
    assert not space.size
    assert sentence in " ".join(v.sentence for v in space.explain({}))


# --- and every place that refuses has its entry -------------------------------------------------------------------

TYPE = "narrows a type: verbs take this family alone, and what is dispatched here is of it"
HANDOVER = "tinygpu.language.handover"
COMMITTED = "tinygpu.language.committed, and tests/machines/test_matmul_basic_blackwell.py tries it"
SCALES = "tinygpu.language.tracing.matrix_checks, and tests/machines/test_matmul_block_scaled.py tries it"
OPEN = "the state of lowering itself: a block is entered before what stands in it is written"
PLACES: dict[tuple[str, str], str] = {
    ("bulk", "{} is not moved to or from {} by TMA"): "no swizzle",
    ("bulk", "{} rows of {} are not divided among {} CTAs"): "multicast",
    ("bulk", "{} is not aligned to {} bytes, and a tensor map needs that"): "a rule of the family: strides of NAME",
    ("bulk", "{} is no window of a tensor"): TYPE,
    ("bulk", "rows of {} are no whole boxes of {}, and a map that pads needs that"): "a rule of the family: rows",
    ("bulk", "{} ({}) cannot be written for this target yet"): "no swizzle",
    ("bulk", "{} ({}) moves no rows between a tensor and a buffer"): TYPE,
    ("across_ctas", "nothing is placed that CTAs exchange"): "every exchange of a cluster is placed",
    ("across_warps", "nothing is placed that warps exchange"): "every exchange between warps is placed",
    ("bulk", "the windows of {} may reach beyond it, and {} moves rows that exist"): "one row of all",
    ("compute", "{} does not lie in registers"): TYPE,
    ("broadcast", "%{} is held by other threads than the values that it is combined with"): "values",
    ("picked", "{} does not lie in registers"): TYPE,
    ("context", "{} cannot be computed in a kernel"): "comparison",
    ("context", "no role is open"): OPEN,
    ("context", "{} has no value here"): "outside",
    ("context", "{}"): "a scheduler of one's own that is not settled by a candidate: it says so itself",
    ("context", "the offset {} is not a sum of multiples of indices, quotients and remainders"): "product",
    ("control", "there is no PTX for the statement {}"): "a class of statements of one's own",
    ("flow", "a branch that is never taken is not written"): "a block without rounds is left out before",
    ("fix_up", "{} fixes up a tile outside a role"): "p.fix_up stands in a role, or is refused",
    ("fix_up", "the roles that take turns at tiles fix up tiles of different sizes"): "turns",
    ("gmem", "{} is no window of a tensor"): TYPE,
    ("grid", "no tile is open"): OPEN,
    ("handover", "the roles that consume {} share the tiles in different ways"): HANDOVER,
    ("handover", "the roles that take turns at consuming {} have different numbers of warps"): HANDOVER,
    ("handover", "the roles that take turns at producing {} have different numbers of warps"): HANDOVER,
    ("handover", "role {} fills {} and consumes it itself; give one to another role"): HANDOVER,
    ("handover", "{} is produced by TMA, and its produce() does more than copy"): "more than copies",
    ("lower", "stream-K deals out the rounds of a loop over one dim, and this one has {}"): "stream-K",
    ("matrix", "{} does not load matrices"): TYPE,
    ("matrix", "{} takes scales from {} on, where no number is known before the launch"): SCALES,
    ("matrix", "{} does not store matrices"): TYPE,
    ("matrix", "{} ({}) has no form for {}"): "a rule of the family: transpose of NAME",
    ("matrix", "{} ({}) on operands outside registers cannot be written for a warp"): TYPE,
    ("moves", "{} is no window of a tensor"): TYPE,
    ("moves", "{} is not aligned to {} elements"): "a rule of the family: alignment of NAME",
    ("moves", "{} moves {} elements, and a thread holds {}"): "a rule of the family: vector along NAME",
    ("moves", "{} does not load thread by thread"): TYPE,
    ("moves", "{} does not load whole tiles thread by thread"): TYPE,
    ("prefetch", "{} does not load registers"): TYPE,
    (
        "prefetch",
        "{} of the {} steps of {}, which has {} stages, are to be loaded ahead; of two steps or more one can be, in "
        "two stages or more",
    ): "tinygpu.language.derive: prefetch of NAME",
    ("moves", "{} does not store registers thread by thread"): TYPE,
    ("moves", "an access that never exists is not written"): OPEN,
    ("moves", "{} ({}) cannot be written for this target yet"): TYPE,
    ("moves", "{}: {} is not an instruction that lowering can write"): TYPE,
    ("moves", "{} needs a partition"): TYPE,
    ("reach", "{} is not lowered: {}; kernels are written for instructions that are not traced only"): (
        "what is traced only says so itself"
    ),
    ("relayout", "%{} cannot be given to other holders: {}"): "relayout",
    ("relayout", "%{} goes to other warps, and {} stays within a warp"): "other threads",
    ("relayout", "%{} goes to other threads, and nothing is said that brings it there"): "other threads",
    ("reduction", "%{} is held by several {} along axis {}, and nothing is said that lets them meet"): (
        "a rule of p.reduce: reduction of NAME"
    ),
    ("roles", "role {} has a register budget: its {} warps from warp {} on must be whole warpgroups"): (
        "a rule of p.role: warpgroups of NAME"
    ),
    ("context", "{} begins where no number is known before the launch"): "moving part",
    ("look_back", "nothing is said that shifts %{} between lanes"): "p.scan refuses it, in tests/tinygpu/language",
    ("scan", "nothing is said that shifts %{} between lanes"): "p.scan refuses it, in tests/tinygpu/language",
    ("smem", "{} does not lie in SMEM"): TYPE,
    ("tensor_memory", "an accumulator in tensor memory begins as 0, not as {}"): TYPE,
    ("tensor_memory", "the window of {} begins at no fixed column of all lanes"): COMMITTED,
    ("tensor_memory", "{} ({}) does not multiply into tensor memory"): TYPE,
    ("tensor_memory", "{} adds to {}, which begins as nothing: p.clear it before"): COMMITTED,
    ("tensor_memory", "{} does not load from tensor memory"): TYPE,
    ("tensor_memory", "{} does not store into tensor memory"): TYPE,
    ("tensor_memory", "neighbouring columns of a cell are not in one register"): "a rule of the family: cells of NAME",
    ("tensor_memory", "{} lies in no tensor memory"): TYPE,
    ("tensor_memory", "{} ({}) does not copy into tensor memory"): TYPE,
    ("tensor_memory", "{} takes scales from {} on, where no number is known before the launch"): SCALES,
    ("warpgroup", "{} is no operand of {}: it lies in no swizzled buffer"): "plain operands",
    ("warpgroup", "the window of {} moves at run time, and descriptors are made for fixed windows"): "moving operands",
    ("warpgroup", "the warpgroups' parts of {} do not begin at widths of its swizzle"): "narrow",
    ("warpgroup", "an operand {} bytes into shared memory begins at no multiple of 16 bytes"): "steps of operands",
    ("warpgroup", "{} ({}) cannot be written here: no warpgroups multiply"): TYPE,
    ("warpgroup", "{}: {} warpgroups do not divide {} rows"): "idle warpgroups",
    ("warpgroup", "{} multiplies {}, which its own role produces; another role produces it by TMA"): (
        "own right operand"
    ),
}  # fmt: skip


def sentences() -> set[tuple[str, str]]:
    """(file, sentence) of every place of the room that raises a LoweringError."""
    found = set()
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_ours(node.exc.func):
                parts = node.exc.args[0].values if isinstance(node.exc.args[0], ast.JoinedStr) else [node.exc.args[0]]
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
                found.add((path.stem, text))
    return found


def _is_ours(raised: ast.expr) -> bool:
    return isinstance(raised, ast.Name) and raised.id == "LoweringError"


def test_every_refusal_of_lowering_has_a_declaration_that_refuses_first_or_cannot_be_reached() -> None:
    assert sentences() == PLACES.keys()
    named = {why for why in PLACES.values() if " " not in why or why in {*REFUSED, *NO_CANDIDATE}}
    assert named <= {*REFUSED, *NO_CANDIDATE, HANDOVER}


# --- what stands next to a refusal is right -----------------------------------------------------------------------

RIGHT: dict[str, tuple[Callable[[], type[Machine]], dict[str, int]]] = {
    "maximum": (lambda: scaled(lambda s: maximum(s.m, s.n)), {"m": 8, "n": 40}),
    "minimum of three": (lambda: scaled(lambda s: minimum(s.m, s.n, 7)), {"m": 8, "n": 40}),
    "square": (lambda: scaled(lambda s: s.m * s.m), {"m": 5, "n": 40}),
    "boxes": (brought, {"m": 40, "n": 96, "b": 1}),
    "boxes of a batch": (lambda: brought(shape=(1, 8, 32)), {"b": 3, "m": 20, "n": 64}),
    "boxes of two": (lambda: brought(shape=(2, 8, 32)), {"b": 3, "m": 20, "n": 64}),
    "rows of a batch": (lambda: brought(rows_by_hand(), (2, 8, 32), None), {"b": 4, "m": 16, "n": 64}),
    "warpgroups": (lambda: multiplied(warps=8, tiles=(2, 1), major="col"), {"m": 128, "n": 64, "k": 128}),
    "registers": (lambda: multiplied(isa.WgmmaRegisters(64), registers=True), {"m": 128, "n": 64, "k": 128}),
    "turns": (lambda: by_turns((8, 8)), {"m": 40, "n": 70}),
}


def scaled(factor: Callable[[Any], Any]) -> type[Machine]:
    made = plain(operand=lambda s, p, i, j: factor(s))

    def reference(x: Any) -> Any:
        return x * int(expr(factor(SimpleNamespace(m=x.shape[0], n=x.shape[1]))))

    made.reference = staticmethod(reference)  # type: ignore[method-assign]
    return made


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RIGHT)
def test_what_can_be_written_is_right(name: str) -> None:
    make, dims = RIGHT[name]
    machine = make()
    space = build_space(machine, machine.problem(**dims), device("h100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(3)))
    kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
    assert verify(kernel, machine, space.problem, orders=("late",)).passed
