"""docs/blackwell.md: as its sources say; kernels run, twins are refused, pictures are the emulator's places."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.cards import complaint, refusal, refused_by_assembler, refused_by_emulator
from tinygpu.ptx.cards.blackwell import ACCUMULATORS, PLAIN_FIELDS, SCALED_FIELDS, main, page
from tinygpu.ptx.cards.evidence import blackwell_kernels as kernels
from tinygpu.ptx.cards.evidence import launch_control
from tinygpu.ptx.cards.readings import READINGS, UNJUDGED
from tinygpu.ptx.cards.specimen import Specimen, Twin
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS, MmaForm, judge_descriptor
from tinygpu.ptx.emulator.units.tensor_memory_maps import accumulator_cells

PAGE = Path(__file__).parents[3] / "docs" / "blackwell.md"
EXAMPLES = (kernels.GOOD, kernels.COPY, kernels.SHIFT, kernels.GATHER, launch_control.ASK, launch_control.TAKE)
TWINS = (
    *kernels.ALLOCATION_TWINS, *kernels.STORE_TWINS, *kernels.COPY_TWINS, *kernels.SHIFT_TWINS,
    *kernels.GATHER_TWINS, *launch_control.ASK_TWINS, *launch_control.TAKE_TWINS,
)  # fmt: skip


@pytest.mark.end_to_end
def test_the_page_is_what_its_sources_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tinygpu.ptx.cards.blackwell"
    other = tmp_path / "blackwell.md"
    assert main(["--check", str(other)]) == 1
    assert capsys.readouterr().err == f"{other} is missing; run python -m tinygpu.ptx.cards.blackwell {other}\n"
    assert main([str(other)]) == 0
    assert main(["--check", str(other)]) == 0


def test_the_page_tells_every_reading_once_and_says_what_is_unjudged() -> None:
    lines = page().split("\n")
    for reading in READINGS:
        (line,) = [x for x in lines if x.startswith(f"| {reading.key} | ")]
        assert (UNJUDGED in line) == (not reading.witnesses), reading.key


@pytest.mark.parametrize("name", list(ACCUMULATORS))
def test_pictures_of_accumulators_are_where_the_emulator_has_them(name: Any) -> None:
    layout = ACCUMULATORS[name][1]
    lane, column = accumulator_cells(name, 64)
    rows, columns = lane.shape
    drawn = [(layout.along("lane")(r, c), layout.along("column")(r, c)) for r in range(rows) for c in range(columns)]
    assert layout[0].size == rows
    assert layout[1].size == columns
    assert drawn == list(zip(lane.reshape(-1).tolist(), column.reshape(-1).tolist(), strict=True))


# A legal word of a form, and for each field another legal value: the code, and what the emulator calls it.
WORDS: tuple[tuple[MmaForm, int, dict[str, tuple[int, Any]]], ...] = (
    (
        MmaForm("f16"), 1 << 4 | 8 << 17 | 8 << 24,
        {
            "d_type": (0, "f16"), "negate_a": (1, True), "negate_b": (1, True), "a_mn_major": (1, True),
            "b_mn_major": (1, True), "n": (32, 256), "m": (4, 64),
        },
    ),
    (MmaForm("i8"), 2 << 4 | 8 << 17 | 8 << 24, {"saturate": (1, True), "a_type": (1, "s8"), "b_type": (1, "s8")}),
    (MmaForm("f16", ws=True), 1 << 4 | 8 << 17 | 8 << 24, {"max_shift": (2, 16)}),
    (MmaForm("f16", sparse=True), 1 << 2 | 1 << 4 | 8 << 17 | 8 << 24, {"sparsity_selector": (1, 1)}),
    (
        MmaForm("mxf8f6f4", block="block32"), 1 << 23 | 16 << 17 | 1 << 27,
        {
            "sfb_id": (3, 3), "a_type": (1, "e5m2"), "b_type": (1, "e5m2"), "negate_a": (1, True),
            "negate_b": (1, True), "a_mn_major": (1, True), "b_mn_major": (1, True), "n": (32, 256), "sfa_id": (2, 2),
        },
    ),
    (MmaForm("mxf4nvf4", block="block16"), 1 << 7 | 1 << 10 | 16 << 17 | 1 << 27, {"scale_type": (1, "ue8m0")}),
    (MmaForm("mxf8f6f4", 2, block="block32"), 1 << 23 | 16 << 17 | 1 << 27, {"m": (2, 256)}),
)  # fmt: skip


def changes() -> Iterator[Any]:
    for form, word, fields in WORDS:
        for name, (code, value) in fields.items():
            yield pytest.param(form, word, name, code, value, id=f"{form} {name}")


@pytest.mark.parametrize(("form", "word", "name", "code", "value"), list(changes()))
def test_fields_lie_at_the_bits_of_the_page(form: MmaForm, word: int, name: str, code: int, value: Any) -> None:
    table = SCALED_FIELDS if KINDS[form.kind].scaled else PLAIN_FIELDS
    ((_, low, high, unit),) = [f for f in table if f[0] == name]
    before, problems = judge_descriptor(word, form)
    assert problems == ()
    mask = (1 << high - low + 1) - 1
    after, problems = judge_descriptor(word & ~(mask << low) | code << low, form)
    assert problems == ()
    assert getattr(before, name) != value
    assert getattr(after, name) == value
    assert unit == 1 or value == code * unit


def test_every_field_of_the_page_is_tried() -> None:
    for table, scaled in ((PLAIN_FIELDS, False), (SCALED_FIELDS, True)):
        tried = {name for form, _, fields in WORDS for name in fields if KINDS[form.kind].scaled == scaled}
        # What says that A is sparse goes with the spelling .sp, and is tried with the word itself.
        assert {f[0] for f in table} - tried == {"sparse"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda s: s.title)
def test_the_smallest_kernels_assemble_and_run(example: Specimen) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert refused_by_assembler(example) == ""
    assert refused_by_emulator(example) == ""


@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.rule)
def test_twins_are_refused_in_the_words_of_the_page(twin: Twin) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert complaint(twin) == ""
    assert twin.refusal in refusal(twin)
    assert twin.refusal != ""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("copy", kernels.COPIES, ids=lambda s: s.title)
def test_copies_of_every_shape_and_form_assemble_and_run(copy: Specimen) -> None:
    pytest.importorskip("cuda.bindings", reason="judging needs the assembler")
    assert refused_by_assembler(copy) == ""
    assert refused_by_emulator(copy) == ""


def test_examples_show_their_results() -> None:
    """No example gives what was in memory before."""
    for example in EXAMPLES:
        given = [np.ones((example.threads, f.per_thread), np.float32) for f in example.fields[:-1]]
        assert np.asarray(example.meaning(*given)).any(), example.title
