"""What the emulator says of little programs is what the memory model says: races, and rules of advisories."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from litmus import Access, Barrier, Before, Draw, Fence, Litmus, Meet, Receive, Scope, Send, Space, Statement, Thread

from tinygpu.ptx.emulator import ORDERS


def check(seed: int) -> None:
    litmus = Draw(np.random.default_rng(seed)).litmus()
    want = litmus.verdict()
    order = ORDERS[seed % len(ORDERS)]
    found = litmus.found(order, seed)
    assert want.agrees(*found), f"seed {seed}, order {order}: {found}, not {want}\n{litmus}"


@pytest.mark.end_to_end
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (24, 48))])
def test_races_and_advisories_are_those_of_the_memory_model(first: int) -> None:
    for seed in range(first, first + 24):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_races_and_advisories_are_those_of_the_memory_model_at_length(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


# ---- chosen programs: what chance draws too seldom -------------------------------------------------------------------

ORDERED = (Send(0, "release", "gpu"), Receive(0, "acquire", "gpu"))
UNORDERED = (Send(0, "relaxed", "gpu"), Receive(0, "relaxed", "gpu"))


def agree(litmus: Litmus) -> None:
    want, found = litmus.verdict(), litmus.found()
    assert want.agrees(*found), f"{found}, not {want}\n{litmus}"


def two(one: Thread, other: Thread, between: tuple[Send, Receive], first: Access, second: Access, *,
        clustered: bool = False, word: tuple[Space, int] = ("global", 0), before: Statement | None = None,
        ) -> Litmus:  # fmt: skip
    """Two threads, of which the one accesses the word and then raises a flag, for which the other waits."""
    earlier = () if before is None else ((one, before),)
    steps = (*earlier, (one, first), (one, between[0]), (other, between[1]), (other, second))
    return Litmus(1 + other.cta, clustered, word, ("global", 0), steps)


@pytest.mark.parametrize("second", [Access("ld"), Access("ld", "relaxed"), Access("red", "relaxed"), Access("bulk")])
@pytest.mark.parametrize("first", [Access("st"), Access("bulk")])
def test_what_stood_at_a_place_before_counts_no_more(first: Access, second: Access) -> None:
    """Neither that atomics wrote there, which strong accesses need no order with, nor that it was not initialised."""
    for kind in ("red", "undefined"):
        for between in (ORDERED, UNORDERED):
            before = Before(kind)
            agree(two(Thread(0, 0), Thread(0, 1), between, first, second, word=("shared", 0), before=before))


@pytest.mark.parametrize("place", [(Thread(0, 1), False), (Thread(1, 0), True), (Thread(1, 0), False)], ids=str)
def test_scopes_matter_between_strong_accesses_that_nothing_orders(place: tuple[Thread, bool]) -> None:
    other, clustered = place
    for one, two_ in (("cta", "gpu"), ("gpu", "cta"), ("cluster", "cluster"), ("gpu", "gpu")):
        first, second = Access("red", "relaxed", one), Access("red", "relaxed", two_)
        for between in (ORDERED, UNORDERED):
            agree(two(Thread(0, 0), other, between, first, second, clustered=clustered))


@pytest.mark.parametrize("place", [(Thread(0, 1), False), (Thread(1, 0), True), (Thread(1, 0), False)], ids=str)
def test_a_plain_read_of_what_atomics_change_is_a_race_within_a_cluster(place: tuple[Thread, bool]) -> None:
    other, clustered = place
    for second in (Access("red", "relaxed"), Access("st", "relaxed"), Access("st")):
        for between in (ORDERED, UNORDERED):
            agree(two(Thread(0, 0), other, between, Access("ld"), second, clustered=clustered))


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("fence", [0, 1])
def test_a_fence_and_a_release_are_for_what_their_lanes_did(fence: int, ctas: int) -> None:
    """Lane 1 writes; a fence, and a flag of lane 0 or 1, with and without the lanes' meeting between any two."""
    other = Thread(0, 1) if ctas == 1 else Thread(1, 0)
    word: tuple[Space, int] = ("global", 0)
    for first_meets, then_meet, lane in itertools.product((False, True), (False, True), (0, 1)):
        if first_meets and not then_meet and lane != fence:
            continue  # who fences for another lane that has met it before is not told
        steps: list[tuple[Thread, Statement]] = [(Thread(0, 0, 1), Access("st"))]
        steps += [(Thread(0, 0), Meet())] * first_meets + [(Thread(0, 0, fence), Fence("gpu"))]
        steps += [(Thread(0, 0), Meet())] * then_meet + [(Thread(0, 0, lane), Send(0, "relaxed", "gpu"))]
        steps += [(other, Receive(0, "acquire", "gpu")), (other, Access("ld"))]
        agree(Litmus(ctas, False, word, word, tuple(steps)))


@pytest.mark.parametrize(("clustered", "flags"), [(False, "global"), (True, "global"), (True, "shared")])
def test_a_barrier_hands_on_what_one_warp_has_learned(clustered: bool, flags: Literal["global", "shared"]) -> None:
    one, other, third = Thread(0, 0), Thread(1, 0), Thread(1, 1)
    for sent, received in itertools.product(("release", "relaxed"), ("acquire", "relaxed")):
        message = ((one, Send(0, sent, "gpu")), (other, Receive(0, received, "gpu")))  # type: ignore[arg-type]
        steps = ((one, Access("st")), *message, (other, Barrier()), (third, Barrier()), (third, Access("ld")))
        agree(Litmus(2, clustered, ("global", 0), (flags, 0), steps))


# ---- sentences -------------------------------------------------------------------------------------------------------

ONE, OTHER = Thread(0, 0), Thread(1, 0)
FENCED = (Fence("gpu"), *UNORDERED)


def sentences(clustered: bool, before: Access, between: tuple[Statement, ...], after: Access) -> list[str]:
    """What is said of two accesses to a word of global memory, by CTAs 0 and 1."""
    senders = tuple((ONE, s) for s in between if not isinstance(s, Receive))
    receivers = tuple((OTHER, s) for s in between if isinstance(s, Receive))
    steps = ((ONE, before), *senders, *receivers, (OTHER, after))
    report = Litmus(2, clustered, ("global", 0), ("global", 0), steps).run()
    return [*(fault.sentence for fault in report.faults), *(advisory.sentence for advisory in report.advisories)]


@pytest.mark.parametrize(
    ("clustered", "scope", "whose", "wanted"),
    [
        (False, "cluster", "another CTA", ".gpu or .sys"),
        (False, "cta", "another CTA", ".gpu or .sys"),
        (True, "cta", "another CTA of the cluster", ".cluster, .gpu or .sys"),
    ],
)
def test_a_scope_that_does_not_reach_is_named(clustered: bool, scope: Scope, whose: str, wanted: str) -> None:
    narrow, wide = Access("red", "relaxed", scope), Access("red", "relaxed", "gpu")
    for before, after in ((narrow, wide), (wide, narrow)):
        assert sentences(clustered, before, UNORDERED, after) == [
            f"meets a strong access or atomic of {whose} at the same place, and nothing else orders the two: both must "
            f"have {wanted} scope"
        ]


def test_a_plain_read_of_what_another_cluster_updates_is_named() -> None:
    assert sentences(False, Access("ld"), UNORDERED, Access("red", "relaxed", "gpu")) == [
        "changes what CTA (0, 0, 0) read with a plain load, and nothing orders the two: the load should be .relaxed or "
        ".volatile"
    ]


def test_a_fence_that_is_missing_behind_the_read_of_a_flag_is_named() -> None:
    missing = "published: after the atomic or strong load that saw it, a fence (or .acquire) is missing"
    for clustered, whom in ((False, "CTA (0, 0, 0)"), (True, "warp 0 of the cluster's CTA 0")):
        assert sentences(clustered, Access("st"), FENCED, Access("ld")) == [f"accesses what {whom} {missing}"]
