"""Values behind loops: moved code does the same, and no more registers go through a loop than did; smallest cuts."""

from __future__ import annotations

import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.lowering.behind_loops import behind_loops
from tinygpu.ptx.lowering.cut import smallest_cut

REGISTER = re.compile(r"%[rdp]\d+")
Shape = list["int | tuple[str, Shape]"]
shapes: st.SearchStrategy[Shape] = st.recursive(
    st.lists(st.integers(0, 99), max_size=5),
    lambda inner: st.lists(st.integers(0, 99) | st.tuples(st.sampled_from(["loop", "skip"]), inner), max_size=6),
    max_leaves=40,
)


class Written:
    """A kernel of computed values, uses of them, loops and branches, as lowering nests them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pure: set[str] = set()
        self.count = 0

    def block(self, shape: Shape, known: list[str]) -> None:
        for number in shape:
            if isinstance(number, tuple):
                kind, inner = number
                self.count += 1
                label = f"${kind}{self.count}"
                self.lines.append(f"{label}:" if kind == "loop" else f"  @%p0 bra {label};")
                self.block(inner, list(known))
                self.lines.append(f"  @%p0 bra {label};" if kind == "loop" else f"{label}:")
            elif number % 3 == 0:
                self.lines.append(f"  st.global [%d1], {known[number // 3 % len(known)]};")
            else:
                name = f"%{'rd'[number % 2]}{len(self.pure) + 10}"
                of = [known[number // k % len(known)] for k in (2, 5)]
                self.lines.append(f"  add {name}, {', '.join(of)};")
                self.pure.add(name)
                known.append(name)


def written(shape: Shape) -> Written:
    found = Written()
    found.block(shape, ["%r0", "%d1", "%r2"])
    return found


def carried_out(lines: list[str], choices: int) -> list[str]:
    """The lines that are no computed values, in the order in which they are carried out; all they read is there."""
    at, steps, done = 0, 0, []
    there = {"%r0", "%d1", "%r2", "%p0"}
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.startswith("$")}
    while at < len(lines) and steps < 400:
        line, steps = lines[at], steps + 1
        at += 1
        if "bra" in line:
            choices = choices * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            done.append(line)
            if choices >> 60 & 1:
                at = labels[line.split()[-1][:-1]]
        elif line.strip().startswith("add"):
            made, *of = REGISTER.findall(line)
            assert there.issuperset(of), line
            there.add(made)
        elif not line.startswith("$"):
            assert there.issuperset(REGISTER.findall(line)), line
            done.append(line)
    return done


def through(lines: list[str], pure: set[str], label: str) -> int:
    """Registers of computed values that go through a loop: known before, and used in it or behind it."""
    first = lines.index(f"{label}:")
    last = max(i for i, line in enumerate(lines) if line.endswith(f"bra {label};"))
    before = {REGISTER.findall(line)[0] for line in lines[:first] if line.strip().startswith("add")}
    later = set(REGISTER.findall(" ".join(lines[first:])))
    again = set(REGISTER.findall(" ".join(lines[first : last + 1])))
    return sum(2 if name[1] == "d" else 1 for name in before & (later | again) & pure)


@given(shapes, st.integers(0, 1 << 63))
@settings(max_examples=150, deadline=None)
def test_moved_lines_do_the_same_and_no_more_goes_through_a_loop(shape: Shape, choices: int) -> None:
    kernel = written(shape)
    moved = behind_loops(kernel.lines, kernel.pure, {"%r0"}, "$loop")
    assert sorted(moved) == sorted(kernel.lines)
    assert carried_out(moved, choices) == carried_out(kernel.lines, choices)
    for line in kernel.lines:
        if line.startswith("$loop"):
            label = line[:-1]
            assert through(moved, kernel.pure, label) <= through(kernel.lines, kernel.pure, label)


def test_addresses_of_an_epilogue_are_computed_behind_the_loop_of_what_it_needs_anyway() -> None:
    lines = [
        "  add %r10, %r0, %r3;",  # used in the loop
        "  add %d11, %r10, %d1;",
        "  add %d12, %d11, %d1;",
        "  add %r13, %r3, 1;",
        "$loop1:",
        "  st.shared [%r10], %r13;",
        "  @%p0 bra $loop1;",
        "  st.global [%d11], %r0;",
        "  st.global [%d12], %r0;",
    ]
    pure = {"%r10", "%d11", "%d12", "%r13"}
    assert behind_loops(lines, pure, {"%r0", "%d1", "%r3"}, "$loop") == [lines[i] for i in (0, 3, 4, 5, 6, 1, 2, 7, 8)]
    written_again = behind_loops(lines, pure, {"%r0", "%d1"}, "$loop")  # %r3 may be another number behind the loop
    assert written_again == [lines[i] for i in (0, 3, 4, 5, 6, 1, 2, 7, 8)]
    assert behind_loops(lines, pure - {"%r10"}, {"%r0", "%r3"}, "$loop") == lines  # so may %r10 and %d1


def test_what_the_loop_uses_goes_through_it_anyway() -> None:
    lines = ["  add %r10, %r3, 1;", "  add %r11, %r10, 1;", "$loop1:", "  st [%r10], %r3;", "  @%p0 bra $loop1;"]
    end = "  st [%r11], %r3;"
    assert behind_loops([*lines, end], {"%r10", "%r11"}, {"%r0"}, "$loop") == [lines[0], *lines[2:], lines[1], end]
    unused = [lines[0], lines[1], lines[2], lines[4], end]
    assert behind_loops(unused, {"%r10", "%r11"}, {"%r0"}, "$loop") == unused  # one register goes through, either way


def test_a_value_that_something_before_the_loop_needs_stays_there() -> None:
    lines = [
        "  add %d10, %r0, 1;",  # costs nothing behind the loop, but %r12 is made of it
        "  add %d11, %r3, 1;",
        "  add %r12, %d10, %d11;",
        "  add %d13, %d10, 1;",
        "$loop1:",
        "  @%p0 bra $loop1;",
        "  st [%d13], %r12;",
    ]
    moved = behind_loops(lines, {"%d10", "%d11", "%r12", "%d13"}, {"%r0"}, "$loop")
    assert carried_out([line.replace("%r3", "%r0") for line in moved], 0)
    assert moved[:3] == lines[:3]


def test_what_is_behind_a_branch_around_a_loop_is_moved_behind_the_branch() -> None:
    value, use = "  add %r10, %r0, 1;", "  st %r10;"
    around = ["  @%p0 bra $skip1;", "$loop2:", "  @%p0 bra $loop2;", "$skip1:"]
    assert behind_loops([value, *around, use], {"%r10"}, {"%r0"}, "$loop") == [*around, value, use]


GRAPHS = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 6), max_size=3)), min_size=1, max_size=7)


@given(GRAPHS, st.sets(st.integers(0, 6), min_size=1))
@settings(max_examples=200, deadline=None)
def test_a_cut_is_the_smallest_of_all(graph: list[tuple[int, list[int]]], ends: set[int]) -> None:
    size = {f"v{i}": weight for i, (weight, _) in enumerate(graph)}
    operands = {f"v{i}": tuple(sorted({f"v{o}" for o in of if o < i})) for i, (_, of) in enumerate(graph)}
    needed = {f"v{i}" for i in ends if i < len(graph)} or {"v0"}
    anew = smallest_cut(operands, needed, size)

    def kept(computed: set[str]) -> int | None:
        """The size of what is kept where these are computed anew; None where one of them cannot be."""
        if any(not operands[name] for name in computed):
            return None
        wanted, ahead = set(needed), list(needed)
        while ahead:
            name = ahead.pop()
            if name in computed:
                ahead += set(operands[name]) - wanted
                wanted |= set(operands[name])
        return sum(size[name] for name in wanted - computed)

    names = sorted(size)
    subsets = (set(some) for count in range(len(names) + 1) for some in itertools.combinations(names, count))
    costs = [(cost, len(some)) for some in subsets if (cost := kept(some)) is not None]
    found = kept(anew)
    assert found is not None
    assert (found, len(anew)) == min(costs)
