"""Tile schedulers on Python's numbers: everything is done once, whatever the tiles, the rounds and the clusters."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.expressions import expr
from tinygpu.schedulers.launch_control import LaunchControl
from tinygpu.schedulers.launch_rule import MOST_CLUSTERS, LaunchRule
from tinygpu.schedulers.raster import place_of
from tinygpu.schedulers.run_time import Numbers
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import OneTile, StaticPersistent
from tinygpu.schedulers.stream_k import StreamK

TILES, ROUNDS, CLUSTERS = st.integers(1, 60), st.integers(1, 12), st.integers(1, 40)
KINDS = {
    "one tile each": lambda slices: OneTile(expr(slices)),
    "persistent": lambda slices: StaticPersistent(expr(slices)),
    "stream-K": lambda _: StreamK(expr(1), StaticPersistent()),
    "launch control": lambda slices: LaunchControl(expr(1), StaticPersistent(expr(slices)), expr(2)),
    "launch control that is off": lambda slices: LaunchControl(expr(0), StaticPersistent(expr(slices)), expr(1)),
    "launch control or stream-K": lambda _: LaunchControl(expr(0), StreamK(expr(1), StaticPersistent()), expr(1)),
    "stream-K that is off": lambda slices: StreamK(expr(0), StaticPersistent(expr(slices))),
}


def launched(scheduler: TileScheduler, tiles: int, rounds: int, most: int) -> list[Numbers]:
    """The clusters of a launch, `most` of them where the grid is persistent."""
    count = scheduler.launch_rule.clusters(tiles, rounds, most)
    return [Numbers(number, count, (tiles,), rounds) for number in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(tiles=TILES, rounds=ROUNDS, slices=st.integers(1, 4), most=CLUSTERS, every=st.integers(1, 3))
def test_every_round_of_every_slice_is_done_once(
    kind: str, tiles: int, rounds: int, slices: int, most: int, every: int
) -> None:
    """By the roles of all clusters together, of which each takes its share of the items."""
    scheduler = KINDS[kind](slices).settled()
    per_tile = rounds if scheduler.deals_rounds else 1
    turns = every if scheduler.persistent and not scheduler.takes_over else 1
    done: Counter[tuple[int, int, int]] = Counter()
    for run in launched(scheduler, tiles, per_tile, most):
        for rest in range(turns):
            walk = scheduler.walk(run, (rest, turns))
            for item in [walk.begin] if walk.end is None else range(walk.begin, walk.end, walk.step):
                work = walk.work(run, item)
                first, trips = work.rounds or (0, per_tile)
                assert trips > 0
                done.update((work.tile, work.slice, r) for r in range(first, first + trips))
    wanted = int(scheduler.slices)
    assert done == Counter((t, s, r) for t in range(tiles) for s in range(wanted) for r in range(per_tile))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(tiles=TILES, rounds=ROUNDS, slices=st.integers(1, 4), most=CLUSTERS)
def test_the_last_owner_of_a_tile_finds_what_all_owners_left(
    kind: str, tiles: int, rounds: int, slices: int, most: int
) -> None:
    """Owners are as many as there are, say the same of each other, and leave their values at places of their own."""
    scheduler = KINDS[kind](slices).settled()
    per_tile = rounds if scheduler.deals_rounds else 1
    owners: dict[int, list[int]] = {}
    told: dict[int, set[tuple[int, ...]]] = {}
    of_tile, of_cta = scheduler.places
    for run in launched(scheduler, tiles, per_tile, most):
        walk = scheduler.walk(run, (0, 1))
        for item in [walk.begin] if walk.end is None else range(walk.begin, walk.end, walk.step):
            work = walk.work(run, item)
            if walk.shared(run, work):
                first, count = walk.owners(run, work, work.tile)
                place = walk.own_place(run, work)
                assert place < (of_tile or of_cta * run.clusters)
                owners.setdefault(work.tile, []).append(place)
                told.setdefault(work.tile, set()).add(tuple(walk.place(run, first, n) for n in range(count)))
            else:
                owners.setdefault(work.tile, [])
    assert sorted(owners) == list(range(tiles))
    for tile, places in told.items():
        (agreed,) = places
        assert sorted(agreed) == sorted(owners[tile])
        assert len(set(agreed)) == len(agreed)
    if of_cta:
        left = [place for places in owners.values() for place in places]
        assert len(set(left)) == len(left)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 7))
def test_every_tile_has_one_number(counts: list[int], group: int) -> None:
    """Whatever the number of axes; and rows of a group are visited column by column."""
    total = 1
    for count in counts:
        total *= count
    run = Numbers(0, 1, (total,))
    found = [tuple(place_of(run, number, counts, group)) for number in range(total)]
    assert len(set(found)) == total
    assert all(0 <= at < count for place in found for at, count in zip(place, counts, strict=True))
    if group == 1 or len(counts) < 2:
        assert found == sorted(found)
    else:
        keys = [(*p[:-2], p[-2] // group, p[-1], p[-2]) for p in found]
        assert keys == sorted(keys)


@given(TILES, ROUNDS, st.integers(1, 4), st.one_of(st.none(), st.integers(0, 3 * MOST_CLUSTERS)))
def test_launches_have_a_cluster_for_every_unit_at_most(tiles: int, rounds: int, slices: int, most: int | None) -> None:
    assert LaunchRule(False, slices).clusters(tiles, rounds, most) == tiles * slices
    resident = LaunchRule(True, slices).clusters(tiles, rounds, most)
    assert resident == (tiles * slices if most is None else max(1, min(tiles * slices, most)))
    shared = LaunchRule(True, 1, by_rounds=True).clusters(tiles, rounds, most)
    assert shared == (tiles if most is None else max(1, min(tiles * rounds, most, MOST_CLUSTERS)))


def test_a_scheduler_says_what_its_clusters_take() -> None:
    with pytest.raises(NotImplementedError) as refused:
        TileScheduler().walk(Numbers(0, 1, (1,)), (0, 1))
    assert str(refused.value) == "TileScheduler does not say which tiles a cluster takes"


def test_slices_and_rounds_in_a_row_do_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"not both: stream_k is 1, and there are 2 slices$"):
        StreamK(expr(1), StaticPersistent(expr(2))).settled()


def test_kinds_are_named_where_they_are_declared_and_nowhere_else() -> None:
    root = Path(__file__).parents[3]
    kinds = re.compile(r"\b(Sliced|OneTile|StaticPersistent|StreamK|ONE_TILE)\b")
    files = [f for room in ("tinygpu", "ptx", "search", "machines") for f in sorted((root / room).rglob("*.py"))]
    named = {str(f.relative_to(root)) for f in files if kinds.search(f.read_text(encoding="utf-8"))}
    assert {name for name in named if not name.startswith("tinygpu/schedulers/")} == {
        "tinygpu/language/tracing/sharing_checks.py",  # the words of p.grid
        "tinygpu/program/nodes/grid.py",  # what a grid has where nothing is said
        "tinygpu/program/saved.py",
    }
