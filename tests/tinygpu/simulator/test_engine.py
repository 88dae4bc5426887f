"""Laws of the engine that carries out programs: what no schedule beats, what must not help, and deadlocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tinygpu.simulator.stretches import stretches as carried_out
from tinygpu.expressions import expr
from tinygpu.program import nodes as n
from tinygpu.program.groups import Groups, Wait, groups
from tinygpu.simulator.engine import Deadlock, run
from tinygpu.simulator.plan import SERVERS, Plan, RolePlan, Run, Stretch
from tinygpu.simulator.stop import Stop

amounts = st.integers(0, 50).map(float)
units = st.dictionaries(st.sampled_from(SERVERS[:6]), amounts, max_size=3)


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    used = draw(units)
    longest = max(used.values(), default=0.0)
    read, write = (draw(st.tuples(amounts, amounts)) for _ in range(2))
    return Stretch("work", used, read, write, longest + draw(amounts), draw(amounts))


copies = st.builds(
    Stretch, st.just("copy"), st.just({"issue": 1.0}), st.tuples(amounts, amounts), st.just((0.0, 0.0)), st.just(0.0),
    st.just(0.0),
)  # fmt: skip


class Leaf(n.Statement):
    """A statement that contains no others; what it does is what stands beside it."""


@dataclass
class Written:
    """A role as it is written: its statements, with the stretches that stand beside them."""

    name: str = "all"
    share: tuple[int, int] = (0, 1)
    stops: dict[n.Statement, Stop[Stretch]] = field(default_factory=dict)
    trips: dict[n.Statement, int] = field(default_factory=dict)
    body: list[n.Statement] = field(default_factory=list)

    def do(self, *work: Stretch) -> n.Statement:
        return self.beside(Leaf(), Stop(before=work))

    def copy(self, pipeline: str, copy: Stretch) -> n.Statement:
        return self.beside(Leaf(), Stop(copies=(copy,), into=pipeline))

    def produce(self, pipeline: str, *inside: n.Statement) -> n.Statement:
        return self.block(n.Produce(pipeline, inside))

    def consume(self, pipeline: str, *inside: n.Statement) -> n.Statement:
        return self.block(n.Consume(pipeline, inside))

    def rounds(self, trips: int, *inside: n.Statement) -> n.Statement:
        return self.block(n.Loop("i", expr(trips), False, inside), trips)

    def ring(self, pipeline: str, trips: int, copy: Stretch, *inside: n.Statement) -> n.Statement:
        """Rounds in which the same warps fill and drain."""
        ring = n.Pipelined(pipeline, "i", expr(trips), (Leaf(),), inside)
        self.trips[ring] = trips
        return self.beside(ring, Stop(copies=(copy,), into=pipeline, bodies=ring.children[1:], ends=((),)))

    def block(self, s: n.Statement, trips: int = 1) -> n.Statement:
        self.trips[s] = trips
        return self.beside(s, Stop(bodies=s.children, ends=((),)))

    def beside(self, s: n.Statement, stop: Stop[Stretch]) -> n.Statement:
        self.stops[s] = stop
        return s


def planned(
    roles: Sequence[Written], stages: Mapping[str, int], slots: int, tiles: Sequence[int], latency_s: float,
    persistent: bool, last: int, last_dram: float, turns: frozenset[str] = frozenset(),
) -> Plan:  # fmt: skip
    """What an SM has to do whose CTAs consist of these roles."""
    body = tuple(n.InRole(role.name, tuple(role.body)) for role in roles)
    parts = [
        RolePlan(role.name, role.share, {**role.stops, whole: Stop(bodies=whole.children, ends=((),))})
        for role, whole in zip(roles, body, strict=True)
    ]
    trips = {s: trips for role in roles for s, trips in role.trips.items()}
    waits, counts = groups(body), tuple(tiles)
    return Plan(tuple(parts), body, waits, trips, stages, turns, slots, counts, latency_s, persistent, last, last_dram)


def handed_over(name: str, trips: int, copy: Stretch, use: Stretch) -> tuple[Written, Written]:
    """A role that fills the slots of a pipeline, and one that drains them."""
    producer, consumer = Written("producer"), Written("consumer")
    producer.body.append(producer.rounds(trips, producer.produce(name, producer.copy(name, copy))))
    consumer.body.append(consumer.rounds(trips, consumer.consume(name, consumer.do(use))))
    return producer, consumer


@st.composite
def roles(draw: st.DrawFn) -> tuple[Written, ...]:
    """One role with a ring of its own, or two that hand a pipeline over."""
    before, after = draw(st.lists(stretches(), max_size=2)), draw(st.lists(stretches(), max_size=2))
    copy, use, trips = draw(copies), draw(stretches()), draw(st.integers(0, 12))
    if draw(st.booleans()):
        one = Written()
        one.body += [one.do(*before), one.ring("ring", trips, copy, one.do(use)), one.do(*after)]
        return (one,)
    producer, consumer = handed_over("ring", trips, copy, use)
    producer.body.insert(0, producer.do(*before))
    consumer.body.append(consumer.do(*after))
    return producer, consumer


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    slots, persistent = draw(st.integers(1, 3)), draw(st.booleans())
    tiles = st.lists(st.integers(1, 3), min_size=1, max_size=slots) if persistent else st.just([1])
    counts = draw(tiles) if persistent else [1] * draw(st.integers(1, 6))
    return planned(
        draw(roles()), {"ring": draw(st.integers(1, 4))}, slots, counts, draw(amounts), persistent,
        draw(st.integers(0, 4)), draw(st.sampled_from((0.25, 1.0))),
    )  # fmt: skip


def stretches_of(plan: Plan, role: RolePlan) -> list[Stretch]:
    """Every stretch that a role carries out for one tile."""
    return [s for s, times in carried_out(plan.body, role.stops, plan.trips) for _ in range(int(times))]


def demanded(plan: Plan, unit: str) -> float:
    """Seconds of a unit of the SM that all CTAs ask for."""
    tiles = sum(plan.tiles)
    return tiles * sum(s.units.get(unit, 0.0) for role in plan.roles for s in stretches_of(plan, role))


@settings(max_examples=150)
@given(plans())
def test_every_unit_does_all_of_its_work_and_is_never_busy_longer_than_the_time(plan: Plan) -> None:
    out = run(plan)
    for unit in SERVERS[:6]:
        assert out.busy_s[unit] == pytest.approx(demanded(plan, unit))
    l2 = sum(s.read_s[0] + s.write_s[0] for role in plan.roles for s in stretches_of(plan, role))
    assert out.busy_s["l2"] == pytest.approx(sum(plan.tiles) * l2)
    assert all(busy <= out.seconds * (1 + 1e-9) for busy in out.busy_s.values())


@settings(max_examples=150)
@given(plans())
def test_no_cta_is_faster_than_the_work_and_latencies_of_each_of_its_roles(plan: Plan) -> None:
    """A role's own work is done in order, and every copy needs the memory's latency."""
    seconds = run(plan).seconds
    for role in plan.roles:
        done = [s for s in stretches_of(plan, role) if s.label != "copy"]
        assert seconds >= max(plan.tiles) * sum(s.alone_s + s.chain_s for s in done) * (1 - 1e-9)
        if any(s.label == "copy" for s in stretches_of(plan, role)):
            assert seconds >= plan.latency_s


@settings(max_examples=60)
@given(plans())
def test_runs_are_deterministic_and_a_timeline_changes_nothing(plan: Plan) -> None:
    first, second, drawn = run(plan), run(plan), run(plan, keep=10_000)
    assert (first.seconds, first.busy_s, first.roles_s) == (second.seconds, second.busy_s, second.roles_s)
    assert (first.seconds, first.busy_s, first.roles_s) == (drawn.seconds, drawn.busy_s, drawn.roles_s)


def scaled(s: Stretch, by: float) -> Stretch:
    pairs = [(by * pair[0], by * pair[1]) for pair in (s.read_s, s.write_s)]
    units = {unit: by * seconds for unit, seconds in s.units.items()}
    return Stretch(s.label, units, pairs[0], pairs[1], by * s.alone_s, by * s.chain_s)


@settings(max_examples=60)
@given(plans(), st.sampled_from((0.5, 4.0)))
def test_slower_clocks_stretch_the_whole_run(plan: Plan, by: float) -> None:
    slower = [
        replace(r, stops={s: stop.map(lambda stretch: scaled(stretch, by)) for s, stop in r.stops.items()})
        for r in plan.roles
    ]
    other = replace(plan, latency_s=by * plan.latency_s, roles=tuple(slower))
    assert run(other).seconds == pytest.approx(by * run(plan).seconds)


@settings(max_examples=80)
@given(copies, stretches(), st.integers(1, 20), amounts, st.booleans())
def test_more_stages_are_never_slower_for_a_lone_pipeline(
    copy: Stretch, use: Stretch, trips: int, latency: float, same_warps: bool
) -> None:
    use = replace(use, read_s=(0.0, 0.0), write_s=(0.0, 0.0))
    copy, found = replace(copy, units={}), []
    for stages in range(1, 6):
        parts: tuple[Written, ...] = handed_over("ring", trips, copy, use)
        if same_warps:
            parts = (one := Written(),)
            one.body.append(one.ring("ring", trips, copy, one.do(use)))
        found.append(run(planned(parts, {"ring": stages}, 1, (1,), latency, False, 1, 1.0)).seconds)
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(found))


def test_a_lone_pipeline_takes_what_its_steady_state_says() -> None:
    """A round of 10 s of use, copies that take 4 s and 20 s more to land: stages hide the latency one by one."""
    copy = Stretch("copy", {}, (4.0, 4.0), (0.0, 0.0), 0.0, 0.0)
    use = Stretch("use", {"tensor": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)

    def seconds(stages: int, trips: int) -> float:
        parts = handed_over("ring", trips, copy, use)
        return run(planned(parts, {"ring": stages}, 1, (1,), 20.0, False, 1, 1.0)).seconds

    per_round = [(seconds(stages, 180) - seconds(stages, 120)) / 60 for stages in (1, 2, 3, 4, 5)]
    assert per_round == pytest.approx([34.0, 17.0, 34 / 3, 10.0, 10.0])


@settings(max_examples=60)
@given(st.lists(amounts, min_size=1, max_size=3), st.integers(1, 12), st.integers(1, 4), amounts)
def test_a_slot_is_filled_again_when_its_slowest_consumer_has_left_it(
    uses: list[float], trips: int, stages: int, lands: float
) -> None:
    """Roles that use no unit and read the same slots are as fast as the slowest of them alone."""

    def seconds(chains: Sequence[float]) -> float:
        idle, producer, drains = (0.0, 0.0), Written("producer"), []
        copy = producer.copy("ring", Stretch("copy", {}, idle, idle, 0.0, 0.0))
        producer.body.append(producer.rounds(trips, producer.produce("ring", copy)))
        for number, chain in enumerate(chains):
            one = Written(f"consumer{number}")
            one.body.append(one.rounds(trips, one.consume("ring", one.do(Stretch("use", {}, idle, idle, 0.0, chain)))))
            drains.append(one)
        return run(planned((producer, *drains), {"ring": stages}, 1, (1,), lands, False, 1, 1.0)).seconds

    assert seconds(uses) == pytest.approx(max(seconds([use]) for use in uses))


def test_ctas_that_share_an_sm_fill_in_for_each_other() -> None:
    work = Stretch("work", {"tensor": 1.0}, (0.0, 0.0), (0.0, 0.0), 1.0, 3.0)
    one = Written()
    one.body.append(one.rounds(8, one.do(work)))
    times = [run(planned((one,), {}, slots, (1,) * 8, 0.0, False, 99, 1.0)).seconds for slots in (1, 2, 4, 8)]
    assert times == pytest.approx([256.0, 129.0, 67.0, 67.0])


def test_turns_overlap_the_end_of_a_tile_with_the_loop_of_the_next() -> None:
    multiply = Stretch("multiply", {"tensor": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)
    store = Stretch("store", {"smem": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)
    alone, turns = Written("one"), [Written(name, (i, 2)) for i, name in enumerate(("ping", "pong"))]
    alone.body += [alone.do(multiply, store)]
    for role in turns:
        role.body += [role.consume("order", role.do(multiply)), role.do(store)]

    def seconds(parts: Sequence[Written]) -> float:
        return run(planned(parts, {"order": 1}, 1, (8,), 0.0, True, 99, 1.0, frozenset({"order"}))).seconds

    assert seconds((alone,)) == pytest.approx(160.0)
    assert seconds(turns) == pytest.approx(90.0)


def test_turns_within_a_tile_go_around_round_after_round() -> None:
    """One role computes long between its turns, the other one behind all of them; each waits for the other."""
    multiply, weigh, store = (
        Stretch(name, {unit: s}, (0.0, 0.0), (0.0, 0.0), s, 0.0)
        for name, unit, s in (("multiply", "tensor", 10.0), ("weigh", "fma", 100.0), ("store", "smem", 300.0))
    )
    first, second = Written("first"), Written("second")
    first.body += [first.rounds(3, first.consume("order", first.do(multiply)), first.do(weigh))]
    second.body += [second.rounds(3, second.consume("order", second.do(multiply))), second.do(store)]

    def seconds(turns: frozenset[str], tiles: int) -> float:
        return run(planned((first, second), {"order": 1}, 1, (tiles,), 0.0, True, 99, 1.0, turns)).seconds

    # turns of the second role end at 20, 130 and 240, 300 before it comes to the next tile; there at 550, 570 and 680
    assert seconds(frozenset({"order"}), 1) == pytest.approx(540.0)
    assert seconds(frozenset({"order"}), 2) == pytest.approx(980.0)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (
            (lambda left: [left.consume("ring")], lambda right: []),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of ring to be filled",
        ),
        (
            (
                lambda left: [left.consume("b"), left.produce("a")],
                lambda right: [right.consume("a"), right.produce("b")],
            ),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of b to be filled, "
            "right waits for slot 0 of a to be filled",
        ),
        (
            (lambda left: [left.rounds(2, left.produce("ring"))], lambda right: []),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of ring to be freed",
        ),
    ],
)
def test_a_deadlock_is_an_error_that_names_who_waits_for_what(
    written: tuple[Callable[[Written], list[n.Statement]], ...], sentence: str
) -> None:
    parts = [Written("left"), Written("right")]
    for part, statements in zip(parts, written, strict=True):
        part.body += statements(part)
    with pytest.raises(Deadlock) as caught:
        run(planned(parts, {"ring": 1, "a": 1, "b": 1}, 1, (1,), 0.0, False, 1, 1.0))
    assert str(caught.value) == sentence


@settings(max_examples=80)
@given(plans())
def test_a_timeline_has_one_thing_at_a_time_in_every_row(plan: Plan) -> None:
    out: Run = run(plan, keep=10_000)
    rows: dict[str, float] = {}
    for span in out.spans:
        assert 0 <= span.start_s <= span.stop_s <= out.seconds * (1 + 1e-9)
        if span.kind != "copy":
            assert span.start_s >= rows.get(span.row, 0.0) - 1e-9
            rows[span.row] = span.stop_s
    for unit in SERVERS:
        drawn = sum(s.stop_s - s.start_s for s in out.spans if s.row == unit)
        assert drawn == pytest.approx(out.busy_s[unit])


def products_and_works(product: Stretch, computed: Sequence[Stretch], trips: int, behind: int | None) -> float:
    """The time of rounds that multiply and compute; the products are waited for at once, or behind one of the works."""
    copy = Stretch("copy", {}, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)
    producer, consumer = Written("producer"), Written("consumer")
    producer.body.append(producer.rounds(trips, producer.produce("x", producer.copy("x", copy))))
    works = [consumer.do(work) for work in computed]
    multiplies = consumer.beside(block := n.Consume("x", ()), Stop(bodies=block.children, ends=((),), begun=(product,)))
    consumer.body.append(consumer.rounds(trips, multiplies, *works))
    wait, late = Wait(0, (block,)), frozenset({block} if behind is not None else set())
    waits = Groups(
        before={works[behind]: wait} if behind is not None else {}, behind={} if late else {block: wait}, late=late,
        entered={}, carried=frozenset(), heads={}, left={}, flying={},
    )  # fmt: skip
    plan = planned((producer, consumer), {"x": 2}, 1, (1,), 0.0, False, 1, 1.0)
    return run(replace(plan, groups=waits)).seconds


@given(st.lists(stretches(), min_size=2, max_size=4), stretches(), st.integers(1, 5), st.integers(0, 1))
def test_products_that_go_on_are_never_later_than_those_that_are_waited_for_at_once(
    computed: list[Stretch], product: Stretch, trips: int, behind: int
) -> None:
    later = products_and_works(product, computed, trips, behind)
    assert later <= products_and_works(product, computed, trips, None) * (1 + 1e-9)


def test_what_is_computed_while_products_go_on_takes_no_time_of_its_own() -> None:
    nothing = (0.0, 0.0)
    product = Stretch("product", {"tensor": 10.0}, nothing, nothing, 10.0, 0.0)
    beside, use = (Stretch("work", {"fma": s}, nothing, nothing, s, 0.0) for s in (8.0, 1.0))
    assert products_and_works(product, (beside, use), 4, None) == 4 * (10 + 8 + 1)
    assert products_and_works(product, (beside, use), 4, 0) == 4 * (10 + 1)
