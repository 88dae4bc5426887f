"""Timelines and rooflines: the trace follows its format, the drawings are well-formed and keep within their edges."""

from __future__ import annotations

import itertools
import json
import math
import re
from functools import cache
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.cost.demand import Demand, Phase, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.simulator.chrome_trace import chrome_trace
from tinygpu.simulator.drawing import decades, round_step
from tinygpu.simulator.plan import SERVERS
from tinygpu.simulator.roofline import ceilings, marks, roofline_svg
from tinygpu.simulator.roofs import Counted, Places, Roof, roofs_svg
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.simulator import Simulator
from tinygpu.simulator.timeline import timeline_svg
from tinygpu.spaces.build import MachineSpace, build_space

SVG = "{http://www.w3.org/2000/svg}"
CASES = (
    (MatmulAmpere, "a100", {"m": 1024, "n": 1024, "k": 512}),
    (MatmulHopper, "h100", {"m": 1024, "n": 1024, "k": 512}),
    (Axpby, "rtx4090", {"n": 100_000}),
)


@cache
def space(index: int) -> MachineSpace:
    machine, gpu, dims = CASES[index]
    return build_space(machine, machine.problem(**dims), device(gpu))


@cache
def simulated(index: int, keep: int = 3000, seed: int = 0) -> Simulation:
    """Of CTAs that do no whole number of tiles a part is not simulated but told from the others: none of these."""
    points = space(index).space.sample(20, np.random.default_rng(seed))
    point = next(point for point in points if not point.get("stream_k", 0))
    return Simulator(space(index)).simulate(point, keep=keep)


# Fields of an event by its phase: name -> types; what must be there, and what may.
REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "M": {"name": (str,), "pid": (int,), "tid": (int,), "args": (dict,)},
    "X": {"name": (str,), "cat": (str,), "pid": (int,), "tid": (int,), "ts": (int, float), "dur": (int, float)},
    "b": {"name": (str,), "cat": (str,), "pid": (int,), "tid": (int,), "ts": (int, float), "id": (int,)},
    "e": {"name": (str,), "cat": (str,), "pid": (int,), "tid": (int,), "ts": (int, float), "id": (int,)},
}
OPTIONAL = {"ph", "args", "ts"}


@pytest.mark.parametrize("index", range(len(CASES)))
def test_traces_follow_the_format(index: int) -> None:
    found = simulated(index)
    trace: dict[str, Any] = json.loads(chrome_trace(found, "a title"))
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["otherData"]["kind"] == "predicted by simulation, not measured"
    named: set[tuple[int, int]] = set()
    complete: dict[tuple[int, int], list[tuple[float, float]]] = {}
    begun: dict[int, dict[str, Any]] = {}
    ended: set[int] = set()
    for event in trace["traceEvents"]:
        fields = REQUIRED[event["ph"]]
        assert set(fields) <= set(event) <= set(fields) | OPTIONAL
        assert all(isinstance(event[name], types) for name, types in fields.items())
        row = (event["pid"], event["tid"])
        if event["ph"] == "M" and event["name"] == "thread_name":
            named.add(row)
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            complete.setdefault(row, []).append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            begun[event["id"]] = event
        elif event["ph"] == "e":
            assert event["ts"] >= begun[event["id"]]["ts"]
            assert event["cat"] == begun[event["id"]]["cat"]
            ended.add(event["id"])
    assert ended == set(begun)
    assert set(complete) <= named
    for spans in complete.values():  # viewers need events of one row to nest; ours follow each other
        spans.sort()
        assert all(after[0] >= before[1] - 1e-6 for before, after in itertools.pairwise(spans))
    assert sum(len(spans) for spans in complete.values()) + len(begun) == len(found.spans)


@pytest.mark.parametrize("index", range(len(CASES)))
@pytest.mark.parametrize("keep", [40, 3000])
def test_timelines_are_well_formed_and_keep_within_their_edges(index: int, keep: int) -> None:
    found = simulated(index, keep)
    root = ElementTree.fromstring(timeline_svg(found, "m < n & k"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["aria-label"] == "timeline of m < n & k"
    boxes = [b for b in root.iter(f"{SVG}rect") if b.attrib.get("class") != "ground"]
    assert boxes
    for box in boxes:
        x, y, w, h = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    words = [t.text or "" for t in root.iter(f"{SVG}text")]
    rows = {s.row for s in found.spans if s.start_s < found.drawn_s}
    assert set(words) >= rows
    assert any("simulated, not measured" in text for text in words)
    assert " ".join(words).find(found.sentence()) >= 0
    assert ("drawn are the first" in " ".join(words)) == (found.drawn_s < found.sm_s * (1 - 1e-9))


@pytest.mark.parametrize("index", range(len(CASES)))
def test_what_is_drawn_is_all_there(index: int) -> None:
    """Cutting the timeline leaves nothing out that begins before the cut, but waits that end after it."""
    whole = simulated(index, 100_000)
    part = simulated(index, len(whole.spans) // 2)
    assert whole.drawn_s == pytest.approx(whole.sm_s)
    assert part.drawn_s < whole.drawn_s
    assert [s for s in whole.spans if s.stop_s < part.drawn_s] == [s for s in part.spans if s.stop_s < part.drawn_s]


def test_a_refused_launch_has_no_timeline() -> None:
    nothing = simulated(0)
    refused = Simulation(
        math.inf, 0.0, 0.0, 0.0, dict.fromkeys(SERVERS, 0.0), {}, (), 0.0, nothing.prediction, 0, 0, "A100-SXM4-80GB"
    )
    with pytest.raises(ValueError) as caught:
        timeline_svg(refused, "anything")
    assert str(caught.value) == (
        "[timeline] there is nothing to draw: the launch is refused: it exceeds the limits of a CTA on A100-SXM4-80GB"
    )


@pytest.mark.parametrize("index", range(len(CASES)))
def test_rooflines_hold_every_mark_below_its_ceilings(index: int) -> None:
    one = space(index)
    points = one.space.sample(60, np.random.default_rng(1))
    best = one.structure_index(points[0])
    mine = [p for p in points if one.structure_index(p) == best]
    axes = {a: np.array([int(p[a]) for p in mine]) for a in one.traces[best].axes}
    demand = one.counts(best).demand({**one.environment, **axes}, one.device)
    cloud = marks(demand, predict(one.device, demand))
    first = marks(*_first(one, best, mine[0]))
    roofs = ceilings(one.device, demand)
    for m in (cloud, first):
        rate = m.operations / m.seconds
        hard = [c for c in roofs if not c.soft]
        for c in hard:
            limit = c.rate * (m.operations / m.dram_bytes) if c.per_byte else c.rate
            assert (rate <= limit * (1 + 1e-9)).all(), c.name
    root = ElementTree.fromstring(roofline_svg(one.device, roofs, cloud, first, "a < b", "a sentence"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    dots = list(root.iter(f"{SVG}circle"))
    assert len(dots) == len(cloud.seconds) + 2 + 3  # the best twice, and the legend
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height
    for line in root.iter(f"{SVG}line"):
        assert all(0 <= float(line.attrib[name]) <= width for name in ("x1", "x2"))
        assert all(0 <= float(line.attrib[name]) <= height for name in ("y1", "y2"))
    words = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert all(c.name in words for c in roofs)
    assert "predicted, not measured" in words


def _first(one: MachineSpace, index: int, point: Any) -> tuple[Demand, Any]:
    values = {**one.environment, **{a: int(point[a]) for a in one.traces[index].axes}}
    demand = one.counts(index).demand(values, one.device)
    return demand, predict(one.device, demand)


def places(useful: list[float], dram_bytes: list[float], seconds: list[float]) -> Places:
    return Places(*(np.array(values) for values in (useful, dram_bytes, seconds)))


@pytest.mark.parametrize("counted", ["operations", "bytes"])
def test_roofs_of_several_devices_hold_every_candidate(counted: Counted) -> None:
    """Each line has slope one up to its ridge; a candidate that reaches its roof lies on the line."""
    peaks = (4e12, 9e13) if counted == "operations" else (math.inf, math.inf)
    bounded = places([2e9, 3e9], [1e9, 3e11], [1.0, 2.0])
    roofs = [
        Roof("slow <one>", 1e12, peaks[0], places([5e8], [5e8], [5e-4]), bounded),
        Roof("fast", 3e12, peaks[1], places([9e9], [3e9], [1e-3]), places([], [], [])),
    ]
    root = ElementTree.fromstring(roofs_svg(roofs, counted, "rooflines of a & b"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    dots = [d for d in root.iter(f"{SVG}circle") if d.attrib["r"] == "6"]
    assert [d.attrib["class"] for d in dots] == ["h0", "h1"]
    for number, dot in enumerate(dots):  # both reach the bandwidth of DRAM
        slope = [line for line in root.iter(f"{SVG}line") if line.attrib["class"] == f"s{number} thick"]
        assert len(slope) == (2 if counted == "operations" else 1)
        x0, y0, x1, y1 = (float(slope[0].attrib[end]) for end in ("x1", "y1", "x2", "y2"))
        x, y = float(dot.attrib["cx"]), float(dot.attrib["cy"])
        assert x0 < x < x1
        assert y == pytest.approx(y0 + (x - x0) / (x1 - x0) * (y1 - y0), abs=0.02)
        assert slope[-1].attrib["y2"] == slope[-1].attrib["y1"] or counted == "bytes"
    (specks,) = root.iter(f"{SVG}path")
    for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", specks.attrib["d"]):
        assert 0 <= float(x) <= width
        assert 0 <= float(y) <= height
    words = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert "rooflines of a & b: predicted, not measured" in words
    assert f"slow <one>, 1,000 GB/s{', 4.0 T/s' if counted == 'operations' else ''}: 500.0 us" in words
    assert ("operations per second" if counted == "operations" else "useful bytes per second") in words


def test_a_program_without_arithmetic_has_no_roofline() -> None:
    copy = Demand(
        ctas=4, threads_per_cta=32, registers_per_thread=16, smem_bytes_per_cta=0, bytes_in_flight_per_cta=32,
        iteration=Phase(Work(sectors_read=1)), dram_bytes_read=128,
    )  # fmt: skip
    with pytest.raises(ValueError) as caught:
        marks(copy, predict(device("a100"), copy))
    assert str(caught.value) == "[roofline] this program computes nothing: it has no operations per byte"


@given(st.floats(1e-6, 1e9), st.integers(1, 20))
def test_round_steps_are_round_and_the_least_that_do(span: float, count: int) -> None:
    step = round_step(span, count)
    assert re.fullmatch(r"[125](\.0)?e[+-]\d+", f"{step:.1e}".replace("e+0", "e+").replace("e-0", "e-"))
    assert span / step <= count * (1 + 1e-9)
    lower = step / 2 if not f"{step:.0e}".startswith("5") else step * 0.4
    assert span / lower > count * (1 - 1e-9)


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e6))
def test_decades_are_the_powers_of_ten_between(least: float, factor: float) -> None:
    found = list(decades(least, least * factor))
    assert all(least * (1 - 1e-8) <= value <= least * factor * (1 + 1e-8) for value in found)
    assert all(after == pytest.approx(10 * before) for before, after in itertools.pairwise(found))
    assert len(found) >= math.floor(math.log10(factor))
