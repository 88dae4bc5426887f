"""What the emulator says of little programs is what the memory model says: races, and rules of advisories."""

from __future__ import annotations

import numpy as np
import pytest
from litmus import Access, Draw, Fence, Litmus, Receive, Scope, Send, Statement, Thread

from tinygpu.ptx.emulator import ORDERS


def check(seed: int) -> None:
    litmus = Draw(np.random.default_rng(seed)).litmus()
    want = litmus.verdict()
    order = ORDERS[seed % len(ORDERS)]
    found = litmus.found(order, seed)
    assert want.agrees(*found), f"seed {seed}, order {order}: {found}, not {want}\n{litmus}"


@pytest.mark.parametrize("first", range(0, 72, 24))
def test_races_and_advisories_are_those_of_the_memory_model(first: int) -> None:
    for seed in range(first, first + 24):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_races_and_advisories_are_those_of_the_memory_model_at_length(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


ONE, OTHER = Thread(0, 0), Thread(1, 0)
BETWEEN = (Send(0, "relaxed", "gpu"), Receive(0, "relaxed", "gpu"))
FENCED = (Fence("gpu"), *BETWEEN)


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
        assert sentences(clustered, before, BETWEEN, after) == [
            f"meets a strong access or atomic of {whose} at the same place, and nothing else orders the two: both must "
            f"have {wanted} scope"
        ]


def test_a_plain_read_of_what_another_cluster_updates_is_named() -> None:
    assert sentences(False, Access("ld"), BETWEEN, Access("red", "relaxed", "gpu")) == [
        "changes what CTA (0, 0, 0) read with a plain load, and nothing orders the two: the load should be .relaxed or "
        ".volatile"
    ]


def test_a_fence_that_is_missing_behind_the_read_of_a_flag_is_named() -> None:
    missing = "published: after the atomic or strong load that saw it, a fence (or .acquire) is missing"
    for clustered, whom in ((False, "CTA (0, 0, 0)"), (True, "warp 0 of the cluster's CTA 0")):
        assert sentences(clustered, Access("st"), FENCED, Access("ld")) == [f"accesses what {whom} {missing}"]
