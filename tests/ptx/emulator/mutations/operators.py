"""What is done to the synchronisation of a kernel: one statement (or pair) left out or weakened at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from mutations.retries import retries
from mutations.statements import Statement, replace, statements

Edit: TypeAlias = tuple[Statement, str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of kind `kind`, in words, by edits.

    probe  edits under which the kernel traps where it would notice the change; () where there are none
    """

    kind: str
    change: str
    edits: tuple[Edit, ...]
    probe: tuple[Edit, ...] = ()


Operator: TypeAlias = Callable[[Statement], Iterator[tuple[str, str, str]]]
"""Proposals for one statement: (kind, what was changed in words, its replacement)."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one synchronisation changed.

    kind    of change, a row in the table of scores
    number  among the mutants of its kind in this kernel, from 0
    change  in words
    lines   of the statements that were changed
    text    the whole module
    probe   a module that traps as soon as the change would matter; "" where there is none
    """

    kind: str
    number: int
    change: str
    lines: frozenset[int]
    text: str
    probe: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    def __str__(self) -> str:
        return f"{self.name} (line {min(self.lines)}): {self.change}"


def mutants(text: str, entry: str) -> list[Mutant]:
    """Every mutant of one kernel of a module.

    Relaxed mbarriers exist from sm_90 on: kernels for older targets become ones for that.
    """
    result: list[Mutant] = []
    counts: dict[str, int] = {}
    body = statements(text, entry)
    again = (
        Proposal("retry", f"never again: {back[0]}", tuple((s, "") for s in back)) for back in retries(text, body)
    )
    for proposal in chain(_proposals(body), again):
        kind = proposal.kind
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        lines = frozenset(text.count("\n", 0, s.start) + 1 for s, _ in proposal.edits)
        probe = replace(text, proposal.probe) if proposal.probe else ""
        edited = replace(text, proposal.edits)
        if kind == "mbarrier order":
            edited = re.sub(r"^\.target sm_8\d\b", ".target sm_90", edited, count=1, flags=re.M)
        result.append(Mutant(kind, number, proposal.change, lines, edited, probe))
    return result


def _proposals(body: Sequence[Statement]) -> Iterator[Proposal]:
    for statement in body:
        for operator in OPERATORS:
            for kind, change, new in operator(statement):
                yield Proposal(kind, change, ((statement, new),))
        yield from _frozen_parity(statement)
    yield from _cluster_barriers(body)


def _frozen_parity(s: Statement) -> Iterator[Proposal]:
    """A wait whose parity never flips."""
    if not (s.has("mbarrier", "parity") and not s.operands[2].isdigit()):
        return
    target, where, parity, *limit = s.operands
    for frozen in "01":
        probe = (
            f"{{ .reg .b32 %bit; .reg .pred %other; and.b32 %bit, {parity}, 1; setp.ne.u32 %other, %bit, {frozen}; "
            f"@%other trap; {s} }}"
        )
        new = s.with_name(s.name, target, where, frozen, *limit)
        yield Proposal("parity", f"{s}: parity always {frozen}", ((s, new),), ((s, probe),))


def _cluster_barriers(body: Sequence[Statement]) -> Iterator[Proposal]:
    """Cluster barriers: an arrival and the wait that follows it belong together."""
    arrivals = [n for n, s in enumerate(body) if s.has("barrier", "cluster", "arrive")]
    for n in arrivals:
        wait = next((s for s in body[n:] if s.has("barrier", "cluster", "wait")), None)
        if wait is not None:
            yield Proposal("cluster barrier", f"left out: {body[n]} ... {wait}", ((body[n], ""), (wait, "")))
        if not body[n].has("relaxed"):
            weak = body[n].with_name(_order(body[n], "relaxed"))
            yield Proposal("cluster barrier's order", f"{body[n]} -> {weak}", ((body[n], weak),))


def _order(s: Statement, order: str) -> str:
    """The name with another memory order; `barrier.cluster.arrive.aligned` has none written."""
    parts = s.parts
    for n, part in enumerate(parts):
        if part in ("release", "acquire", "acq_rel"):
            return ".".join([*parts[:n], order, *parts[n + 1 :]])
    at = parts.index("arrive") + 1
    return ".".join([*parts[:at], order, *parts[at:]])


def _left_out(s: Statement) -> Iterator[tuple[str, str, str]]:
    """Statements that are left out whole."""
    for kind, pattern in REMOVED:
        if re.match(pattern, s.name):
            yield kind, f"left out: {s}", ""
            return


REMOVED: tuple[tuple[str, str], ...] = (
    ("warp barrier", r"bar\.warp\.sync"),
    ("barrier's arrival", r"(bar|barrier)(\.cta)?\.arrive"),
    ("barrier", r"(bar|barrier)(\.cta)?\.sync"),
    ("bulk commit", r"cp\.async\.bulk\.commit_group"),
    ("bulk wait", r"cp\.async\.bulk\.wait_group"),
    ("commit group", r"cp\.async\.commit_group"),
    ("wait group", r"cp\.async\.wait_(group|all)"),
    ("copies' arrival", r"cp\.async\.mbarrier\.arrive"),
    ("arrival", r"mbarrier\.arrive(_drop)?(?!.*expect_tx)"),
    ("invalidation", r"mbarrier\.inval"),
    ("proxy fence", r"fence\.proxy\.(async|tensormap)"),
    ("fence of mbarrier.init", r"fence\.mbarrier_init"),
    ("fence", r"fence\.(?!proxy)|membar"),
    ("wgmma.fence", r"wgmma\.fence"),
    ("wgmma commit", r"wgmma\.commit_group"),
    ("wgmma wait", r"wgmma\.wait_group"),
    ("tcgen05.commit", r"tcgen05\.commit"),
    ("tcgen05.wait::ld", r"tcgen05\.wait::ld"),
    ("tcgen05.wait::st", r"tcgen05\.wait::st"),
    ("tcgen05.fence before", r"tcgen05\.fence::before"),
    ("tcgen05.fence after", r"tcgen05\.fence::after"),
    ("tcgen05.dealloc", r"tcgen05\.dealloc"),
    ("tcgen05 permit", r"tcgen05\.relinquish"),
    ("grid dependency", r"griddepcontrol"),
    ("register budget", r"setmaxnreg"),
)


def _one_group_more(s: Statement) -> Iterator[tuple[str, str, str]]:
    """wait_group N waits for one group less."""
    if "wait_group" not in s.parts:
        return
    kind = "wgmma wait" if s.has("wgmma") else "bulk wait" if s.has("bulk") else "wait group"
    weaker = s.with_name(s.name, str(int(s.operands[0]) + 1))
    yield kind, f"{s} -> {weaker}", weaker


def _barrier_count(s: Statement) -> Iterator[tuple[str, str, str]]:
    """A named barrier that counts a warp less, and one that counts a warp more."""
    if not re.match(r"(bar|barrier)(\.cta)?\.(sync|arrive)", s.name) or len(s.operands) < 2:
        return
    for by in (-32, 32):
        if s.operands[1].isdigit() and int(s.operands[1]) + by <= 0:
            continue
        new = _moved(s, 1, by)
        yield "barrier's count", f"{s}: count {by:+}", new


def _moved(s: Statement, at: int, by: int) -> str:
    """The statement with a number added to one operand, an immediate or a register."""
    operand = s.operands[at]
    rest = list(s.operands)
    if operand.isdigit():
        rest[at] = str(int(operand) + by)
        return s.with_name(s.name, *rest)
    rest[at] = "%mutated"
    return f"{{ .reg .b32 %mutated; add.s32 %mutated, {operand}, {by}; {s.with_name(s.name, *rest)} }}"


def _mbarrier_waits(s: Statement) -> Iterator[tuple[str, str, str]]:
    """The wait succeeds at once; its parity is the other one; it acquires nothing."""
    if not (s.has("mbarrier") and {"try_wait", "test_wait"} & set(s.parts)):
        return
    yield "mbarrier wait", f"left out: {s}", s.with_name("setp.eq.u32", s.operands[0].split("|")[0], "0", "0")
    if s.has("parity"):
        parity = s.operands[2]
        target, where, *limit = s.operands[0], s.operands[1], *s.operands[3:]
        if parity.isdigit():
            other = s.with_name(s.name, target, where, str(int(parity) ^ 1), *limit)
            yield "parity", f"{s}: the other parity", other
        else:
            inner = s.with_name(s.name, target, where, "%mutated", *limit)
            other = f"{{ .reg .b32 %mutated; xor.b32 %mutated, {parity}, 1; {inner} }}"
            yield "parity", f"{s}: the other parity", other
    if not s.has("relaxed"):
        scope = "" if s.has("cta") or s.has("cluster") else ".cta"
        at = s.parts.index("parity" if s.has("parity") else "try_wait" if s.has("try_wait") else "test_wait") + 1
        kept = [p for p in s.parts if p != "acquire"]
        weak = ".".join([*kept[:at], f"relaxed{scope}", *kept[at:]])
        yield "mbarrier order", f"{s} -> relaxed", s.with_name(weak, *s.operands)


def _mbarrier_arrivals(s: Statement) -> Iterator[tuple[str, str, str]]:
    """Arrivals that release nothing, and transaction bytes that are wrong."""
    if not s.has("mbarrier"):
        return
    if {"arrive", "arrive_drop"} & set(s.parts) and not s.has("relaxed") and not s.has("cp"):
        kept = [p for p in s.parts if p not in ("release", "cta", "cluster")]
        scope = "cluster" if s.has("cluster") else "cta"
        at = max(kept.index(p) for p in ("arrive", "arrive_drop", "expect_tx", "noComplete") if p in kept) + 1
        weak = ".".join([*kept[:at], "relaxed", scope, *kept[at:]])
        yield "mbarrier order", f"{s} -> relaxed", s.with_name(weak, *s.operands)
    if not s.has("expect_tx"):
        return
    if s.has("arrive"):
        yield "expect_tx", f"without bytes: {s}", s.with_name(s.without("expect_tx"), *s.operands[:-1])
        yield "arrival", f"left out: {s}", ""
    else:
        yield "expect_tx", f"left out: {s}", ""
    last = len(s.operands) - 1
    for by in (-16, 16):
        yield "expect_tx bytes", f"{s}: {by:+}", _moved(s, last, by)
    operand, front = s.operands[last], s.operands[:last]
    if operand.isdigit():
        yield "expect_tx bytes", f"{s}: half", s.with_name(s.name, *front, str(int(operand) // 2))
    else:
        half = f"{{ .reg .b32 %mutated; shr.u32 %mutated, {operand}, 1; {s.with_name(s.name, *front, '%mutated')} }}"
        yield "expect_tx bytes", f"{s}: half", half


def _mbarrier_counts(s: Statement) -> Iterator[tuple[str, str, str]]:
    """mbarrier.init with one arrival less and one more."""
    if s.has("mbarrier", "init"):
        for by in (-1, 1):
            yield "arrival count", f"{s}: {by:+}", _moved(s, 1, by)


def _fence_forms(s: Statement) -> Iterator[tuple[str, str, str]]:
    """A fence that reaches the CTA only."""
    if re.match(r"fence\.(sc|acq_rel)\.(gpu|sys|cluster)$", s.name):
        yield "fence's scope", f"{s}: .cta", s.with_name(".".join([*s.parts[:2], "cta"]))
    elif s.name in ("membar.gl", "membar.sys"):
        yield "fence's scope", f"{s}: .cta", s.with_name("membar.cta")


def _order_of_accesses(s: Statement) -> Iterator[tuple[str, str, str]]:
    """.release and .acquire made .relaxed; strong accesses made plain."""
    opcode = s.parts[0]
    if opcode not in ("ld", "st", "atom", "red"):
        return
    orders = {"acquire", "release", "acq_rel"} & set(s.parts)
    if orders:
        weak = ".".join("relaxed" if p in orders else p for p in s.parts)
        yield "memory order", f"{s} -> relaxed", s.with_name(weak, *s.operands)
    if opcode in ("ld", "st") and {"acquire", "release", "relaxed", "volatile"} & set(s.parts):
        plain = s.without("acquire", "release", "relaxed", "volatile", "cta", "cluster", "gpu", "sys")
        yield "strong access made plain", f"{s} -> plain", s.with_name(plain, *s.operands)


def _scope(s: Statement) -> Iterator[tuple[str, str, str]]:
    """A scope that reaches the CTA only."""
    wide = {"gpu", "sys", "cluster"} & set(s.parts)
    if s.parts[0] in ("atom", "red", "ld", "st", "mbarrier") and wide and "async" not in s.parts:
        narrow = ".".join("cta" if p in wide else p for p in s.parts)
        yield "scope", f"{s} -> .cta", s.with_name(narrow, *s.operands)


_PLAIN = {"add": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}


def _plain_atomics(s: Statement) -> Iterator[tuple[str, str, str]]:
    """An atomic made of a plain load, the operation, and a plain store."""
    if s.parts[0] not in ("atom", "red") or "async" in s.parts:
        return
    kind = s.parts[-1]
    space = next((p for p in s.parts if p in ("global", "shared", "shared::cta", "shared::cluster")), "")
    place = f".{space}" if space else ""
    width = re.sub(r"\D", "", kind)
    operation = next((p for p in s.parts if p in (*_PLAIN, "exch", "cas")), None)
    if operation is None or not width or "x" in kind:
        return
    old, *given = s.operands if s.parts[0] == "atom" else ("%old", *s.operands)
    address, *values = given
    code = f"ld{place}.b{width} %was, {address}; "
    if operation == "exch":
        code += f"st{place}.b{width} {address}, {values[0]};"
    elif operation == "cas":
        code += f"setp.eq.b{width} %same, %was, {values[0]}; @%same st{place}.b{width} {address}, {values[1]};"
    else:
        typed = f"b{width}" if operation in ("and", "or", "xor") else kind
        code += f"{operation}.{typed} %new, %was, {values[0]}; st{place}.b{width} {address}, %new;"
    if s.parts[0] == "atom" and old != "_":
        code += f" mov.b{width} {old}, %was;"
    declared = f".reg .b{width} %was, %new; .reg .pred %same;"
    if s.guard:
        inverse = s.guard.strip()[1:]
        inverse = inverse[1:] if inverse.startswith("!") else f"!{inverse}"
        code = f"@{inverse} bra $mutated_end; {code} $mutated_end:"
    yield "atomic made plain", f"{s} -> plain", f"{{ {declared} {code} }}"


def _multicast(s: Statement) -> Iterator[tuple[str, str, str]]:
    """A multicast that leaves out the first CTA of its mask, and one that sends to the issuing CTA alone."""
    if "multicast::cluster" not in s.parts:
        return
    at = len(s.operands) - (2 if "L2::cache_hint" in s.parts else 1)
    mask = s.operands[at]
    front, back = s.operands[:at], s.operands[at + 1 :]
    inner = s.with_name(s.name, *front, "%fewer", *back)
    code = f"cvt.u32.u16 %mask, {mask}; " if not mask.isdigit() else f"mov.u32 %mask, {mask}; "
    code += "add.u32 %less, %mask, -1; and.b32 %less, %less, %mask; cvt.u16.u32 %fewer, %less;"
    yield "multicast", f"{s}: the lowest bit cleared", (
        f"{{ .reg .b32 %mask, %less; .reg .b16 %fewer; {code} {inner} }}"
    )


def _election(s: Statement) -> Iterator[tuple[str, str, str]]:
    """Every lane is elected."""
    if s.has("elect") and "|" in s.operands[0]:
        predicate = s.operands[0].split("|")[1]
        yield "election", f"{s}: all lanes", f"{s} {s.with_name('setp.eq.u32', predicate, '0', '0')}"


OPERATORS: tuple[Operator, ...] = (
    _left_out, _one_group_more, _barrier_count, _mbarrier_waits, _mbarrier_arrivals, _mbarrier_counts, _fence_forms,
    _order_of_accesses, _scope, _plain_atomics, _multicast, _election,
)  # fmt: skip
