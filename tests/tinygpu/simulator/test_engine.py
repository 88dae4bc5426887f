"""Laws of the engine that carries out scripts: what no schedule beats, what must not help, and deadlocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.simulator.engine import (
    SERVERS,
    Deadlock,
    Plan,
    RingRounds,
    RolePlan,
    Rounds,
    Run,
    Signal,
    Step,
    Stretch,
    Work,
    run,
)

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
works = stretches().map(Work)


def handed_over(name: str, trips: int, copy: Stretch, use: Stretch) -> tuple[Step, Step]:
    """The rounds of a role that fills, and of one that drains."""
    fill = Rounds(trips, (Signal("acquire", name), Work(copy, name), Signal("publish", name)))
    drain = Rounds(trips, (Signal("wait", name), Work(use), Signal("release", name)))
    return fill, drain


@st.composite
def roles(draw: st.DrawFn) -> tuple[RolePlan, ...]:
    """One role with a ring of its own, or two that hand a pipeline over."""
    before, after = draw(st.lists(works, max_size=2)), draw(st.lists(works, max_size=2))
    copy, use, trips = draw(copies), draw(stretches()), draw(st.integers(0, 12))
    if draw(st.booleans()):
        ring = RingRounds("ring", trips, draw(st.integers(0, 4)), (Work(copy),), (Work(use),))
        return (RolePlan("all", (0, 1), (*before, ring, *after), {}),)
    fill, drain = handed_over("ring", trips, copy, use)
    return (
        RolePlan("producer", (0, 1), (*before, fill), {}),
        RolePlan("consumer", (0, 1), (drain, *after), {}),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    slots, persistent = draw(st.integers(1, 3)), draw(st.booleans())
    tiles = st.lists(st.integers(1, 3), min_size=1, max_size=slots) if persistent else st.just([1])
    counts = draw(tiles) if persistent else [1] * draw(st.integers(1, 6))
    return Plan(
        draw(roles()), {"ring": draw(st.integers(1, 4))}, slots, tuple(counts), draw(amounts), persistent,
        draw(st.integers(0, 4)), draw(st.sampled_from((0.25, 1.0))),
    )  # fmt: skip


def stretches_of(steps: Sequence[Step]) -> list[Stretch]:
    """Every stretch that a role carries out for one tile."""
    out: list[Stretch] = []
    for step in steps:
        if isinstance(step, Work):
            out.append(step.stretch)
        elif isinstance(step, Rounds):
            out += stretches_of(step.body) * step.trips
        elif isinstance(step, RingRounds):
            out += (stretches_of(step.fill) + stretches_of(step.drain)) * step.trips
    return out


def demanded(plan: Plan, unit: str) -> float:
    """Seconds of a unit of the SM that all CTAs ask for."""
    tiles = sum(plan.tiles)
    return tiles * sum(s.units.get(unit, 0.0) for role in plan.roles for s in stretches_of(role.steps))


@settings(max_examples=150)
@given(plans())
def test_every_unit_does_all_of_its_work_and_is_never_busy_longer_than_the_time(plan: Plan) -> None:
    out = run(plan)
    for unit in SERVERS[:6]:
        assert out.busy_s[unit] == pytest.approx(demanded(plan, unit))
    l2 = sum(s.read_s[0] + s.write_s[0] for role in plan.roles for s in stretches_of(role.steps))
    assert out.busy_s["l2"] == pytest.approx(sum(plan.tiles) * l2)
    assert all(busy <= out.seconds * (1 + 1e-9) for busy in out.busy_s.values())


@settings(max_examples=150)
@given(plans())
def test_no_cta_is_faster_than_the_work_and_latencies_of_each_of_its_roles(plan: Plan) -> None:
    """A role's own work is done in order, and every copy needs the memory's latency."""
    seconds = run(plan).seconds
    for role in plan.roles:
        done = [s for s in stretches_of(role.steps) if s.label != "copy"]
        assert seconds >= max(plan.tiles) * sum(s.alone_s + s.chain_s for s in done) * (1 - 1e-9)
        if any(s.label == "copy" for s in stretches_of(role.steps)):
            assert seconds >= plan.latency_s


@settings(max_examples=60)
@given(plans())
def test_runs_are_deterministic_and_a_timeline_changes_nothing(plan: Plan) -> None:
    first, second, drawn = run(plan), run(plan), run(plan, keep=10_000)
    assert (first.seconds, first.busy_s, first.roles_s) == (second.seconds, second.busy_s, second.roles_s)
    assert (first.seconds, first.busy_s, first.roles_s) == (drawn.seconds, drawn.busy_s, drawn.roles_s)


def scaled(step: Step, by: float) -> Step:
    if isinstance(step, Work):
        s = step.stretch
        pairs = [(by * pair[0], by * pair[1]) for pair in (s.read_s, s.write_s)]
        many = {unit: by * seconds for unit, seconds in s.units.items()}
        return replace(step, stretch=Stretch(s.label, many, pairs[0], pairs[1], by * s.alone_s, by * s.chain_s))
    if isinstance(step, Rounds):
        return replace(step, body=tuple(scaled(inner, by) for inner in step.body))
    if isinstance(step, RingRounds):
        fill = tuple(s for s in (scaled(inner, by) for inner in step.fill) if isinstance(s, Work))
        return replace(step, fill=fill, drain=tuple(scaled(inner, by) for inner in step.drain))
    return step


@settings(max_examples=60)
@given(plans(), st.sampled_from((0.5, 4.0)))
def test_slower_clocks_stretch_the_whole_run(plan: Plan, by: float) -> None:
    slower = replace(
        plan,
        latency_s=by * plan.latency_s,
        roles=tuple(replace(r, steps=tuple(scaled(s, by) for s in r.steps)) for r in plan.roles),
    )
    assert run(slower).seconds == pytest.approx(by * run(plan).seconds)


@settings(max_examples=80)
@given(copies, stretches(), st.integers(1, 20), amounts, st.booleans())
def test_more_stages_are_never_slower_for_a_lone_pipeline(
    copy: Stretch, use: Stretch, trips: int, latency: float, same_warps: bool
) -> None:
    use = replace(use, read_s=(0.0, 0.0), write_s=(0.0, 0.0))
    copy, found = replace(copy, units={}), []
    for stages in range(1, 6):
        if same_warps:
            steps: tuple[Step, ...] = (RingRounds("ring", trips, stages - 1, (Work(copy),), (Work(use),)),)
            parts: tuple[RolePlan, ...] = (RolePlan("all", (0, 1), steps, {}),)
        else:
            fill, drain = handed_over("ring", trips, copy, use)
            parts = (RolePlan("producer", (0, 1), (fill,), {}), RolePlan("consumer", (0, 1), (drain,), {}))
        found.append(run(Plan(parts, {"ring": stages}, 1, (1,), latency, False, 1, 1.0)).seconds)
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(found))


def test_a_lone_pipeline_takes_what_its_steady_state_says() -> None:
    """A round of 10 s of use, copies that take 4 s and 20 s more to land: stages hide the latency one by one."""
    copy = Stretch("copy", {}, (4.0, 4.0), (0.0, 0.0), 0.0, 0.0)
    use = Stretch("use", {"tensor": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)

    def seconds(stages: int, trips: int) -> float:
        fill, drain = handed_over("ring", trips, copy, use)
        parts = (RolePlan("producer", (0, 1), (fill,), {}), RolePlan("consumer", (0, 1), (drain,), {}))
        return run(Plan(parts, {"ring": stages}, 1, (1,), 20.0, False, 1, 1.0)).seconds

    per_round = [(seconds(stages, 180) - seconds(stages, 120)) / 60 for stages in (1, 2, 3, 4, 5)]
    assert per_round == pytest.approx([34.0, 17.0, 34 / 3, 10.0, 10.0])


def test_ctas_that_share_an_sm_fill_in_for_each_other() -> None:
    work = Stretch("work", {"tensor": 1.0}, (0.0, 0.0), (0.0, 0.0), 1.0, 3.0)
    steps = (Rounds(8, (Work(work),)),)
    times = [
        run(Plan((RolePlan("all", (0, 1), steps, {}),), {}, slots, (1,) * 8, 0.0, False, 99, 1.0)).seconds
        for slots in (1, 2, 4, 8)
    ]
    assert times == pytest.approx([256.0, 129.0, 67.0, 67.0])


def test_turns_overlap_the_end_of_a_tile_with_the_loop_of_the_next() -> None:
    multiply = Stretch("multiply", {"tensor": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)
    store = Stretch("store", {"smem": 10.0}, (0.0, 0.0), (0.0, 0.0), 10.0, 0.0)
    steps = (Signal("take", "order"), Work(multiply), Signal("give", "order"), Work(store))
    alone = (RolePlan("one", (0, 1), (Work(multiply), Work(store)), {}),)
    turns = tuple(RolePlan(name, (i, 2), steps, {}) for i, name in enumerate(("ping", "pong")))

    def seconds(parts: tuple[RolePlan, ...]) -> float:
        return run(Plan(parts, {"order": 1}, 1, (8,), 0.0, True, 99, 1.0)).seconds

    assert seconds(alone) == pytest.approx(160.0)
    assert seconds(turns) == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (
            ((Signal("wait", "ring"),), (Signal("acquire", "ring"),)),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of ring to be filled",
        ),
        (
            (
                (Signal("wait", "b"), Signal("publish", "a")),
                (Signal("wait", "a"), Signal("publish", "b")),
            ),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of b to be filled, "
            "right waits for slot 0 of a to be filled",
        ),
        (
            ((Signal("acquire", "ring"), Signal("acquire", "ring")), ()),
            "[simulator] the roles wait for each other for good: left waits for slot 0 of ring to be freed",
        ),
    ],
)
def test_a_deadlock_is_an_error_that_names_who_waits_for_what(
    steps: tuple[tuple[Step, ...], ...], sentence: str
) -> None:
    parts = tuple(RolePlan(name, (0, 1), s, {}) for name, s in zip(("left", "right"), steps, strict=True))
    with pytest.raises(Deadlock) as caught:
        run(Plan(parts, {"ring": 1, "a": 1, "b": 1}, 1, (1,), 0.0, False, 1, 1.0))
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
