"""The page of a run: well formed, whole in itself, and true to the run, whatever the run is."""

import dataclasses
import html.parser
import json
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_strategies import UNITS, placed, runs, seconds

from tinygpu.files import FileError
from tinygpu.report import Run, page
from tinygpu.report.chart import Scale, count_text, digits, seconds_text
from tinygpu.report.funnel import merged
from tinygpu.report.run import Candidate, Placed, Searched, Stretch, Timed, Timeline
from tinygpu.solver.smem_layout import SmemLayout

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EMPTY = Run("t", "f", "d", "2026-03-01T12:00:00", "0.1.0", None, 1e12, [], [], {}, None, None, "")


def tree_of(text: str) -> ElementTree.Element:
    """The page as XML, which it is after its first line."""
    first, rest = text.split("\n", 1)
    assert first == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def words_of(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


# --- any run ------------------------------------------------------------------------------------------------------


@given(runs())
@EXAMPLES
def test_every_page_is_well_formed_and_asks_no_network_for_anything(run: Run) -> None:
    text = page(run)
    tree = tree_of(text)
    assert not re.search(r"(?i)https?:|//|url\(|@import|\bsrc=|<link|<img|<iframe", text.replace("// Parallel", ""))
    policy = next(m.get("content", "") for m in tree.iter("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    # what words say is not taken for markup: one script, ours, and no handler of events in any attribute
    assert len(list(tree.iter("script"))) == 1
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [a.get("href", "") for a in tree.iter("a")]
    assert set(links) == {f"#{s.get('id')}" for s in tree.iter("section")}
    # no number went wrong on its way
    assert not re.search(r"\b(nan|inf)\b", re.sub(r">[^<]*<", "><", text))


@given(runs())
@EXAMPLES
def test_html_has_no_tag_that_is_left_open(run: Run) -> None:
    class Stack(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attributes: object) -> None:
            self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_startendtag(self, tag: str, attributes: object) -> None:
            # "/>" closes nothing in HTML but what needs no end, and parts of a picture
            assert tag in {"meta", "line", "path", "circle", "rect"}

    parser = Stack()
    parser.feed(page(run))
    parser.close()
    assert parser.open == []


@given(runs())
@EXAMPLES
def test_a_run_comes_back_from_its_file_as_it_was(run: Run) -> None:
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


@given(runs())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_page_says_what_is_there_and_what_is_not(run: Run) -> None:
    tree = tree_of(page(run))
    sections = {s.get("id"): words_of(s) for s in tree.iter("section")}
    said = words_of(next(tree.iter("header")))
    measured = [t for t in run.timed if t.seconds is not None]
    assert ("Nothing was measured." in sections["measured"]) == (not measured)
    assert ("not measured" in said) == (not measured)
    verdict = {True: "emulated, right", False: "emulated, WRONG", None: "not emulated"}[run.verified]
    assert verdict in said
    assert ("funnel" in sections) == any(part.raw for part in run.searched)
    assert ("candidates" in sections) == any(part.candidates for part in run.searched)
    assert ("convergence" in sections) == any(part.improvements for part in run.searched)
    assert ("timeline" in sections) == (run.timeline is not None and bool(run.timeline.stretches))
    assert ("layouts" in sections) == (run.best is not None and bool(run.best.layouts))
    for part in run.searched:
        for c in part.candidates:
            assert seconds_text(c.seconds) in sections["candidates"]
    # every chart once for wide pages and once for narrow ones
    kinds = [svg.get("class", "") for svg in tree.iter("svg")]
    assert kinds.count("chart wide") == kinds.count("chart narrow")
    assert len(kinds) == 2 * kinds.count("chart wide")


@given(runs())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_drawn_outside_its_picture(run: Run) -> None:
    for svg in tree_of(page(run)).iter("svg"):
        width, height = map(float, svg.get("viewBox", "").split()[2:])
        for element in svg.iter():
            spans = {
                "circle": lambda e: [(e("cx"), e("cy"))],
                "rect": lambda e: [(e("x"), e("y")), (e("x") + e("width"), e("y") + e("height"))],
                "line": lambda e: [(e("x1"), e("y1")), (e("x2"), e("y2"))],
                "text": lambda e: [(e("x"), e("y"))],
            }
            if element.tag in spans:
                for x, y in spans[element.tag](lambda name, e=element: float(e.get(name, "nan"))):
                    assert -1 <= x <= width + 1
                    assert -1 <= y <= height + 1
            if element.tag == "path":
                for x, y in re.findall(r"(-?[\d.e+-]+),(-?[\d.e+-]+)", element.get("d", "")):
                    assert -1 <= float(x) <= width + 1
                    assert -1 <= float(y) <= height + 1


# --- single parts -------------------------------------------------------------------------------------------------


@given(runs())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_funnel_counts_down_to_the_candidates(run: Run) -> None:
    for part in run.searched:
        assert sum(step.removed for step in merged(part.steps)) == part.raw - part.size
        names = [(s.name.partition(" (")[0], s.kind, s.source) for s in part.steps]
        assert [(s.name, s.kind, s.source) for s in merged(part.steps)] == list(dict.fromkeys(names))


@given(placed())
@settings(max_examples=60, deadline=None)
def test_a_layout_shows_every_byte_where_it_lies(shown: Placed) -> None:
    best = candidate_with(shown)
    tree = tree_of(page(best))
    layout = SmemLayout(shown.rows, shown.row_bytes, shown.pitch_bytes, tuple((b, m) for b, m in shown.xor))
    section = next(s for s in tree.iter("section") if s.get("id") == "layouts")
    svg = next(s for s in section.iter("svg") if s.get("class") == "chart wide")
    cells = [rect for rect in svg.iter("rect") if rect.get("class", "").startswith("cell")]
    lines = sorted({float(rect.get("y", "")) for rect in cells})
    per_line = len(cells) // len(lines)
    chunk = 128 // per_line
    seen = set()
    for number, rect in enumerate(cells):
        address = number * chunk
        found = re.fullmatch(r"row (\d+), bytes (\d+) to (\d+)", rect.get("data-tip", ""))
        if found is None:
            assert rect.get("data-tip") == "padding"
            continue
        row, first, last = map(int, found.groups())
        seen.add((row, first))
        held = [b for b in range(first, last + 1) if b < layout.row_bytes]
        assert [int(layout.address(np.array(row), np.array(b))) for b in held] == [
            address + i for i in range(len(held))
        ]
    # and nothing that lies in these lines is left out
    for row in range(layout.rows):
        for first in range(0, layout.row_bytes, chunk):
            inside = int(layout.address(np.array(row), np.array(first))) < len(lines) * 128
            assert ((row, first) in seen) == inside


def candidate_with(shown: Placed) -> Run:
    c = Candidate({}, 1e-5, 0.5, 32, 32, 0, 1, "s", dict.fromkeys(UNITS, 1e-6), 0.0, 0.0, "", [shown])
    part = Searched("M", "s", "p", 0, 1, 1, [], "", candidates=[c])
    return dataclasses.replace(EMPTY, searched=[part], winner=(0, 0))


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_measured_candidate_lies_on_the_diagonal_where_its_prediction_is_right(pairs: list) -> None:
    timed = [Timed("M", {}, predicted, found, None, None, "") for predicted, found in pairs]
    right = Timed("right", {}, 1e-3, 1e-3, None, None, "")
    run = dataclasses.replace(EMPTY, timed=[*timed, right], measured="measured on X")
    tree = tree_of(page(run))
    section = next(s for s in tree.iter("section") if s.get("id") == "measured")
    svg = next(svg for svg in section.iter("svg") if svg.get("class") == "chart wide")
    diagonal = next(p.get("d", "") for p in svg.iter("path"))
    (x1, y1), (x2, y2) = (tuple(map(float, pair.split(","))) for pair in diagonal[1:].split("L"))
    for circle in svg.iter("circle"):
        x, y = float(circle.get("cx", "")), float(circle.get("cy", ""))
        above = (y1 + (x - x1) / (x2 - x1) * (y2 - y1)) - y
        predicted, found = re.search(r"predicted (.*), measured (.*) ·", circle.get("data-tip", "")).groups()
        if predicted == found:
            assert abs(above) < 1.5


def test_the_timeline_shows_a_few_places_in_their_order_and_says_what_it_leaves_out() -> None:
    rows = [f"slot {n} all" for n in (10, 2, 0, 1, 11, 3, 4, 5, 6, 7)]
    stretches = [Stretch(row, "loop", "work", 0.0, 1e-6) for row in [*rows, "dram", "tensor"]]
    tree = tree_of(page(dataclasses.replace(EMPTY, timeline=Timeline(1e-6, "DRAM, 99 % busy", stretches))))
    section = next(s for s in tree.iter("section") if s.get("id") == "timeline")
    svg = next(s for s in section.iter("svg") if s.get("class") == "chart wide")
    names = [t.text for t in svg.iter("text") if t.get("text-anchor") == "end"]
    assert names == [*(f"slot {n} all" for n in range(8)), "tensor cores", "DRAM"]
    assert "2 more rows of roles are left out." in words_of(section)


# --- numbers and scales -------------------------------------------------------------------------------------------


@given(st.floats(1e-9, 1e3), st.floats(1.01, 1e6), st.booleans(), st.integers(2, 9))
@settings(max_examples=200, deadline=None)
def test_ticks_lie_on_the_scale_in_order_and_are_few(low: float, factor: float, log: bool, most: int) -> None:
    scale = Scale(low, low * factor, 0, 100, log)
    ticks = scale.ticks(most)
    assert ticks == sorted(set(ticks))
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)
    assert 1 <= len(ticks) <= 2 * most + 2
    assert (scale(low), scale(low * factor)) == (0, 100)


@given(st.floats(1e-12, 1e9))
@settings(max_examples=200, deadline=None)
def test_digits_are_three_and_right(value: float) -> None:
    text = digits(value)
    if 1e-2 <= value < 1e3:
        assert math.isclose(float(text), value, rel_tol=0.0051)
        assert len(text.replace(".", "").lstrip("0")) in (3, 4)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00 s"), (0.0123, "12.3 ms"), (9.9996e-4, "1.00 ms"), (1.5e-9, "1.50 ns"), (2e-10, "0.200 ns")],
)
def test_times_in_words(value: float, text: str) -> None:
    assert seconds_text(value) == text


def test_counts_in_words() -> None:
    assert [count_text(c) for c in (0, 94616, 9_999_999, 3e11)] == ["0", "94,616", "9,999,999", "3.0 × 10¹¹"]


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "the run is no run, or has been cut: one of version 1 begins by saying so"),
        ({"tinygpu_run": 2}, "the run is no run of version 1: its version is 2"),
        (
            EMPTY.to_json() | {"title": 5},
            "the run is damaged, or of another version: title is a whole number, and must be a text",
        ),
        (
            EMPTY.to_json() | {"searched": 5},
            "the run is damaged, or of another version: searched is a whole number, and must be a list",
        ),
        (
            EMPTY.to_json() | {"more": 5},
            "the run is damaged, or of another version: it has the unknown member 'more'",
        ),
    ],
)
def test_what_is_no_run_is_refused(data: object, sentence: str) -> None:
    with pytest.raises(FileError) as refused:
        Run.from_json(data)
    assert str(refused.value) == sentence
