"""What `tune` prints can be read: few rows, a line for each machine that does not apply, ties as a count."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.api.choosing import Failed
from tinygpu.api.machines import FAMILIES, SHIPPED, Family, family
from tinygpu.api.problems import Asked, Refusal
from tinygpu.api.tune import NothingFound, Searched, Tuned, tune
from tinygpu.cli.printing import console, short_point
from tinygpu.cli.tuned import INPUTS, funnel, tensor_memory, tuned_report
from tinygpu.devices import device
from tinygpu.ptx.runtime.driver import DriverStatus
from tinygpu.ptx.verification.comparison import Check
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.verify import Verification
from tinygpu.search.predicted import PredictedTime, counted_at
from tinygpu.search.preference import alike, division
from tinygpu.spaces.build import MachineSpace, build_space

FILES = (Path("runs/x/kernel.ptx"), Path("runs/x/launch.json"))
NO_DRIVER = DriverStatus(False, "no driver")

# The lines that a person finds at a glance: of the funnel, of the best, and of a whole run of four machines.
FUNNEL, BEST, WHOLE = 10, 6, 45


def printed(t: Tuned, *, verbose: bool = False) -> list[str]:
    with console.capture() as captured:
        tuned_report(t, FILES, NO_DRIVER, verbose=verbose)
    return captured.get().splitlines()


def after(lines: list[str], title: str) -> list[str]:
    """The rows of a table: what follows its title and its header, down to an empty line or a line that is no row."""
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    return list(itertools.takewhile(str.strip, lines[start + 2 :]))


# -- the funnel ----------------------------------------------------------------------------------------------------

rows_of_a_funnel = st.lists(
    st.builds(
        SimpleNamespace,
        name=st.sampled_from([f"{rule}{about}" for rule in "abcdefghijklmnop" for about in ("", " (x)", " (y)")]),
        kind=st.sampled_from(["legality", "dominance"]),
        source=st.sampled_from(["ld.global", "SMEM"]),
        removed=st.integers(0, 10**12),
    ),
    max_size=40,
)


@given(rows_of_a_funnel)
@settings(max_examples=60)
def test_a_funnel_has_ten_rows_at_most_and_loses_no_point(listed: list[Any]) -> None:
    space = SimpleNamespace(space=SimpleNamespace(funnel=listed), machine=SimpleNamespace(__name__="M"))
    with console.capture() as captured:
        funnel(cast(MachineSpace, space))
    removed: Counter[tuple[str, str, str]] = Counter()
    for row in listed:
        removed[(row.name[0], row.kind, row.source)] += row.removed
    expected = sorted((count for count in removed.values() if count), reverse=True)
    if not expected:
        assert captured.get() == ""
        return
    rows = after(captured.get().splitlines(), "what M's constraints remove")
    assert 1 <= len(rows) <= FUNNEL
    counts = [int(row.split()[-1].replace(",", "")) for row in rows]
    shown = counts if len(expected) <= FUNNEL else counts[:-1]
    assert shown == expected[: len(shown)]
    assert sum(counts) == sum(expected)
    if len(expected) > FUNNEL:
        assert rows[-1].startswith(f"{len(expected) - len(shown)} more ")


# -- a run ---------------------------------------------------------------------------------------------------------


def tuned_unverified(machines: Family, asked: Asked, gpu: str) -> Tuned:
    """A run whose winner is said to be right: what the emulator finds is no matter of this file."""
    right = Verification("kernel", asked.of(machines.machines[-1]), (Check("integers", "early", 0.0, 0.0, 0, 1),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygpu.api.tune.verified_apart", lambda winner, seed: right)
        return tune(machines, asked, device(gpu))


@cache
def run() -> Tuned:
    """One small machine; not a fixture, because hypothesis prints what a law was given."""
    return tuned_unverified(family("axpby"), Asked({"n": 1000}), "a100")


def not_applying(sentence: str) -> Searched:
    return replace(run().searched[0], result=None, finalists=(), sentence=sentence)


sentences = st.lists(st.text("abc [/]:x", min_size=1, max_size=30).map(str.strip).filter(bool), min_size=1, max_size=9)


@pytest.mark.end_to_end
@example([[":x: is no picture", "[bold]"]], 1, 1)
@given(st.lists(sentences, max_size=6), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=12)
def test_a_machine_that_does_not_apply_takes_one_line(
    reasons: list[list[str]], refused: int, failed: int
) -> None:
    """However many reasons there are, and whatever is written in them; the whole run grows by these lines alone."""
    failure = Failed(run().winner.space, run().winner.refined.point, "assembling", ValueError("[no] room"))
    others = replace(
        run(),
        searched=(*(not_applying("; ".join(r)) for r in reasons), *run().searched),
        refused=(Refusal("Other", "Other: a can be [f32] here"),) * refused,
        failed=(failure,) * failed,
    )
    lines = printed(others)
    assert len(lines) == len(printed(run())) + len(reasons) + refused + failed
    assert [line for line in lines if "does not apply" in line] == [f"Axpby does not apply: {r[0]}" for r in reasons]
    assert lines.count("Other does not take this problem: Other: a can be [f32] here") == refused
    assert lines.count(f"left out: {failure}") == failed


@pytest.mark.end_to_end
def test_every_reason_is_there_for_those_who_ask() -> None:
    (hopper,) = family("matmul_hopper").machines
    space = build_space(hopper, Asked({"m": 64, "n": 64, "k": 64}).of(hopper), device("a100"))
    other = Searched(space, None, (), "one; two; three")
    lines = printed(replace(run(), searched=(other, *run().searched)), verbose=True)
    assert "MatmulHopper does not apply: one; two; three" in lines
    assert "MatmulHopper does not apply: one" in printed(replace(run(), searched=(other, *run().searched)))


def way(t: Tuned, number: int) -> tuple[int, ...]:
    """How the candidate of this row divides the work."""
    f = t.searched[0].finalists[number]
    return tuple(division(counted_at(f.space, f.refined.point)).tolist())


@pytest.mark.end_to_end
def test_six_rows_that_differ_in_what_matters_and_ties_as_a_count() -> None:
    lines = printed(run())
    rows = after(lines, "the best that divide the work differently")[:BEST]
    assert [row.split()[0] for row in rows] == [str(number) for number in range(1, BEST + 1)]
    assert len({way(run(), number) for number in range(BEST)}) == BEST
    points = [line for line in lines if re.match(r"\d: ", line)]
    assert len(points) == BEST
    (s,) = run().searched
    assert s.result is not None
    tied = 0
    for number, line in enumerate(points):
        point = s.finalists[number].refined.point
        others, differ = alike(PredictedTime(s.space), s.result, point)
        tie = f"; and {others:,} more that the model does not tell apart (other {', '.join(differ)})" if others else ""
        assert line == f"{number + 1}: {short_point(s.finalists[number])}{tie}"
        tied += others
    assert tied, "no candidate of this run has a tie"
    assert lines.count("not told apart: predicted times within 0.5 %, and as many CTAs, threads and rounds") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, *SHIPPED])
@pytest.mark.parametrize("gpu", ["a100", "rtx4090", "h100", "b200"])
def test_a_run_of_what_is_shipped_fits_on_a_screen(name: str, gpu: str) -> None:
    sizes = {"m": 512, "n": 1024, "k": 768}
    machines = family(name)
    asked = Asked({dim: sizes[dim] for dim in machines.machines[0].dim_names()})
    try:
        found = tuned_unverified(machines, asked, gpu)
    except NothingFound:
        return
    lines = printed(found)
    assert len(lines) <= WHOLE
    title = f"what {found.winner.space.machine.__name__}'s constraints remove"
    assert len(after(lines, title)) <= FUNNEL


def test_whatever_a_kernel_is_tried_with_has_words() -> None:
    assert INPUTS.keys() == set(get_args(Inputs))


@pytest.mark.parametrize(("name", "on"), [("matmul_ampere", "b200"), ("matmul_ampere", "a100"), ("axpby", "b200")])
def test_a_winner_beside_tensor_memory_says_what_it_leaves(name: str, on: str) -> None:
    (machine,) = family(name).machines
    dims = {"n": 64} if name == "axpby" else {"m": 64, "n": 64, "k": 64}
    space = build_space(machine, machine.problem(**dims), device(on))
    part = SimpleNamespace(space=space, refined=SimpleNamespace(point=space.space.at(0)))
    said = tensor_memory(device(on), cast(Any, SimpleNamespace(parts=(part,))))
    beside = name == "matmul_ampere" and on == "b200"
    assert said == beside * (
        "it does not multiply in tensor memory: mma.sync reaches at most 24 % of the tensor rate of B200, tcgen05.mma "
        "all of it"
    )
