"""What a notebook shows: whole HTML with pictures of what the front door returns, whatever a user's words are."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, UnknownLayout, blocked
from tinygpu.notebook import html
from tinygpu.program.layouts import LINES, buffer_layouts
from tinygpu.program.placement import place
from tinygpu.ptx import isa


class Odd(Machine):
    """y = x where a < b & c > "d" </p>"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    warps, pad = Param(1, 2, 4), Param(0, 4)
    swizzle = UnknownLayout()
    few = Require(warps < 4, 'fewer than 4 <b>warps</b> & no "more"', kind="dominance", why="a < b")
    ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

    def program(self, p):  # type: ignore[no-untyped-def]
        shape = (8 * self.warps, 32)
        who = blocked(shape, threads=32 * self.warps, across=32)
        stage = p.smem("f32", shape, pad=self.pad, layout=self.swizzle)
        grid = p.grid((self.m, shape[0]), (self.n, 32))
        with grid as (i, j), p.pipeline("ring", 1, t=stage) as ring, p.role("all", warps=self.warps):
            with ring.produce() as slot:
                p.store(self.put, slot.t, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
            with ring.consume() as slot:
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.get, slot.t, who))

    @staticmethod
    def reference(x):  # type: ignore[no-untyped-def]
        return x


def whole(shown: str) -> ElementTree.Element:
    """HTML that is well formed, so that nothing of a user's words is taken for a tag."""
    return ElementTree.fromstring(f"<div>{shown}</div>")


def pictures(shown: str) -> int:
    return sum(element.tag.endswith("svg") for element in whole(shown).iter())


# what the front door returns -> pictures in it, at least
PICTURES = {
    "space": 1,
    "kernel": 2,  # where the time goes, and its buffer in the banks
    "prediction": 2,  # where the time goes, and the timeline
    "program": 1,  # a partition
    "in": 0,
    "out": 0,
    "verification": 0,
}


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    space = tg.space(Odd, m=50, n=40, device="a100")
    kernel = tg.emit(space, pad=4)
    return {
        "space": space, "kernel": kernel, "prediction": tg.predict(space, warps=2), "program": kernel.built.program,
        "in": tg.explain(space, warps=2), "out": tg.explain(space, warps=4), "verification": tg.verify(kernel),
    }  # fmt: skip


@pytest.mark.parametrize("what", PICTURES)
def test_what_is_shown_is_whole_and_says_what_the_terminal_says(what: str, results: dict[str, object]) -> None:
    found, least = results[what], PICTURES[what]
    shown = found._repr_html_()  # type: ignore[attr-defined]
    assert pictures(shown) >= least
    assert "<script" not in shown
    text = " ".join("".join(whole(shown).itertext()).split())
    for number in re.findall(r"\d[\d,.]*\d", str(found).splitlines()[0]):
        assert number in text
    assert len(str(found)) > 10


def test_the_sentence_of_a_constraint_is_shown_as_it_is() -> None:
    shown = tg.explain(tg.space(Odd, m=50, n=40, device="a100"), warps=4)._repr_html_()
    assert 'fewer than 4 <b>warps</b> & no "more"' in "".join(whole(shown).itertext())


words = st.text(st.sampled_from("<>&\"'/ b=") | st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=20)


@given(words, words, st.floats(-1, 2))
def test_nothing_of_anybody_s_words_is_taken_for_a_tag(one: str, other: str, share: float) -> None:
    shown = (
        html.verdict(True, one) + html.paragraph(one) + html.sentences([one, other]) + html.code(other)
        + html.table(("a", "b>"), [(one, other)]) + html.folded(one, html.code(other))
        + html.bars(one, {other: share}, {other: one})
    )  # fmt: skip
    text = "".join(whole(shown).itertext())
    assert one in text
    assert other in text


def check_buffers(kernel: Any) -> None:
    """What is shown of a kernel has the picture of every buffer that the terminal prints, cell by cell."""
    shown, built = kernel._repr_html_(), kernel.built
    texts = [e.text for e in whole(shown).iter() if e.tag.endswith("text")]
    buffers = list(buffer_layouts(built.program, place(built.program, built.layouts.swizzles)))
    found = [picture for b in buffers if (picture := b.picture(LINES)) is not None]
    assert found
    for picture in found:
        assert picture.svg() in shown
        cells = {cell for line in picture.cells for cell in line if cell}
        assert cells <= set(texts)
        printed = str(picture).split()
        assert cells <= set(printed)
        assert max(map(len, str(picture).splitlines()[1:])) <= 160


def test_the_buffers_of_a_kernel_are_shown_as_the_terminal_shows_them(results: dict[str, object]) -> None:
    check_buffers(results["kernel"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "device", "dims"),
    [
        ("matmul_simt", "a100", {"m": 512, "n": 512, "k": 512}),
        ("matmul_ampere", "a100", {"m": 512, "n": 512, "k": 512}),
        ("matmul_hopper", "h100", {"m": 512, "n": 512, "k": 512}),
        ("matmul_skinny", "h100", {"m": 16, "n": 512, "k": 512}),
    ],
)
def test_the_buffers_of_shipped_machines_are_shown(machine: str, device: str, dims: dict[str, int]) -> None:
    check_buffers(tg.emit(tg.space(machine, device=device, **dims)))
