"""Random runs, with words in them that HTML would take for its own."""

from hypothesis import strategies as st

from tinygpu.report.run import (
    Access,
    Candidate,
    Placed,
    Roof,
    Run,
    Sample,
    Searched,
    Step,
    Stretch,
    Timed,
    Timeline,
)

UNITS = ("tensor", "fma", "alu", "sfu", "issue", "smem", "l2", "dram", "latency", "tail", "power", "launch")

words = st.sampled_from(["bm", "<script>alert(1)</script>", "a & b", 'say "x"', "it's", "µs ≤ 3", "]]>", "</style>"])
seconds = st.floats(1e-8, 10.0)
values = st.one_of(st.integers(0, 512), words)
points = st.dictionaries(st.sampled_from(["bm", "bn", "load", "<b>"]), values, max_size=4)


@st.composite
def placed(draw: st.DrawFn) -> Placed:
    rows, pitch = draw(st.sampled_from([(8, 128), (16, 64), (64, 256), (3, 80), (128, 32)]))
    row_bytes = draw(st.sampled_from([pitch, pitch - 16, pitch - 4])) if pitch > 32 else pitch
    xor = draw(st.sampled_from([[], [(0, 16)], [(0, 4)]])) if pitch & (pitch - 1) == 0 and row_bytes == pitch else []
    accesses = draw(
        st.lists(st.builds(Access, words, st.integers(1, 99), st.integers(1, 99), st.integers(1, 9)), max_size=2)
    )
    proof = draw(st.sampled_from(["ideal", "pigeonhole", "refuted", "none"]))
    return Placed(draw(words), draw(words), rows, row_bytes, pitch, xor, draw(words), proof, accesses)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    time = draw(seconds)
    shares = draw(st.lists(st.floats(0, 0.5), min_size=len(UNITS), max_size=len(UNITS)))
    return Candidate(
        point=draw(points),
        seconds=time,
        roofline=draw(st.floats(0, 1)),
        registers=draw(st.integers(1, 255)),
        estimate=draw(st.integers(1, 255)),
        spill_bytes=draw(st.sampled_from([0, 16])),
        ctas_per_sm=draw(st.integers(1, 32)),
        sentence=draw(words),
        breakdown={unit: share * time for unit, share in zip(UNITS, shares, strict=True)},
        flops=draw(st.sampled_from([0.0, 1.0, 2e9, 1e15])),
        dram_bytes=draw(st.sampled_from([0.0, 4.0, 1e6, 1e11])),
        roof=draw(words),
        layouts=draw(st.lists(placed(), max_size=2)),
    )


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    count = draw(st.integers(1, 12))
    names = draw(st.lists(st.sampled_from(["bm", "bn", "load", "<i>"]), max_size=4, unique=True))
    column = st.lists(st.one_of(values, st.none()), min_size=count, max_size=count)
    return Sample({name: draw(column) for name in names}, draw(st.lists(seconds, min_size=count, max_size=count)))


@st.composite
def parts(draw: st.DrawFn) -> Searched:
    steps = draw(
        st.lists(st.builds(Step, words, st.sampled_from(["legality", "dominance"]), words, st.integers(0, 10**9)))
    )
    size = draw(st.integers(0, 10**12))
    raw = size + sum(step.removed for step in steps)
    tried = draw(st.integers(0, 5000))
    improved = sorted(draw(st.sets(st.integers(1, max(tried, 1)), max_size=5))) if tried else []
    times = sorted(draw(st.lists(seconds, min_size=len(improved), max_size=len(improved))), reverse=True)
    return Searched(
        machine=draw(words),
        summary=draw(words),
        problem=draw(words),
        raw=raw,
        structures=draw(st.integers(1, 64)),
        size=size,
        steps=steps,
        sentence=draw(st.one_of(st.just(""), words)),
        strategy=draw(words),
        seed=draw(st.integers(0, 9)),
        seconds=draw(st.floats(0, 1e4)),
        ended=draw(st.sampled_from(["every point", "evaluations", "seconds", "within", "interrupted", "proof"])),
        tried=tried,
        failures=draw(st.dictionaries(words, st.integers(1, 99), max_size=2)),
        improvements=list(zip(improved, times, strict=True)),
        sample=draw(st.one_of(st.none(), samples())),
        candidates=draw(st.lists(candidates(), max_size=3)),
    )


@st.composite
def timed(draw: st.DrawFn) -> Timed:
    if draw(st.booleans()):
        return Timed(draw(words), draw(points), draw(seconds), None, None, None, draw(words))
    found = draw(seconds)
    spread = draw(st.one_of(st.none(), st.floats(1.0, 2.0)))
    low, high = (None, None) if spread is None else (found / spread, found * spread)
    return Timed(draw(words), draw(points), draw(seconds), found, low, high, "")


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    stretch = st.tuples(st.sampled_from(["slot 0 all", "tensor", "l2", "<u>"]), words, seconds, seconds)
    kinds = st.sampled_from(["work", "wait", "copy"])
    found = [
        Stretch(row, label, draw(kinds), min(a, b), max(a, b))
        for row, label, a, b in draw(st.lists(stretch, max_size=8))
    ]
    return Timeline(draw(seconds), draw(words), found)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    searched = draw(st.lists(parts(), max_size=3))
    places = [(m, n) for m, part in enumerate(searched) for n in range(len(part.candidates))]
    return Run(
        title=draw(words),
        family=draw(words),
        device=draw(words),
        date="2026-03-01T12:00:00+00:00",
        version="0.1.0",
        floor=draw(st.one_of(st.none(), seconds)),
        dram_bytes_s=2e12,
        roofs=draw(st.lists(st.builds(Roof, words, st.floats(1e9, 1e16)), max_size=2)),
        searched=searched,
        refused=draw(st.dictionaries(words, words, max_size=2)),
        winner=draw(st.one_of(st.none(), st.sampled_from(places))) if places else None,
        verified=draw(st.sampled_from([None, True, False])),
        verification=draw(words),
        measured=draw(words),
        timed=draw(st.lists(timed(), max_size=6)),
        timeline=draw(st.one_of(st.none(), timelines())),
    )
